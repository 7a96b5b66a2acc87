"""NVIDIA's mig-parted: a vdev file for each of its named configurations, cut as that says.

The file says neither which GPUs there are nor how many, so they are taken from the profiles, or from who imports it.
vdev can also read it as it is, and follow the label that chooses: `partitions: {fromLabel, file}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from .. import config
from ..errors import ConfigError
from ..model.geometry import Geometry, LayoutError, repeated
from ..planning.partitions import place
from .draft import Draft, ImportSource, Wishes, listed, mapping, number

_KEY = "mig-configs"
_MAX_PARTS = 64  # of one profile on a GPU
_COUNT = 8  # GPUs of a node, where nothing says how many
_USUAL = ("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200", "b200", "gb200", "a30", "h100-nvl")

Cut = Mapping[str, int] | None
"""The profiles of one GPU and how many of each; None for a GPU that is not cut."""


def recognises(content: Any) -> bool:
    """Whether it has named configurations."""
    return isinstance(mapping(content).get(_KEY), dict)


def drafts(found: Sequence[ImportSource], wishes: Wishes) -> list[Draft]:
    """One file for each configuration."""
    named = [(str(name), each) for source in found for name, each in source.content[_KEY].items()]
    usual = next((preset for _, each in named if (preset := _fitting(each))), _USUAL[0])
    return [_draft(name, listed(each), wishes, usual) for name, each in named]


def _draft(name: str, items: list[Any], wishes: Wishes, usual: str) -> Draft:
    preset = wishes.preset or _fitting(items) or usual
    count = wishes.count or max((index + 1 for item in items for index in _indices(item, 0)), default=_COUNT)
    draft = Draft(f"Made by vdev import of the configuration {name} of mig-parted.", name)
    draft.remarks.append(
        f"Its nodes have the label nvidia.com/mig.config={name}; give them vdev.dev/config={name} as well."
    )
    draft.remarks.append("To follow that label instead: partitions: {fromLabel: nvidia.com/mig.config, file: FILE}.")
    if not (wishes.preset and wishes.count):
        draft.told(
            "",
            f"mig-parted does not say which GPUs there are: {count} {preset} are assumed; --preset and --count say it",
        )
    cuts: list[Cut] = [None] * count
    for position, item in enumerate(items):
        _apply(draft, mapping(item), f"{_KEY}.{name}[{position}]", preset, cuts)
    body: dict[str, Any] = {"name": "gpu", "resource": "nvidia.com/gpu", "virtual": {"preset": preset, "count": count}}
    if any(cut is not None for cut in cuts):
        draft.flags["migStrategy"] = "mixed"
        body["partitions"] = dict(_ranges(cuts))
    draft.entry(body)
    return draft


def _apply(draft: Draft, item: dict[str, Any], where: str, preset: str, cuts: list[Cut]) -> None:
    draft.unread(where, item, ("devices", "device-filter", "mig-enabled", "mig-devices"))
    if not _is_meant(item, preset):
        draft.told(f"{where}.device-filter", f"does not mean {preset}, so that this item changes nothing")
        return
    is_on = str(item.get("mig-enabled")).lower() in ("true", "yes", "on")
    parts = _counts(item)
    for index in _indices(item, len(cuts)):
        if index < len(cuts):
            cuts[index] = parts if is_on else None
        else:
            draft.lost(f"{where}.devices", f"there is no GPU {index}")


def _indices(item: Any, count: int) -> list[int]:
    devices = mapping(item).get("devices")
    if devices == "all":
        return list(range(count))
    return [index for each in listed(devices) if (index := number(each)) is not None and index < 256]


def _is_meant(item: dict[str, Any], preset: str) -> bool:
    given = item.get("device-filter")
    filters = [str(each) for each in (given if isinstance(given, list) else [given]) if each]
    try:
        known = config.preset(preset).attributes.get("pciDeviceId", "").lower()
    except ConfigError:
        return True  # an unknown preset is told of when the file is checked
    return not filters or any(each.partition(":")[0].lower() == known for each in filters)


def _ranges(cuts: Sequence[Cut]) -> Iterator[tuple[str, dict[str, int]]]:
    if all(cut == cuts[0] for cut in cuts):
        yield "all", dict(cuts[0] or {})
        return
    start = 0
    for end in range(1, len(cuts) + 1):
        if end == len(cuts) or cuts[end] != cuts[start]:
            cut = cuts[start]
            if cut is not None:
                yield (str(start) if end == start + 1 else f"{start}-{end - 1}"), dict(cut)
            start = end


@cache
def _geometries() -> dict[str, Geometry]:
    """What the models that come with vdev can be cut into; the usual ones first."""
    found = {name: config.preset(name) for name in config.preset_names()}
    cut = {name: each.partitioning for name, each in found.items() if each.partitioning and not each.count}
    return {name: cut[name] for name in dict.fromkeys((*(each for each in _USUAL if each in cut), *cut))}


def _fitting(items: Any) -> str:
    """The first model that can be cut as a configuration says, and is meant by it; empty where it cuts none."""
    cuts = [_counts(mapping(item)) for item in listed(items)]
    if not any(cuts):
        return ""
    fitting = [name for name, each in _geometries().items() if all(_can_be(each, cut) for cut in cuts)]
    meant = [name for name in fitting if any(_is_meant(mapping(item), name) for item in listed(items))]
    return next(iter(meant or fitting), "")


def _counts(item: dict[str, Any]) -> dict[str, int]:
    given = mapping(item.get("mig-devices")).items()
    return {str(profile): count for profile, each in given if (count := number(each)) and count <= _MAX_PARTS}


def _can_be(geometry: Geometry, counts: Mapping[str, int]) -> bool:
    try:
        place(geometry, repeated(counts))
    except LayoutError:
        return False
    return True
