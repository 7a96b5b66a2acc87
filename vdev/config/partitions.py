"""The keys `partitioning` and `partitions`: how devices can be partitioned, and which partitions an entry asks for.

Partitions are placed here only to refuse lists that the hardware would refuse.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ..errors import ConfigError
from ..model import names
from ..model.geometry import (
    PIN,
    Geometry,
    LayoutError,
    NamedLayout,
    PartitionChoice,
    generated,
    layout,
    layouts_of,
    nearest,
    resource_suffix,
)
from ..model.problem import KeyPath, listed
from ..model.scalars import index_range
from ..model.section import Flaw
from ..model.virtual import VirtualDevices
from ..planning.partitions import place
from .layouts import Subject, layouts_in
from .loader import UserFiles
from .messages import ProblemReport

_REST = ("*", "all")  # the keys for all devices that no other key names
_SHOWN = 3  # layouts that a warning names


# --- how devices can be partitioned -----------------------------------------------------------------------------------


def check_partitioning(geometry: Geometry | None, path: KeyPath, report: ProblemReport) -> bool:
    """Report contradictions in a block `partitioning`. Returns whether there are none."""
    faults = (list(_profile_faults(geometry)) or list(_layout_faults(geometry))) if geometry else []
    for fault in faults:
        report.error((*path, *fault.at), fault.message, fault.hint)
    return not faults


def _profile_faults(whole: Geometry) -> Iterator[Flaw]:
    if not whole.profiles:
        yield Flaw(("profiles",), "a device without profiles cannot be cut", "name at least one")
    suffixes: dict[str, str] = {}
    for name, profile in whole.profiles.items():
        here = ("profiles", name)
        suffix = resource_suffix(whole, name)
        if PIN in name or names.resource_name_problem(f"example.com/{suffix}"):
            yield Flaw(here, f"{name!r} names the resource <domain>/{suffix}, which Kubernetes would refuse")
        elif other := suffixes.get(suffix):
            yield Flaw(here, f"{name!r} and {other!r} would name the same resource, <domain>/{suffix}")
        suffixes[suffix] = name
        if profile.slices > whole.slices:
            yield Flaw((*here, "slices"), f"{profile.slices} slices do not fit a device of {whole.slices}")
        elif profile.placements is not None:
            yield from _placement_faults(name, profile.placements, whole.slices - profile.slices)
        yield from _compute_faults(whole, here, profile.compute)


def _compute_faults(whole: Geometry, here: tuple[str, str], compute: int | None) -> Iterator[Flaw]:
    if whole.compute is None and compute is not None:
        yield Flaw((*here, "compute"), "the block does not say how many compute slices the device has")
    elif whole.compute is not None and compute is None:
        yield Flaw(here, f"the device has {whole.compute} compute slices, so each profile must say how many it takes")
    elif whole.compute is not None and compute is not None and compute > whole.compute:
        yield Flaw((*here, "compute"), f"{compute} compute slices do not fit a device of {whole.compute}")


def _layout_faults(whole: Geometry) -> Iterator[Flaw]:
    own = layouts_of(whole.model_copy(update={"layouts": {}}))
    for name, profiles in whole.layouts.items():
        here: tuple[str | int, ...] = ("layouts", name)
        if name in own:
            yield Flaw(here, f"{name!r} exists for every device with this profile", "choose another name")
            continue
        try:
            place(whole, profiles)
        except LayoutError as clash:
            item = () if clash.position is None else (clash.position,)
            yield Flaw((*here, *item), str(clash), clash.hint)


def _placement_faults(name: str, placements: tuple[int, ...], last: int) -> Iterator[Flaw]:
    here = ("profiles", name, "placements")
    if not placements:
        yield Flaw(here, f"{name} could start nowhere", "leave the key out to let it start wherever it fits")
    for number, start in enumerate(placements):
        if start > last:
            yield Flaw((*here, number), f"{name} cannot start at slice {start}: it fits at 0 to {last}")
        elif start in placements[:number]:
            yield Flaw((*here, number), f"slice {start} is listed twice")


# --- the partitions of an entry ---------------------------------------------------------------------------------------


def partitions(
    wanted: Mapping[str, str | tuple[str, ...]],
    geometry: Geometry | None,
    count: int,
    path: KeyPath,
    report: ProblemReport,
) -> dict[int, tuple[str, ...]]:
    """Return profiles by device index, with layouts resolved. `all` is for devices that no other key names."""
    if geometry is None:
        if wanted:
            _cannot_be_cut(path, report)
        return {}
    result: dict[int, tuple[str, ...]] = {}
    named: dict[int, str] = {}
    if wanted.keys() >= {*_REST}:
        message = "'all' and '*' are the same: the devices that no other key names"
        report.key_error((*path, "*"), message, "remove one of them")
    for key, value in sorted(wanted.items(), key=lambda item: item[0] in _REST):
        here = (*path, key)
        profiles = _profiles(geometry, value, here, report)
        if key in _REST:
            result |= dict.fromkeys((index for index in range(count) if index not in named), profiles)
            continue
        indices = index_range(key)
        if not indices:
            report.key_error(here, f"the range {key} is empty", "write the lower index first")
        elif indices[-1] >= count:
            message = f"there is no device {max(indices[0], count)}; the entry has {count}"
            report.key_error(here, message, f"expected 0 to {count - 1}")
        for index in indices[:count]:
            if index in named:
                message = f"device {index} already gets its partitions from {named[index]!r}"
                report.key_error(here, message, "name each device once")
                break
            named[index] = key
            result[index] = profiles
    return result


def _cannot_be_cut(path: KeyPath, report: ProblemReport) -> None:
    """Report `partitions` at `path` of devices that cannot be partitioned."""
    hint = "give virtual.partitioning, or a preset that has partitions"
    report.key_error(path, "these devices cannot be partitioned", hint)


def _profiles(
    geometry: Geometry, value: str | tuple[str, ...], path: KeyPath, report: ProblemReport
) -> tuple[str, ...]:
    """Return the profiles of a key. A list that cannot be placed is reported at the item that does not fit."""
    try:
        profiles = layout(geometry, value) if isinstance(value, str) else value
        place(geometry, profiles)
    except LayoutError as clash:
        here = path if clash.position is None else (*path, clash.position)
        if here in report.document.values or clash.position is None:
            report.error(here, str(clash), clash.hint)
        else:
            report.key_error((*path, value[clash.position]), str(clash), clash.hint)  # of a mapping to numbers
        return ()
    return profiles


# --- a layout that a label of the node selects ------------------------------------------------------------------------


def chosen_layouts(
    choice: PartitionChoice, source: VirtualDevices | None, path: KeyPath, files: UserFiles, report: ProblemReport
) -> PartitionChoice:
    """Return the choice with the layouts that the label can select for the devices of `source`.

    A layout that does not fit the devices is kept, and fails when it is selected, because one file is for many models.
    With errors in the report, the result is of no use.
    """
    if source is None or source.partitioning is None:
        _cannot_be_cut(path, report)
        return choice
    subject = Subject(source.partitioning, source.count, source.attributes.get("pciDeviceId", ""))
    layouts = generated(subject.geometry, subject.count)
    if choice.file is not None:
        at = (*path, "file")
        file = Path(report.document.value_place(at).file).parent / choice.file
        try:
            layouts = layouts_in(files.layout(file), subject)
        except ConfigError as bad:
            report.errors_elsewhere(at, bad)
            return choice
        _warn_of_misfits(layouts, file, at, report)
    if wrong := names.key_problem(choice.state_label):
        message = f"there is no label for the state of the layout: {wrong}"
        report.error((*path, "fromLabel"), message, "use a shorter label")
    if choice.default:
        _check_default(choice.default, layouts, (*path, "default"), report)
    return choice.among(layouts)


def _check_default(name: str, layouts: Mapping[str, NamedLayout], path: KeyPath, report: ProblemReport) -> None:
    if name not in layouts:
        report.error(path, f"unknown layout {name!r}", listed(layouts, nearest(name, layouts), lead="known:"))
    elif refusal := layouts[name].refusal:
        report.error(path, f"the layout {name!r} does not fit: {refusal}", "choose one that fits these devices")


def _warn_of_misfits(layouts: Mapping[str, NamedLayout], file: Path, path: KeyPath, report: ProblemReport) -> None:
    """Warn once about all layouts that do not fit: a file for many models has dozens."""
    misfits = [f"{name!r} ({layout.refusal})" for name, layout in layouts.items() if layout.refusal]
    if misfits:
        more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        message = f"{len(misfits)} of the {len(layouts)} layouts in {file} do not fit these devices"
        report.warning(path, f"{message}: {', '.join(misfits[:_SHOWN])}{more}", "a label that names one of them fails")
