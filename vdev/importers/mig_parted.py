"""NVIDIA's mig-parted: a vdev file for each of its named configurations, with these partitions.

The file does not have the model and number of the GPUs. They come from options, or are guessed from the profiles. vdev
can also read the file itself and follow the label that chooses: `partitions: {fromLabel, file}`.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import ValidationError

from .. import config
from ..config.layouts import GpuConfig, Subject
from ..errors import ConfigError
from ..model.problem import show
from .draft import Draft, keys
from .sources import ImportOptions, ImportSource, as_yaml_1_1, listed, mapping

TITLE = "NVIDIA's mig-parted"
_KEY = "mig-configs"
_ITEM = keys("devices", "device-filter", "mig-enabled", "mig-devices")
_COUNT = 8  # GPUs of a node if the number is unknown
_MAX_COUNT = 256
_USUAL = ("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200", "b200", "gb200", "a30", "h100-nvl")

Items = Mapping[str, GpuConfig]
"""The items of a configuration by their places in the file."""

Partitions = Mapping[str, int] | None
"""How many partitions of each profile a GPU has; None for a GPU without partitions."""


def recognizes(content: Any) -> bool:
    """Whether it has named configurations."""
    return isinstance(mapping(content).get(_KEY), dict)


def drafts(found: Sequence[ImportSource], options: ImportOptions) -> list[Draft]:
    """One file for each configuration."""
    made: list[tuple[Draft, Items]] = []
    for source in found:
        for name, items in source.content[_KEY].items():
            draft = Draft(f"Made by vdev import of the configuration {name} of mig-parted.", str(name))
            made.append((draft, dict(_items(draft, listed(items)))))
    models = [_model(items) for _, items in made]
    usual = next(filter(None, models), _USUAL[0])
    for (draft, items), model in zip(made, models, strict=True):
        _complete(draft, items, options.preset or model or usual, options)
    return [draft for draft, _ in made]


def _items(draft: Draft, items: list[Any]) -> Iterator[tuple[str, GpuConfig]]:
    for position, item in enumerate(items):
        where = f"{_KEY}.{draft.name}[{position}]"
        draft.name_unread(item, _ITEM, where)
        known = {key: value for key, value in mapping(item).items() if key in _ITEM}
        try:
            yield where, GpuConfig.model_validate(as_yaml_1_1(known))
        except ValidationError as invalid:
            for each in invalid.errors():
                message = "is missing" if each["type"] == "missing" else each["msg"]
                draft.omit(f"{where}.{show(each['loc'])}".rstrip("."), message)


def _complete(draft: Draft, items: Items, preset: str, options: ImportOptions) -> None:
    """Add the devices, with the partitions that the items give to GPUs of this preset."""
    draft.remarks[:0] = [
        f"Its nodes have the label nvidia.com/mig.config={draft.name}; give them vdev.dev/config={draft.name} as well.",
        "To follow that label instead: partitions: {fromLabel: nvidia.com/mig.config, file: FILE}.",
    ]
    most = max((index + 1 for item in items.values() for index in item.devices or ()), default=_COUNT)
    count = options.count or min(most, _MAX_COUNT)
    if not (options.preset and options.count):
        draft.note(
            "", f"mig-parted does not name the GPUs; {count} {preset} are assumed; --preset and --count set them"
        )
    layouts: list[Partitions] = [None] * count
    for where, item in items.items():
        if not item.is_for(_pci_id(preset)):
            draft.note(f"{where}.device-filter", f"does not select {preset}, so this item changes nothing")
            continue
        parts = {name: number for name, number in (item.mig_devices or {}).items() if number}
        for index in range(count) if item.devices is None else item.devices:
            if index < count:
                layouts[index] = parts if item.mig_enabled else None
            else:
                draft.omit(f"{where}.devices", f"there is no GPU {index}")
    body: dict[str, Any] = {"name": "gpu", "resource": "nvidia.com/gpu", "virtual": {"preset": preset, "count": count}}
    if any(layout is not None for layout in layouts):
        draft.flags["migStrategy"] = "mixed"
        body["partitions"] = dict(_ranges(layouts))
    draft.entry(body)


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


# --- the model -------------------------------------------------------------------------------------------------------


def _pci_id(preset: str) -> str:
    try:
        return config.preset(preset).attributes.get("pciDeviceId", "")
    except ConfigError:
        return ""  # the check of the file reports an unknown preset


@cache
def _models() -> dict[str, Subject]:
    """The built-in models that can be partitioned, the usual ones first."""
    known = {name: config.preset(name) for name in (*_USUAL, *config.preset_names())}
    return {
        name: Subject(each.partitioning, 1, each.attributes.get("pciDeviceId", ""))
        for name, each in known.items()
        if each.partitioning and not each.count
    }


def _model(items: Items) -> str:
    """The first model that the items select, and that can have their partitions; empty without partitions."""
    for name, subject in _models().items():
        wanted = [item.parts for item in items.values() if item.is_for(subject.pci_id)]
        if any(wanted) and not subject.refusal(wanted):
            return name
    return ""
