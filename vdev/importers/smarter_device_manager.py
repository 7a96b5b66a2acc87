"""smarter-device-manager: each node below /dev that matches an expression is a resource.

Source: 352db03 of 2025-03-03. The resource is `smarter-devices/<path>`, with '_' for all characters except letters,
digits, '-' and '_'.
"""

from collections.abc import Sequence
from typing import Any

from .draft import Draft, DraftEntry, Item, listed, mapping
from .go_patterns import NotAPatternError, common_name, literal, regex
from .sources import Form, ImportOptions

_RESOURCE = "smarter-devices/{attributes.below}"
_KINDS = ["char", "block", "directory"]
_JETSON = "nvidia-gpu"


def _recognizes(content: Any) -> bool:
    """Whether the content is the plugin's list, or Helm values with it."""
    return any("devicematch" in mapping(each) for each in listed(content) or listed(mapping(content).get("config")))


def _fill(draft: Draft, content: Any, _options: ImportOptions) -> None:
    if isinstance(content, list):
        items = [Item(draft, each, f"[{place}]") for place, each in enumerate(content)]
    else:
        items = Item(draft, content).items("config")
    for item in items:
        _item(draft, item)


FORM = Form(title="smarter-device-manager", recognizes=_recognizes, fill=_fill)


def _item(draft: Draft, item: Item) -> None:
    expression, count = item.text("devicematch"), item.number("nummaxdevices")
    if not expression or not count:
        item.omit(
            f"{expression} has nummaxdevices 0, so its resources are empty" if expression else "has no devicematch"
        )
        return
    if expression == _JETSON:
        item.omit("nvidia-gpu detects the GPU of a Jetson, which has no device node; vdev cannot detect it")
        return
    try:
        patterns, exact = regex(expression, "/dev")
    except NotAPatternError as wrong:
        item.omit(f"the expression {expression!r} has no equivalent path patterns: {wrong}")
        return
    made = [_entry(draft, *each, deep=len(patterns) > 1) for each in patterns]
    made[0].comments.append(f"devicematch {expression}")
    if not exact:
        draft.note(item.where, f"the patterns for {expression!r} are not exact: they may find other paths")
    if count > 1:
        for entry in made:
            draft.share(entry["resource"], count, entry["name"])


def _entry(draft: Draft, pattern: str, exclude: Sequence[str], *, deep: bool) -> DraftEntry:
    below = "".join(each if each.isalnum() or each in "-_" else "_" for each in pattern.removeprefix("/dev/"))
    is_one = pattern == literal(pattern) and below.isascii()
    entry = draft.entry(
        {
            "name": draft.entry_name(common_name(pattern)),
            "resource": f"smarter-devices/{below}" if is_one else _RESOURCE,
            "glob": {"path": pattern, "kinds": _KINDS},
        }
    )
    if exclude:
        entry["exclude"] = list(exclude)
    if "**" in pattern or deep:
        entry["shared"] = True  # a directory and the nodes in it are separate resources
    return entry
