"""The keys `partitioning` and `partitions`: how devices can be partitioned, and which partitions an entry has.

An entry lists them, or a label of the node selects a layout. The layouts come from the devices, or from a file in the
form of mig-parted or device-config-manager.

This module places partitions only to refuse lists that the hardware would refuse.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from ..errors import ConfigError
from ..model import names
from ..model.geometry import (
    PIN,
    Geometry,
    LayoutError,
    NamedLayout,
    PartCount,
    PartitionChoice,
    Parts,
    Profile,
    generated,
    layout,
    layouts_of,
    nearest,
    repeated,
    resource_suffix,
)
from ..model.problem import listed
from ..model.scalars import Flag, Index, OneOrMany, Text, Whole, index_range, matching, not_empty
from ..model.section import Section, described, refuse
from ..model.virtual import VirtualDevices
from ..planning.partitions import place
from .loader import FileText, FileTexts, read_text
from .messages import ProblemReport, checked

_REST = ("*", "all")  # the keys for all devices that no other key names


# --- how devices can be partitioned -----------------------------------------------------------------------------------


def check_partitioning(geometry: Geometry, report: ProblemReport) -> bool:
    """Report contradictions in a block `partitioning`. Returns False if there are any."""
    before = len(report.problems)
    if not geometry.profiles:
        report.error("profiles", "a device without profiles cannot be partitioned", "name at least one")
    suffixes: dict[str, str] = {}
    for name, profile in geometry.profiles.items():
        here = report.at("profiles", name)
        suffix = resource_suffix(geometry, name)
        other = suffixes.setdefault(suffix, name)
        if PIN in name or names.resource_name_problem(f"example.com/{suffix}"):
            here.error((), f"{name!r} names the resource <domain>/{suffix}, which Kubernetes would refuse")
        elif other != name:
            here.error((), f"{name!r} and {other!r} would name the same resource, <domain>/{suffix}")
        _check_slices(geometry, name, profile, here)
    if len(report.problems) == before:
        own = layouts_of(geometry.model_copy(update={"layouts": {}}))
        for name, profiles in geometry.layouts.items():
            here = report.at("layouts", name)
            if name in own:
                here.error((), f"{name!r} exists for every device with this profile", "choose another name")
                continue
            try:
                place(geometry, profiles)
            except LayoutError as clash:
                here.error(() if clash.position is None else clash.position, str(clash), clash.hint)
    return len(report.problems) == before


def _check_slices(whole: Geometry, name: str, profile: Profile, report: ProblemReport) -> None:
    """Check that a profile fits the device, in memory slices and in compute slices."""
    last = whole.slices - profile.slices
    if last < 0:
        report.error("slices", f"{profile.slices} slices do not fit a device of {whole.slices}")
    elif profile.placements == ():
        hint = "leave the key out to let it start wherever it fits"
        report.error("placements", f"{name} has no position where it could start", hint)
    for number, start in enumerate((profile.placements or ()) if last >= 0 else ()):
        if start > last:
            report.error(("placements", number), f"{name} cannot start at slice {start}: it fits at 0 to {last}")
        elif start in (profile.placements or ())[:number]:
            report.error(("placements", number), f"slice {start} is listed twice")
    if whole.compute is None and profile.compute is not None:
        report.error("compute", "the block does not say how many compute slices the device has")
    elif whole.compute is not None and profile.compute is None:
        report.error((), f"the device has {whole.compute} compute slices, so each profile must say how many it takes")
    elif whole.compute is not None and profile.compute is not None and profile.compute > whole.compute:
        report.error("compute", f"{profile.compute} compute slices do not fit a device of {whole.compute}")


# --- the partitions of an entry ---------------------------------------------------------------------------------------


def partitions(
    wanted: Mapping[str, str | tuple[str, ...]], geometry: Geometry | None, count: int, report: ProblemReport
) -> dict[int, tuple[str, ...]]:
    """Return profiles by device index, with layouts resolved. The key `all` is for devices without another key."""
    if geometry is None:
        _cannot_be_partitioned(report)
        return {}
    result: dict[int, tuple[str, ...]] = {}
    named: dict[int, str] = {}
    if wanted.keys() >= {*_REST}:
        report.key_error("*", "'all' and '*' are the same: the devices that no other key names", "remove one of them")
    for key, value in sorted(wanted.items(), key=lambda item: item[0] in _REST):
        here = report.at(key)
        profiles = _profiles(geometry, value, here)
        if key in _REST:
            result |= dict.fromkeys((index for index in range(count) if index not in named), profiles)
            continue
        indices = index_range(key)
        if not indices:
            here.key_error((), f"the range {key} is empty", "write the lower index first")
        elif indices[-1] >= count:
            message = f"there is no device {max(indices[0], count)}; the entry has {count}"
            here.key_error((), message, f"expected 0 to {count - 1}")
        for index in indices[:count]:
            if index in named:
                message = f"device {index} already gets its partitions from {named[index]!r}"
                here.key_error((), message, "name each device once")
                break
            named[index] = key
            result[index] = profiles
    return result


def _cannot_be_partitioned(report: ProblemReport) -> None:
    hint = "give virtual.partitioning, or a preset that has partitions"
    report.key_error((), "these devices cannot be partitioned", hint)


def _profiles(geometry: Geometry, value: str | tuple[str, ...], report: ProblemReport) -> tuple[str, ...]:
    """Return the profiles of a key. A list that cannot be placed is reported at the item that does not fit."""
    try:
        profiles = layout(geometry, value) if isinstance(value, str) else value
        place(geometry, profiles)
    except LayoutError as clash:
        if clash.position is None or report.has(clash.position):
            report.error(() if clash.position is None else clash.position, str(clash), clash.hint)
        else:
            report.key_error(value[clash.position], str(clash), clash.hint)  # of a mapping to numbers
        return ()
    return profiles


# --- a layout that a label of the node selects ------------------------------------------------------------------------


def chosen_layouts(
    choice: PartitionChoice, source: VirtualDevices | None, files: FileTexts, report: ProblemReport
) -> PartitionChoice:
    """Return the choice with the layouts that the label can select for the devices of `source`.

    A layout that does not fit the devices is kept and fails when it is selected, because one file may be for many
    models. If there are errors in the report, ignore the result.
    """
    if source is None or source.partitioning is None:
        _cannot_be_partitioned(report)
        return choice
    layouts = generated(source.partitioning, source.count)
    if choice.file is not None:
        file = Path(report.place("file").file).parent / choice.file
        try:
            layouts = _layouts_in(files.layout(file), source, source.partitioning)
        except ConfigError as bad:
            report.errors_in_file("file", bad)
            return choice
    if wrong := names.key_problem(choice.state_label):
        report.error("fromLabel", f"there is no label for the state of the layout: {wrong}", "use a shorter label")
    name = choice.default
    if name and name not in layouts:
        report.error("default", f"unknown layout {name!r}", listed(layouts, nearest(name, layouts), lead="known:"))
    elif name and (refusal := layouts[name].refusal):
        report.error("default", f"the layout {name!r} does not fit: {refusal}", "choose one that fits these devices")
    return choice.model_copy(update={"layouts": layouts})


# --- files of layouts -------------------------------------------------------------------------------------------------

_PROFILES = "gpu-config-profiles"  # a key that mig-parted's files do not have


class Mode(Section):
    """A mode, such as CPX with NPS4, and how many GPUs have it."""

    compute_partition: Text = ""
    memory_partition: Text = ""
    num_gpus_assigned: Annotated[Index, Field(alias="numGPUsAssigned")] = 0


class ModeProfile(Section):
    """The modes of a node's GPUs. Those that are not skipped get them in order."""

    skipped_gpus: Annotated[dict[Literal["ids"], list[Index]], Field(alias="skippedGPUs")] = {}
    profiles: list[Mode] = []

    def layout(self, geometry: Geometry, count: int) -> NamedLayout:
        """Apply the profile to these devices. It must be for exactly as many, as in the tool."""
        skipped = self.skipped_gpus.get("ids", [])
        free = [index for index in range(count) if index not in skipped]
        assigned = sum(each.num_gpus_assigned for each in self.profiles)
        if assigned != len(free) or assigned + len(skipped) != count:
            skips = f" and skips {len(skipped)}" if skipped else ""
            return NamedLayout({}, f"it assigns {assigned} GPUs{skips}, and there are {count}")
        if len({each.memory_partition for each in self.profiles}) > 1:
            return NamedLayout({}, "it mixes memory modes, and all GPUs of a node have the same")
        modes: list[Parts] = []
        try:
            for each in self.profiles:
                mode = layout(geometry, f"{each.compute_partition}_{each.memory_partition}".lower())
                modes += [mode] * each.num_gpus_assigned
        except LayoutError as unknown:
            return NamedLayout({}, str(unknown))
        return NamedLayout(dict(zip(free, modes, strict=True)), refusal_of(geometry, modes))


