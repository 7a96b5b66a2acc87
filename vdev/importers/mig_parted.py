"""NVIDIA's mig-parted: each of its named configurations becomes a vdev file with its partitions.

The source does not contain the model and number of the GPUs. Options give them, or they are guessed from the profiles.
vdev can also read the source itself and follow the label that selects a configuration: `partitions: {fromLabel, file}`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from .. import config
from ..config.partitions import GpuConfig, refusal_of
from ..model.problem import show
from ..model.section import fields_of
from .draft import Draft, Item, listed, mapping
from .sources import Form, ImportOptions, ImportSource, as_yaml_1_1

_KEY = "mig-configs"
_COUNT = 8  # GPUs of a node if the number is unknown
_MAX_COUNT = 256
_USUAL = ("a100-sxm4-40gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "h200", "b200", "gb200", "a30", "h100-nvl")

Partitions = Mapping[str, int] | None
"""How many partitions of each profile a GPU has; None for a GPU without partitions."""


def _files(found: Sequence[ImportSource]) -> Iterator[tuple[str, Any]]:
    for source in found:
        for name, items in source.content[_KEY].items():
            yield str(name), (listed(items), source.content[_KEY].values())


def _configs(draft: Draft, items: list[Any]) -> Iterator[tuple[str, GpuConfig]]:
    for position, given in enumerate(items):
        item = Item(draft, given, f"{_KEY}.{draft.name}[{position}]")
        known = {key: item.value(key) for key in fields_of(GpuConfig) if key in item.given}
        try:
            yield item.where, GpuConfig.model_validate(as_yaml_1_1(known))
        except ValidationError as invalid:
            for each in invalid.errors():
                message = "is missing" if each["type"] == "missing" else each["msg"]
                draft.omit(f"{item.where}.{show(each['loc'])}".rstrip("."), message)


def _fill(draft: Draft, given: tuple[list[Any], Iterable[Any]], options: ImportOptions) -> None:
    """Add the devices, with the partitions that the items give to GPUs of their model."""
    items, siblings = given
    configs = dict(_configs(draft, items))
    preset = options.preset or _model(configs.values())
    for each in siblings:  # a configuration without partitions is for the same GPUs as the others
        preset = preset or _model(dict(_configs(Draft(""), listed(each))).values())
    preset = preset or _USUAL[0]
    draft.remarks[:0] = [
        f"Its nodes have the label nvidia.com/mig.config={draft.name}; give them vdev.dev/config={draft.name} as well.",
        "To follow that label instead: partitions: {fromLabel: nvidia.com/mig.config, file: FILE}.",
    ]
    most = max((index + 1 for each in configs.values() for index in each.devices or ()), default=_COUNT)
    count = options.count or min(most, _MAX_COUNT)
    if not (options.preset and options.count):
        guess = f"mig-parted does not name the GPUs; {count} {preset} are assumed; --preset and --count set them"
        draft.note("", guess)
    pci_id = config.load_preset(preset).attributes.get("pciDeviceId", "")
    layouts: list[Partitions] = [None] * count
    for where, each in configs.items():
        if not each.is_for(pci_id):
            draft.note(f"{where}.device-filter", f"does not select {preset}, so this item changes nothing")
            continue
        parts = {name: number for name, number in (each.mig_devices or {}).items() if number}
        for index in range(count) if each.devices is None else each.devices:
            if index < count:
                layouts[index] = parts if each.mig_enabled else None
            else:
                draft.omit(f"{where}.devices", f"there is no GPU {index}")
    body: dict[str, Any] = {"name": "gpu", "resource": "nvidia.com/gpu", "virtual": {"preset": preset, "count": count}}
    if any(layout is not None for layout in layouts):
        draft.sections["flags"] = {"migStrategy": "mixed"}
        is_same = all(layout == layouts[0] for layout in layouts)
        by_index = {str(index): layout for index, layout in enumerate(layouts) if layout is not None}
        body["partitions"] = {"all": layouts[0]} if is_same else by_index
    draft.entry(body)


FORM = Form(
    title="NVIDIA's mig-parted",
    recognizes=lambda content: isinstance(mapping(content).get(_KEY), dict),
    files=_files,
    fill=_fill,
)


def _model(configs: Collection[GpuConfig]) -> str:
    """Return the first model that the items select and that can have their partitions; empty if none does."""
    for name in (*_USUAL, *config.preset_names()):
        preset = config.load_preset(name)
        wanted = [each.parts for each in configs if each.is_for(preset.attributes.get("pciDeviceId", ""))]
        if any(wanted) and preset.partitioning and not preset.count and not refusal_of(preset.partitioning, wanted):
            return name
    return ""
