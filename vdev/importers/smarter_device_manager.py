"""smarter-device-manager: each node below /dev that an expression finds is a resource of its own.

Facts: 352db03 of 2025-03-03. Its resource is `smarter-devices/<path>`, with '_' for what is no letter,
digit, '-' or '_'.
"""

from collections.abc import Sequence
from typing import Any

from ..model.device import grouped
from .draft import Block, Draft, ImportSource, Wishes, listed, mapping, number
from .go_patterns import NotAPatternError, common_name, literal, regex

_RESOURCE = "smarter-devices/{attributes.below}"
_KINDS = ["char", "block", "directory"]
_JETSON = "nvidia-gpu"


def recognises(content: Any) -> bool:
    """Whether it is the list, or Helm values that hold it."""
    return any("devicematch" in mapping(each) for each in _items(content))


def _items(content: Any) -> list[Any]:
    return listed(content) or listed(mapping(content).get("config"))


def drafts(found: Sequence[ImportSource], wishes: Wishes) -> list[Draft]:
    """One file for each list, since a node has one."""
    return [_draft(source) for source in found]


def _draft(source: ImportSource) -> Draft:
    draft = Draft("Made by vdev import of a configuration of smarter-device-manager.", source.key)
    for place, item in enumerate(_items(source.content)):
        _desired(draft, mapping(item), f"[{place}]")
    draft.unread("", mapping(source.content), ("config",))  # Helm values around the list
    return draft


def _desired(draft: Draft, item: dict[str, Any], where: str) -> None:
    draft.unread(where, item, ("devicematch", "nummaxdevices"))
    expression = item.get("devicematch")
    if not isinstance(expression, str):
        draft.lost(where, "has no devicematch")
        return
    if expression == _JETSON:
        draft.lost(
            where, "nvidia-gpu looks for the GPU of a Jetson and gives no device node; there is no such source here"
        )
        return
    count = number(item.get("nummaxdevices"))
    if not count:
        draft.lost(where, f"{expression} is offered no times, so that its resources are empty")
        return
    try:
        matching = regex(expression, "/dev")
    except NotAPatternError as wrong:
        draft.lost(where, f"the expression {expression!r} cannot be said by path patterns: {wrong}")
        return
    block = Block({}, [f"devicematch {expression}"])
    if not matching.exact:
        draft.told(where, f"the patterns for {expression!r} are near: they may find other paths as well", block)
    deep = len(matching.patterns) > 1
    made = [
        _entry(draft, pattern, exclude, Block({}) if place else block, deep=deep)
        for place, (pattern, exclude) in enumerate(matching.patterns)
    ]
    for resource, entries in grouped((body["resource"], body["name"]) for body in made).items():
        if count > 1:
            draft.share(resource, count, entries)


def _entry(draft: Draft, pattern: str, exclude: Sequence[str], block: Block, *, deep: bool) -> dict[str, Any]:
    is_one = pattern == literal(pattern)
    below = pattern.removeprefix("/dev/")
    fixed = "".join(each if each.isalnum() or each in "-_" else "_" for each in below)
    block.body = {
        "name": draft.entry_name(common_name(pattern)),
        "resource": f"smarter-devices/{fixed}" if is_one and fixed.isascii() else _RESOURCE,
        "glob": {"path": pattern, "kinds": _KINDS},
    }
    if exclude:
        block.body["exclude"] = list(exclude)
    if "**" in pattern or deep:
        block.body["shared"] = True  # a directory and what is in it are resources each
    draft.devices.append(block)
    return block.body