class DeviceConfigFile(Section):
    """device-config-manager's `config.json`."""

    profiles: Annotated[dict[str, ModeProfile], Field(alias=_PROFILES)]
    """Profiles by name."""
    gpu_client_systemd_services: dict[Literal["names"], list[Text]] = {}
    """Services of the host that the tool stops; virtual devices need none."""


def _kebab(name: str) -> str:
    return name.replace("_", "-")


def _devices(value: object) -> object:
    if value == "all" or isinstance(value, (list, tuple)):
        return None if value == "all" else value
    return refuse(f"expected all, or a list of indices, got {described(value)}")


_WORD = r"[a-zA-Z]([a-zA-Z0-9.]*[a-zA-Z0-9])?"
_MigProfile = Annotated[
    Text,
    matching(
        rf"([0-9]+c\.)?[0-9]+g\.[0-9]+gb([+-]{_WORD}(,{_WORD})*)?",
        "a profile as NVIDIA names them, such as 1g.5gb or 1g.10gb+me",
    ),
]


class GpuConfig(Section):
    """The configuration of some GPUs of a node."""

    model_config = ConfigDict(alias_generator=_kebab)

    devices: Annotated[tuple[Whole, ...] | None, BeforeValidator(_devices)]
    """Which GPUs: all (kept as None), or a list of indices."""
    mig_enabled: Flag
    """Whether MIG is on."""
    mig_devices: dict[_MigProfile, PartCount] | None = None
    """Profiles, and how many of each."""
    device_filter: Annotated[list[Text], OneOrMany()] = []
    """PCI device ids of the models that get it, such as 0x20B010DE."""

    @model_validator(mode="after")
    def _check(self) -> Self:
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
        """Whether it is for the model with this PCI id, `<device and vendor>[:<device and vendor of the board>]`.

        A filter without a board matches all boards.
        """
        filters = [each.lower() for each in self.device_filter if each]
        return not filters or any(f"{pci_id.lower()}:".startswith(f"{each}:") for each in filters)


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


