"""The block `dra` of an entry to its `DraSpec`: the driver that publishes its devices, and what it says of them."""

from ..model import names as slice_syntax
from ..model.device import IdStyle
from ..model.dra import Dra, DraPartitions, DraSpec
from ..model.names import domain_and_name
from ..model.problem import KeyPath
from ..model.sources import VirtualSource
from ..planning.partitions import MAX_COUNTERS, counters
from .entry import Entry
from .messages import ProblemReport
from .virtual_block import ResolvedSource

_NVIDIAS_COUNTERS = 7  # of engines, multiprocessors and memory, whether a geometry needs them or not
_MOST_CAPACITIES = 16  # with a device's own there is room for them and for attributes
_DRIVERS = {"nvidia.com": "gpu.nvidia.com", "amd.com": "gpu.amd.com"}
"""What makers call their drivers, by the domain under which their device plugins advertise."""


def dra_spec(model: Entry, resolved: ResolvedSource, path: KeyPath, report: ProblemReport) -> DraSpec:
    """What is published of the entry's devices. With errors in the report, the value is of no use."""
    block = model.dra or Dra()
    at = (*path, "dra")
    if block.partitions is DraPartitions.DYNAMIC and not resolved.lacks_preset:
        _check_dynamic(resolved, path, report)
    driver = block.driver or _default_driver(model, resolved, path, report)
    for key, what, names in (("attributes", "attribute", block.attributes), ("capacity", "capacity", block.capacity)):
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(slice_syntax.qualified(name, driver), name)
            if other != name:
                message = (
                    f"{other!r} and {name!r} are the same {what}: a name without a domain is in that of the driver"
                )
                report.key_error((*at, key, name), message, "give one of them")
    if len(block.attributes) > slice_syntax.MAX_ENTRIES:
        most = slice_syntax.MAX_ENTRIES
        message = f"{len(block.attributes)} attributes; a device in a ResourceSlice has at most {most}, with its own"
        report.error((*at, "attributes"), message)
    if len(block.capacity) > _MOST_CAPACITIES:
        message = f"{len(block.capacity)} capacities; at most {_MOST_CAPACITIES} can be given"
        report.error((*at, "capacity"), message)
    is_dynamic = block.partitions is DraPartitions.DYNAMIC
    for name in (name for name, each in block.capacity.items() if is_dynamic and each.request_policy):
        message = "claims do not share devices whose partitions are dynamic"
        report.key_error((*at, "capacity", name, "requestPolicy"), message, "take it out, or set partitions to static")
    has_fixed_mode = is_dynamic and _is_ampere(resolved)
    if block.mig_enabled is not None and not has_fixed_mode and not resolved.lacks_preset:
        message = "has no effect here: it is for NVIDIA's Ampere presets with partitions: dynamic"
        report.key_error((*at, "migEnabled"), message, "take it out")
    return DraSpec(
        driver=driver,
        block=block,
        mig_enabled=block.mig_enabled is not False if has_fixed_mode else None,
        extended_resource=_is_nvidia(resolved) if block.extended_resource is None else block.extended_resource,
    )


def _default_driver(model: Entry, resolved: ResolvedSource, path: KeyPath, report: ProblemReport) -> str:
    maker = resolved.source.maker_resource if isinstance(resolved.source, VirtualSource) else ""
    domain = domain_and_name(model.resource)[0]
    driver = _DRIVERS.get(domain_and_name(maker)[0], domain)
    if problem := slice_syntax.driver_problem(driver):
        report.error((*path, "resource"), f"no driver can be named after the domain: {problem}", "give dra.driver")
    return driver


def _is_nvidia(resolved: ResolvedSource) -> bool:
    return isinstance(resolved.source, VirtualSource) and resolved.source.id_style is IdStyle.NVIDIA


def _is_ampere(resolved: ResolvedSource) -> bool:
    source = resolved.source
    return (
        isinstance(source, VirtualSource) and _is_nvidia(resolved) and source.attributes.get("architecture") == "ampere"
    )


def _check_dynamic(resolved: ResolvedSource, path: KeyPath, report: ProblemReport) -> None:
    at = (*path, "dra", "partitions")
    if resolved.geometry is None:
        hint = "give virtual.partitioning, or a preset that has partitions"
        report.error(at, "these devices cannot be partitioned", hint)
    elif resolved.geometry.whole_device:
        message = "these devices are cut as a whole, in one mode, which the counters of ResourceSlices cannot say"
        report.error(at, message, "use static, with the entry's partitions")
    else:
        room = MAX_COUNTERS - (_NVIDIAS_COUNTERS if _is_nvidia(resolved) else 0)
        needed = len(counters(resolved.geometry).all)
        if needed > room:
            message = (
                f"these devices need {needed} counters for their slices and limits, and a ResourceSlice has {room}"
            )
            report.error(at, message, "use static, or a partitioning with fewer slices")
