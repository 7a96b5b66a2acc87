"""Files of named layouts in the form of mig-parted or device-config-manager, applied to an entry's devices."""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from ..model.geometry import Geometry, LayoutError, NamedLayout, Parts, counts_of, layout, repeated
from ..model.scalars import Flag, Index, OneOrMany, Text, Whole, not_empty
from ..model.section import Section, described, refuse, refuse_items
from ..planning.partitions import place
from .loader import FileText, read_text
from .messages import checked


@dataclass(frozen=True, slots=True)
class LayoutTarget:
    """`count` devices of one model. `pci_id` is its PCI device id as presets write it, or empty."""

    geometry: Geometry
    count: int
    pci_id: str = ""

    def refusal(self, wanted: Iterable[Parts]) -> str:
        """Return why a device cannot have one of these lists of partitions, or the empty string."""
        for parts in dict.fromkeys(wanted):
            try:
                place(self.geometry, parts or ())
            except LayoutError as clash:
                return str(clash)
        return ""


KEY = "gpu-config-profiles"
"""The key that mig-parted's files do not have."""


class Mode(Section):
    """A mode, and how many GPUs have it."""

    compute_partition: Text = ""
    """Compute partitioning: SPX, DPX, QPX or CPX."""
    memory_partition: Text = ""
    """Memory partitioning: NPS1, NPS2 or NPS4, the same for the whole profile."""
    num_gpus_assigned: Annotated[Index, Field(alias="numGPUsAssigned")] = 0
    """How many GPUs get it."""

    @property
    def name(self) -> str:
        """Its name in ROCm's plugin, such as cpx_nps1."""
        return f"{self.compute_partition}_{self.memory_partition}".lower()


class Skipped(Section):
    """GPUs that stay as they are."""

    ids: list[Index] = []
    """Their indices."""


class Profile(Section):
    """The modes of a node's GPUs."""

    skipped_gpus: Annotated[Skipped, Field(alias="skippedGPUs")] = Skipped()
    """GPUs that stay as they are."""
    profiles: list[Mode] = []
    """Modes, and how many of the other GPUs get each, in order."""

    def layout(self, target: LayoutTarget) -> NamedLayout:
        """Apply the profile to these devices, with the tool's checks in the tool's order."""
        skipped = set(self.skipped_gpus.ids)
        if beyond := [each for each in sorted(skipped) if each >= target.count]:
            return _refused(f"it skips GPU {beyond[0]}, and there are {target.count}")
        assigned = sum(each.num_gpus_assigned for each in self.profiles)
        if assigned + len(self.skipped_gpus.ids) != target.count:
            skips = f" and skips {len(skipped)}" if skipped else ""
            return _refused(f"it assigns {assigned} GPUs{skips}, and there are {target.count}")
        if len({each.memory_partition for each in self.profiles}) > 1:
            return _refused("it mixes memory modes, and all GPUs of a node have the same")
        try:
            modes = [layout(target.geometry, each.name) for each in self.profiles]
        except LayoutError as unknown:
            return _refused(str(unknown))
        free = (index for index in range(target.count) if index not in skipped)
        parts: dict[int, Parts] = {}
        for each, mode in zip(self.profiles, modes, strict=True):
            parts |= dict.fromkeys(islice(free, each.num_gpus_assigned), mode)
        return NamedLayout(parts, target.refusal(parts.values()))


class Services(Section):
    """Services of the host."""

    names: list[Text] = []
    """Their names."""


class DeviceConfigFile(Section):
    """device-config-manager's `config.json`."""

    profiles: Annotated[dict[str, Profile], Field(alias=KEY)]
    """Profiles by name."""
    gpu_client_systemd_services: Services = Services()
    """Services that the tool stops; virtual devices need none."""

    def layouts(self, target: LayoutTarget) -> dict[str, NamedLayout]:
        """Apply each profile to these devices."""
        return {name: profile.layout(target) for name, profile in self.profiles.items()}


def _refused(why: str) -> NamedLayout:
    return NamedLayout({}, why)


_WORD = r"[a-zA-Z]([a-zA-Z0-9.]*[a-zA-Z0-9])?"
_PROFILE = re.compile(rf"([0-9]+c\.)?[0-9]+g\.[0-9]+gb([+-]{_WORD}(,{_WORD})*)?")
_PCI_ID = re.compile(r"(0x[0-9a-f]{1,8}|0b[01]{1,32}|[0-9]{1,10})", re.IGNORECASE)


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _devices(value: object) -> object:
    if value == "all" or isinstance(value, (list, tuple)):
        return None if value == "all" else value
    return refuse(f"expected all, or a list of indices, got {described(value)}")


