"""NVIDIA's mig-parted: a vdev file for each of its named configurations, with these partitions.

The file does not have the model and number of the GPUs. They come from options, or are guessed from the profiles. vdev
can also read the file itself and follow the label that chooses: `partitions: {fromLabel, file}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from .. import config
from ..errors import ConfigError
from ..model.geometry import Geometry, LayoutError, repeated
from ..planning.partitions import place
from .draft import Draft, ImportOptions, ImportSource, keys, listed, mapping, number

_KEY = "mig-configs"
_ITEM = keys("devices", "device-filter", "mig-enabled", "mig-devices")
_MAX_PARTS = 64  # of one profile on a GPU
_COUNT = 8  # GPUs of a node if the number is unknown
_USUAL = ("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200", "b200", "gb200", "a30", "h100-nvl")

Partitions = Mapping[str, int] | None
"""How many partitions of each profile a GPU has; None for a GPU without partitions."""


def recognizes(content: Any) -> bool:
    """Whether it has named configurations."""
    return isinstance(mapping(content).get(_KEY), dict)


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for each configuration."""
    named = [(str(name), each) for source in found for name, each in source.content[_KEY].items()]
    usual = next((preset for _, each in named if (preset := _fitting(each))), _USUAL[0])
    return [_draft(name, listed(each), options, usual) for name, each in named]


def _draft(name: str, items: list[Any], options: ImportOptions, usual: str) -> Draft:
    preset = options.preset or _fitting(items) or usual
    count = options.count or max((index + 1 for item in items for index in _indices(item, 0)), default=_COUNT)
    draft = Draft(f"Made by vdev import of the configuration {name} of mig-parted.", name)
    draft.remarks.append(
        f"Its nodes have the label nvidia.com/mig.config={name}; give them vdev.dev/config={name} as well."
    )
    draft.remarks.append("To follow that label instead: partitions: {fromLabel: nvidia.com/mig.config, file: FILE}.")
    if not (options.preset and options.count):
        draft.note(
            "",
            f"mig-parted does not name the GPUs; {count} {preset} are assumed; --preset and --count set them",
        )
    layouts: list[Partitions] = [None] * count
    for position, item in enumerate(items):
        _apply(draft, mapping(item), f"{_KEY}.{name}[{position}]", preset, layouts)
    body: dict[str, Any] = {"name": "gpu", "resource": "nvidia.com/gpu", "virtual": {"preset": preset, "count": count}}
    if any(layout is not None for layout in layouts):
        draft.flags["migStrategy"] = "mixed"
        body["partitions"] = dict(_ranges(layouts))
    draft.entry(body)
    return draft


def _apply(draft: Draft, item: dict[str, Any], where: str, preset: str, layouts: list[Partitions]) -> None:
    draft.name_unread(item, _ITEM, where)
    if not _is_for(item, preset):
        draft.note(f"{where}.device-filter", f"does not select {preset}, so this item changes nothing")
        return
    is_on = str(item.get("mig-enabled")).lower() in ("true", "yes", "on")
    parts = _counts(item)
    for index in _indices(item, len(layouts)):
        if index < len(layouts):
            layouts[index] = parts if is_on else None
        else:
            draft.omit(f"{where}.devices", f"there is no GPU {index}")


def _indices(item: Any, count: int) -> list[int]:
    devices = mapping(item).get("devices")
    if devices == "all":
        return list(range(count))
    return [index for each in listed(devices) if (index := number(each)) is not None and index < 256]


def _is_for(item: dict[str, Any], preset: str) -> bool:
    given = item.get("device-filter")
    filters = [str(each) for each in (given if isinstance(given, list) else [given]) if each]
    try:
        known = config.preset(preset).attributes.get("pciDeviceId", "").lower()
    except ConfigError:
        return True  # the check of the file reports an unknown preset
    return not filters or any(each.partition(":")[0].lower() == known for each in filters)


def _ranges(layouts: Sequence[Partitions]) -> Iterator[tuple[str, dict[str, int]]]:
    if all(layout == layouts[0] for layout in layouts):
        yield "all", dict(layouts[0] or {})
        return
    start = 0
    for end in range(1, len(layouts) + 1):
        if end == len(layouts) or layouts[end] != layouts[start]:
            layout = layouts[start]
            if layout is not None:
                yield (str(start) if end == start + 1 else f"{start}-{end - 1}"), dict(layout)
            start = end


@cache
def _geometries() -> dict[str, Geometry]:
    """How the built-in models can be partitioned, the usual ones first."""
    found = {name: config.preset(name) for name in config.preset_names()}
    geometries = {name: each.partitioning for name, each in found.items() if each.partitioning and not each.count}
    usual = [name for name in _USUAL if name in geometries]
    return {name: geometries[name] for name in dict.fromkeys((*usual, *geometries))}


def _fitting(items: Any) -> str:
    """The first model that can have these partitions and that the filters select; empty without partitions."""
    layouts = [_counts(mapping(item)) for item in listed(items)]
    if not any(layouts):
        return ""
    fitting = [name for name, each in _geometries().items() if all(_can_be(each, layout) for layout in layouts)]
    selected = [name for name in fitting if any(_is_for(mapping(item), name) for item in listed(items))]
    return next(iter(selected or fitting), "")


def _counts(item: dict[str, Any]) -> dict[str, int]:
    given = mapping(item.get("mig-devices")).items()
    return {str(profile): count for profile, each in given if (count := number(each)) and count <= _MAX_PARTS}


def _can_be(geometry: Geometry, counts: Mapping[str, int]) -> bool:
    try:
        place(geometry, repeated(counts))
    except LayoutError:
        return False
    return True
