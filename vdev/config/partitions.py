"""The keys `partitioning` and `partitions`: how devices can be partitioned, and which partitions an entry asks for.

Partitions are placed here only to refuse lists that the hardware would refuse.
"""

from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError
from ..model import names
from ..model.geometry import (
    PIN,
    Geometry,
    LayoutError,
    NamedLayout,
    PartitionChoice,
    Profile,
    generated,
    layout,
    layouts_of,
    nearest,
    resource_suffix,
)
from ..model.problem import listed
from ..model.scalars import index_range
from ..model.virtual import VirtualDevices
from ..planning.partitions import place
from .layouts import LayoutTarget, layouts_in
from .loader import UserFiles
from .messages import ProblemReport

_REST = ("*", "all")  # the keys for all devices that no other key names
_SHOWN = 3  # layouts that a warning names


# --- how devices can be partitioned -----------------------------------------------------------------------------------


def check_partitioning(geometry: Geometry, report: ProblemReport) -> bool:
    """Report contradictions in a block `partitioning`. Returns whether there are none."""
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
    """Return profiles by device index, with layouts resolved. `all` is for devices that no other key names."""
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
    """Report `partitions` of devices that cannot be partitioned."""
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
    choice: PartitionChoice, source: VirtualDevices | None, files: UserFiles, report: ProblemReport
) -> PartitionChoice:
    """Return the choice with the layouts that the label can select for the devices of `source`.

    A layout that does not fit the devices is kept, and fails when it is selected, because one file is for many models.
    If there are errors in the report, ignore the result.
    """
    if source is None or source.partitioning is None:
        _cannot_be_partitioned(report)
        return choice
    target = LayoutTarget(source.partitioning, source.count, source.attributes.get("pciDeviceId", ""))
    layouts = generated(target.geometry, target.count)
    if choice.file is not None:
        file = Path(report.place("file").file).parent / choice.file
        try:
            layouts = layouts_in(files.layout(file), target)
        except ConfigError as bad:
            report.errors_elsewhere("file", bad)
            return choice
        _warn_of_misfits(layouts, file, report.at("file"))
    if wrong := names.key_problem(choice.state_label):
        report.error("fromLabel", f"there is no label for the state of the layout: {wrong}", "use a shorter label")
    if choice.default:
        _check_default(choice.default, layouts, report.at("default"))
    return choice.among(layouts)


def _check_default(name: str, layouts: Mapping[str, NamedLayout], report: ProblemReport) -> None:
    if name not in layouts:
        report.error((), f"unknown layout {name!r}", listed(layouts, nearest(name, layouts), lead="known:"))
    elif refusal := layouts[name].refusal:
        report.error((), f"the layout {name!r} does not fit: {refusal}", "choose one that fits these devices")


def _warn_of_misfits(layouts: Mapping[str, NamedLayout], file: Path, report: ProblemReport) -> None:
    """Warn once about all layouts that do not fit: a file for many models has dozens."""
    misfits = [f"{name!r} ({layout.refusal})" for name, layout in layouts.items() if layout.refusal]
    if misfits:
        more = f", and {len(misfits) - _SHOWN} more" if len(misfits) > _SHOWN else ""
        message = f"{len(misfits)} of the {len(layouts)} layouts in {file} do not fit these devices"
        report.warning((), f"{message}: {', '.join(misfits[:_SHOWN])}{more}", "a label that names one of them fails")