def _mig_layout(configs: Iterable[GpuConfig], geometry: Geometry, count: int, pci_id: str) -> NamedLayout:
    parts: dict[int, Parts] = {}
    for config in configs:
        if not config.is_for(pci_id):
            continue
        for index in range(count):
            if config.devices is not None and index not in config.devices:
                continue
            if index in parts and (parts[index] is None) is not (config.parts is None):
                return NamedLayout({}, f"device {index} would be both with MIG and without")
            parts[index] = config.parts
    return NamedLayout(parts, refusal_of(geometry, parts.values()))


def refusal_of(geometry: Geometry, wanted: Iterable[Parts]) -> str:
    """Return why a device cannot have one of these lists of partitions, or the empty string."""
    for parts in dict.fromkeys(wanted):
        try:
            place(geometry, parts or ())
        except LayoutError as clash:
            return str(clash)
    return ""


def _layouts_in(text: FileText, devices: VirtualDevices, geometry: Geometry) -> dict[str, NamedLayout]:
    """Apply the file's layouts to these devices. Raises ConfigError with every problem of the file."""
    document = read_text(text.text, text.file)
    if _PROFILES in document.root:
        _, modes = checked(document, DeviceConfigFile)
        return {name: each.layout(geometry, devices.count) for name, each in modes.profiles.items()}
    _, migs = checked(document, MigPartedFile)
    pci_id = devices.attributes.get("pciDeviceId", "")
    return {name: _mig_layout(each, geometry, devices.count, pci_id) for name, each in migs.mig_configs.items()}
