"""smarter-device-manager: each node below /dev that an expression finds is a resource.

Source: 352db03 of 2025-03-03. The resource is `smarter-devices/<path>`, with '_' for all characters except letters,
digits, '-' and '_'.
"""

from collections.abc import Sequence
from typing import Any

from ..model.device import grouped
from .draft import Draft, DraftEntry, keys
from .go_patterns import NotAPatternError, common_name, literal, regex
from .sources import ImportOptions, ImportSource, listed, mapping, number

TITLE = "smarter-device-manager"
_RESOURCE = "smarter-devices/{attributes.below}"
_KINDS = ["char", "block", "directory"]
_JETSON = "nvidia-gpu"
_ITEM = keys("devicematch", "nummaxdevices")


def recognizes(content: Any) -> bool:
    """Whether it is the list, or Helm values with it."""
    return any("devicematch" in mapping(each) for each in _items(content))


def _items(content: Any) -> list[Any]:
    return listed(content) or listed(mapping(content).get("config"))


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for each list, because a node has one list."""
    return [_draft(source) for source in found]


def _draft(source: ImportSource) -> Draft:
    draft = Draft("Made by vdev import of a configuration of smarter-device-manager.", source.key)
    for place, item in enumerate(_items(source.content)):
        _item(draft, mapping(item), f"[{place}]")
    draft.name_unread(source.content, _ITEM if isinstance(source.content, list) else keys(config=_ITEM))
    return draft


def _item(draft: Draft, item: dict[str, Any], where: str) -> None:
    expression = item.get("devicematch")
    if not isinstance(expression, str):
        draft.omit(where, "has no devicematch")
        return
    if expression == _JETSON:
        draft.omit(where, "nvidia-gpu detects the GPU of a Jetson, which has no device node; vdev has no such source")
        return
    count = number(item.get("nummaxdevices"))
    if not count:
        draft.omit(where, f"{expression} has nummaxdevices 0, so its resources are empty")
        return
    try:
        matching = regex(expression, "/dev")
    except NotAPatternError as wrong:
        draft.omit(where, f"the expression {expression!r} has no equivalent path patterns: {wrong}")
        return
    first = DraftEntry({}, [f"devicematch {expression}"])
    if not matching.exact:
        draft.note(where, f"the patterns for {expression!r} are not exact: they may find more paths", first)
    deep = len(matching.patterns) > 1
    made = [
        _entry(draft, pattern, exclude, DraftEntry({}) if place else first, deep=deep)
        for place, (pattern, exclude) in enumerate(matching.patterns)
    ]
    for resource, entries in grouped((body["resource"], body["name"]) for body in made).items():
        if count > 1:
            draft.share(resource, count, entries)


def _entry(draft: Draft, pattern: str, exclude: Sequence[str], entry: DraftEntry, *, deep: bool) -> DraftEntry:
    is_one = pattern == literal(pattern)
    below = pattern.removeprefix("/dev/")
    fixed = "".join(each if each.isalnum() or each in "-_" else "_" for each in below)
    entry["name"] = draft.entry_name(common_name(pattern))
    entry["resource"] = f"smarter-devices/{fixed}" if is_one and fixed.isascii() else _RESOURCE
    entry["glob"] = {"path": pattern, "kinds": _KINDS}
    if exclude:
        entry["exclude"] = list(exclude)
    if "**" in pattern or deep:
        entry["shared"] = True  # a directory and the nodes in it are separate resources
    draft.devices.append(entry)
    return entry
