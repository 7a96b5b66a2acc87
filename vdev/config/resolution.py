"""Completes an entry with the values of its preset, its layouts and the makers' conventions.

Values in the file take precedence. The result is the same model, and no default depends on anything else any more.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import ConfigError
from ..model import names
from ..model.dra import ClaimApi, Dra, DraPartitions
from ..model.entry import Entry, OnFailure
from ..model.geometry import PartitionChoice
from ..model.names import domain_and_name
from ..model.problem import KeyPath
from ..model.section import Section
from ..model.sources import GroupBy, needed
from ..model.telemetry import EntryTelemetry
from ..model.template import Template, TemplateError, parse
from ..model.virtual import NO_PRESET, Preset, VirtualDevices
from ..planning.partitions import MAX_COUNTERS, counters
from .entry_checks import check_links, check_numa
from .loader import FileTexts
from .messages import ProblemReport
from .partitions import check_partitioning, chosen_layouts, partitions
from .presets import load_preset

_NVIDIAS_COUNTERS = 7  # of engines, multiprocessors and memory, whether a geometry needs them or not
_MOST_CAPACITIES = 16  # with a device's own there is room for them and for attributes
_DRIVERS = {"nvidia.com": "gpu.nvidia.com", "amd.com": "gpu.amd.com"}
"""What makers call their drivers, by the domain under which their device plugins advertise."""


def resolved(entry: Entry, files: FileTexts, report: ProblemReport, *, is_measured: bool) -> Entry:
    """Return the entry with the values of its preset and of its file of layouts, one of `files`.

    `is_measured`: sensors are on. Real devices have sensors only if the entry gives `telemetry`. With errors in the
    report, ignore the result.
    """
    given = entry
    entry = entry.model_copy(
        update={
            "glob": needed(entry.glob),
            "usb": needed(entry.usb),
            "group_by": entry.group_by or GroupBy.POSITION,
            "if_release_fails": entry.if_release_fails or OnFailure.BLOCK,
        }
    )
    if entry.virtual is not None:
        virtual = _virtual(entry.virtual, files, report.at("virtual"))
        if virtual is None:
            return entry  # without its preset, nothing more can be checked
        environment = entry.visible_devices_env or virtual.model.visible_devices_env
        entry = entry.model_copy(update={"virtual": virtual, "visible_devices_env": environment})
    _check_templates(given, entry.attribute_names, report)
    if entry.smi and entry.maker is None:
        hint = "leave smi out, or use a preset of NVIDIA or AMD"
        report.error("smi", "these devices have no smi: only presets of NVIDIA and AMD do", hint)
    has_sensors = is_measured and (entry.virtual is not None or entry.telemetry is not None)
    entry = entry.model_copy(
        update={
            "dra": _dra(entry, report) if ClaimApi.DRA in entry.advertise else None,
            "telemetry": (entry.telemetry or EntryTelemetry()) if has_sensors else None,
            "smi": is_measured if entry.smi is None else entry.smi,
        }
    )
    at_partitions = report.at("partitions")
    if isinstance(entry.wanted_partitions, PartitionChoice):
        choice = chosen_layouts(entry.wanted_partitions, entry.virtual, files, at_partitions)
        return entry.model_copy(update={"wanted_partitions": choice}).partitioned(choice.initial)
    if not entry.wanted_partitions:
        return entry
    count = entry.virtual.count if entry.virtual else 0
    return entry.partitioned(partitions(entry.wanted_partitions, entry.geometry, count, at_partitions))


# --- virtual devices --------------------------------------------------------------------------------------------------


def _virtual(given: VirtualDevices, files: FileTexts, report: ProblemReport) -> VirtualDevices | None:
    """Return the block `virtual` with the values of its preset, or None if these are not known."""
    preset = _preset(given.preset, files, report.at("preset")) if given.preset else NO_PRESET
    own = given.partitioning
    if (own and not check_partitioning(own, report.at("partitioning"))) or preset is None:
        return None
    count = given.count if "count" in given.model_fields_set else len(given.ids) or preset.count or 1
    if given.ids and len(given.ids) != count:
        report.error("ids", f"{len(given.ids)} ids for {count} devices", "give one for each, or leave out count")
        return None
    if preset.count and count > preset.count:
        hint = "for more devices, use the preset of the device, not of a whole node"
        report.error("count", f"the preset {preset.name!r} has only {preset.count} devices, not {count}", hint)
    if "numa" in given.model_fields_set:
        check_numa(given.numa, count, report.at("numa"))
    if given.link_rows:
        check_links(given.link_rows, count, report.at("links"))
    return given.resolved(preset, count=count)


def _preset(name: str, files: FileTexts, report: ProblemReport) -> Preset | None:
    try:
        return load_preset(name, files)
    except ConfigError as bad:
        for problem in bad.problems:
            if problem.where:
                report.error((), f"the preset {name!r} is wrong: {problem}")
            else:  # there is none
                report.error((), problem.message, problem.hint)
    return None


# --- templates --------------------------------------------------------------------------------------------------------


def _check_templates(entry: Entry, attributes: frozenset[str], report: ProblemReport) -> None:
    """Report placeholders for attributes that the entry's devices do not have. They have `attributes`."""
    texts = [(at, each.source, attributes) for at, each in _templates(entry, ())]
    texts.append((("resource",), entry.resource, attributes))
    real: list[tuple[KeyPath, str]]
    real = [(("glob", number), item.container_path) for number, item in enumerate(entry.glob)]
    real += [(("usb", number), selector.container_path) for number, selector in enumerate(entry.usb)]
    if entry.sysfs:
        real.append((("sysfs",), entry.sysfs.container_path))
    # The paths of real devices' nodes are rendered by discovery, with the node as `base`.
    texts += (((*at, "containerPath"), text, attributes | {"base"}) for at, text in real)
    for at, text, known in texts:
        try:
            parse(text, attributes=known)
        except TemplateError as error:
            report.error(at, str(error))