def _mig_devices(value: object) -> object:
    if not isinstance(value, dict):
        refuse(f"expected profiles and how many of each, got {described(value)}", "such as {1g.5gb: 7}")
    hint = "expected a name such as 1g.5gb or 1g.10gb+me"
    refuse_items("mig-devices", value, _profile_problem, hint, at=lambda _, name: (name, "[key]"))
    return counts_of(value)


def _profile_problem(name: str) -> str:
    return "" if _PROFILE.fullmatch(name) else f"{name!r} is no profile as NVIDIA names them"


class GpuConfig(Section):
    """The configuration of some GPUs of a node."""

    model_config = ConfigDict(alias_generator=_kebab)

    devices: Annotated[tuple[Whole, ...] | None, BeforeValidator(_devices)]
    """Which GPUs: all (kept as None), or a list of indices."""
    mig_enabled: Flag
    """Whether MIG is on."""
    mig_devices: Annotated[dict[str, int], BeforeValidator(_mig_devices)] | None = None
    """Profiles, and how many of each."""
    device_filter: Annotated[list[Text], OneOrMany()] = []
    """PCI device ids of the models that are meant, such as 0x20B010DE."""

    @model_validator(mode="after")
    def _check(self) -> "GpuConfig":
        if self.mig_enabled and self.mig_devices is None:
            refuse("'mig-devices' is missing, and mig-enabled is true", "write mig-devices: {} for a GPU without any")
        if not self.mig_enabled and self.mig_devices:
            refuse("mig-devices are given, and mig-enabled is false", "remove one of them")
        return self

    @property
    def parts(self) -> Parts:
        """The partitions of each of these GPUs."""
        return repeated(self.mig_devices or {}) if self.mig_enabled else None

    def is_for(self, pci_id: str) -> bool:
        """Whether it is for a model with this PCI device id."""
        filters = [each for each in self.device_filter if each]
        return not filters or (pci_id != "" and any(_matches(each, pci_id) for each in filters))

    def indices(self, target: LayoutTarget) -> Iterable[int]:
        """Return the indices of the devices that it is for."""
        if not self.is_for(target.pci_id):
            return ()
        return [index for index in range(target.count) if self.devices is None or index in self.devices]


class MigPartedFile(Section):
    """mig-parted's file."""

    model_config = ConfigDict(alias_generator=_kebab)

    version: Literal["v1"]
    """Version of the form: v1."""
    mig_configs: Annotated[
        dict[str, Annotated[list[GpuConfig], not_empty(hint="write at least one entry with devices")]],
        not_empty("there is no configuration", "name at least one"),
    ]
    """Configurations by name."""

    def layouts(self, target: LayoutTarget) -> dict[str, NamedLayout]:
        """Apply each configuration to these devices."""
        return {name: _layout(configs, target) for name, configs in self.mig_configs.items()}


def _layout(configs: Iterable[GpuConfig], target: LayoutTarget) -> NamedLayout:
    parts: dict[int, Parts] = {}
    for config in configs:
        for index in config.indices(target):
            if index in parts and (parts[index] is None) is not (config.parts is None):
                return NamedLayout({}, f"device {index} would be both with MIG and without")
            parts[index] = config.parts
    return NamedLayout(parts, target.refusal(parts.values()))


def _matches(wanted: str, pci_id: str) -> bool:
    """Whether a filter, `<device and vendor>[:<those of the board>]`, matches the id of a model.

    As in NVIDIA's tool, an id that is not a number matches nothing.
    """
    model, _, board = wanted.partition(":")
    has_model, _, has_board = pci_id.partition(":")
    return _number(model) == _number(has_model) is not None and (
        not board or _number(board) == _number(has_board) is not None
    )


def _number(text: str) -> int | None:
    return int(text, 0) if _PCI_ID.fullmatch(text) else None


# --- files -----------------------------------------------------------------------------------------------------------

Form = MigPartedFile | DeviceConfigFile


def layouts_in(text: FileText, target: LayoutTarget) -> dict[str, NamedLayout]:
    """Apply the file's layouts to these devices. Raises ConfigError with all of its problems."""
    return _form(text).layouts(target)


@functools.lru_cache(maxsize=8)  # several entries have the same file
def _form(text: FileText) -> Form:
    """Validate a file. Raises ConfigError with every problem of the file."""
    document = read_text(text.text, text.file)
    model: type[Form] = DeviceConfigFile if KEY in document.root else MigPartedFile
    return checked(document, model)[1]