def _templates(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, Template]]:
    """Yield every template in the value, with its place."""
    inner: Iterable[tuple[Any, object]] = ()
    match value:
        case Template():
            yield path, value
        case Section():
            inner = value.written.items()
        case dict():
            inner = value.items()
        case list() | tuple():
            inner = enumerate(value)
    for key, each in inner:
        yield from _templates(each, (*path, key))


# --- Dynamic Resource Allocation --------------------------------------------------------------------------------------


def _dra(entry: Entry, report: ProblemReport) -> Dra:
    """Return the block `dra` with the driver that publishes the devices, and the conventions of that driver."""
    block, here = entry.dra or Dra(), report.at("dra")
    is_dynamic = block.partitions is DraPartitions.DYNAMIC
    if is_dynamic:
        _check_dynamic(entry, here.at("partitions"))
    driver = block.driver or _default_driver(entry, report)
    _check_names(block, driver, here)
    for name in (name for name, each in block.capacity.items() if is_dynamic and each.request_policy):
        message = "claims do not share devices whose partitions are dynamic"
        here.key_error(("capacity", name, "requestPolicy"), message, "take it out, or set partitions to static")
    # NVIDIA's Ampere GPUs cannot change their MIG mode without a reset.
    is_ampere = entry.is_nvidia and entry.virtual and entry.virtual.attributes.get("architecture") == "ampere"
    has_fixed_mode = is_dynamic and is_ampere
    if block.mig_enabled is not None and not has_fixed_mode:
        message = "has no effect here: it is for NVIDIA's Ampere presets with partitions: dynamic"
        here.key_error("migEnabled", message, "take it out")
    extended = entry.is_nvidia if block.extended_resource is None else block.extended_resource
    mig_enabled = block.mig_enabled is not False if has_fixed_mode else None
    return block.model_copy(update={"driver": driver, "mig_enabled": mig_enabled, "extended_resource": extended})


def _check_names(block: Dra, driver: str, report: ProblemReport) -> None:
    """Report attributes and capacities that are given twice, or of which there are too many."""
    for key, what, given in (("attributes", "attribute", block.attributes), ("capacity", "capacity", block.capacity)):
        first: dict[str, str] = {}
        for name in given:
            other = first.setdefault(names.qualified(name, driver), name)
            if other != name:
                message = (
                    f"{other!r} and {name!r} are the same {what}: a name without a domain is in that of the driver"
                )
                report.key_error((key, name), message, "give one of them")
    if len(block.attributes) > names.MAX_ENTRIES:
        most = names.MAX_ENTRIES
        message = f"{len(block.attributes)} attributes; a device in a ResourceSlice has at most {most}, with its own"
        report.error("attributes", message)
    if len(block.capacity) > _MOST_CAPACITIES:
        report.error("capacity", f"{len(block.capacity)} capacities; at most {_MOST_CAPACITIES} can be given")


def _default_driver(entry: Entry, report: ProblemReport) -> str:
    maker = entry.virtual.model.resource if entry.virtual else ""
    domain = domain_and_name(entry.resource)[0]
    driver = _DRIVERS.get(domain_and_name(maker)[0], domain)
    if problem := names.driver_problem(driver):
        report.error("resource", f"no driver can be named after the domain: {problem}", "give dra.driver")
    return driver


def _check_dynamic(entry: Entry, report: ProblemReport) -> None:
    if entry.geometry is None:
        hint = "give virtual.partitioning, or a preset that has partitions"
        report.error((), "these devices cannot be partitioned", hint)
    elif entry.geometry.whole_device:
        message = "all partitions of such a device are alike, which the counters of ResourceSlices cannot express"
        report.error((), message, "use static, with the entry's partitions")
    else:
        room = MAX_COUNTERS - (_NVIDIAS_COUNTERS if entry.is_nvidia else 0)
        needed = len(counters(entry.geometry).all)
        if needed > room:
            message = (
                f"these devices need {needed} counters for their slices and limits, and a ResourceSlice has {room}"
            )
            report.error((), message, "use static, or a partitioning with fewer slices")
