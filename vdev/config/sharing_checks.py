"""Checks of the section `sharing`: its items against each other, and the names of the resources that they make."""

from collections.abc import Sequence

from ..model import names
from ..model.entry import MigStrategy
from ..model.geometry import resource_suffix
from ..model.nvidia_forms import EXPECTED_DEVICES
from ..model.problem import KeyPath
from ..model.scalars import MAX_COUNT
from ..model.spec import Mps, SharedItem, Spec, TimeSlicing
from ..planning.sharing import MPS_CLIENTS
from .messages import ProblemReport


def partition_names(spec: Spec) -> frozenset[str]:
    """Return the resources that only partitions have, with the strategy `mixed`."""
    if spec.flags.mig_strategy is not MigStrategy.MIXED:
        return frozenset()
    return frozenset(
        f"{names.domain_and_name(each.resource)[0]}/{resource_suffix(each.geometry, profile)}"
        for each in spec.entries
        if each.geometry
        for profile in each.possible_profiles
    )


def check_sharing(spec: Spec, report: ProblemReport) -> None:
    model = spec.sharing_blocks
    if model.time_slicing and model.mps:
        if report.document.is_for_nvidia(("sharing", "mps")):
            report.warning(("sharing", "timeSlicing"), "timeSlicing beside mps is ignored, as by NVIDIA's plugin")
        else:
            report.at("sharing").one_at_most(("timeSlicing", "mps"), "remove one of the two blocks")
    declared = {entry.resource for entry in spec.entries} | partition_names(spec)
    for block in model.blocks:
        for number, item in enumerate(block.resources):
            _devices(item, block.resources[:number], report.of(item))
        _renames(block, declared, report)
    if model.mps:
        _mps(spec, model.mps, report)


def _devices(item: SharedItem, before: Sequence[SharedItem], report: ProblemReport) -> None:
    """Check that the list of devices names at least one, each once, and none of an item before for the resource.

    In a file for NVIDIA's plugin, a device in two items has the larger number of replicas.
    """
    lenient = item.for_nvidia
    if item.devices == ():
        instead = "every device is shared, as by NVIDIA's plugin"
        report.unless("devices", "the list of devices is empty", EXPECTED_DEVICES, instead, lenient=lenient)
    listed = item.devices if isinstance(item.devices, tuple) else ()
    for index, device in enumerate(listed):
        if device in listed[:index]:
            message = f"device {device} is listed twice"
            report.unless(("devices", index), message, "list each device once", "it counts once", lenient=lenient)
    for other in before:
        if item.name == other.name and (clash := _clash(item, other)):
            place = report.document.value_place(other.where.path)
            message = f"{clash} of {item.name} is already shared, at {place}"
            hint = "items for one resource must list different devices"
            instead = "it has the larger number of replicas, as with NVIDIA's plugin"
            report.unless("devices" if report.has("devices") else (), message, hint, instead, lenient=lenient)
            break


def _clash(item: SharedItem, other: SharedItem) -> str:
    """Return what both items share, or the empty string."""
    wanted, taken = _shared_devices(item), _shared_devices(other)
    if wanted is None:
        return "every device"
    return next((f"device {each}" for each in wanted if taken is None or each in taken), "")


def _shared_devices(item: SharedItem) -> dict[str, None] | None:
    """Return the devices of an item in order, or None for all; a count means the lowest indices."""
    if isinstance(item.devices, int):
        return dict.fromkeys(str(index) for index in range(min(item.devices, MAX_COUNT)))
    return None if item.devices is None else dict.fromkeys(item.devices)


def _renames(block: TimeSlicing, declared: set[str], report: ProblemReport) -> None:
    targets: dict[str, tuple[str, KeyPath]] = {}
    for item in block.resources:
        here, path = report.of(item), item.where.path
        target = item.rename or block.default_name(item)
        key = "rename" if item.rename else "name"
        templated = "{" in item.name
        if templated and item.name not in declared:
            hint = "write it as the entry does, or name one of the resources that it makes"
            here.error("name", f"no entry has the resource {item.name}", hint)
        if templated and item.rename:
            hint = "set renameByDefault, or give the entry another name"
            here.key_error("rename", f"rename would give one name to every resource of {item.name}", hint)
        made = target != item.name and not item.rename and not templated
        if made and (problem := names.resource_name_problem(target)):
            here.error(key, f"renameByDefault makes it {problem}", "give it a rename")
        source, first = targets.setdefault(target, (item.name, path))
        taken = []
        if target != item.name and target in declared:
            taken.append("the resource of that name")
        if source != item.name:
            taken.append(f"{source}, at {report.document.value_place(first)}")
        for other in taken:
            here.error(key, f"{item.name} shared as {target} collides with {other}", "choose another name")


def _mps(spec: Spec, mps: Mps, report: ProblemReport) -> None:
    flags = spec.flags
    if flags.mig_strategy is MigStrategy.MIXED:
        report.key_error(("sharing", "mps"), "MPS does not work with migStrategy mixed", "use timeSlicing")
    if not flags.mps_root and "mps_root" in flags.model_fields_set:
        hint = "set flags.mpsRoot, --mps-root or MPS_ROOT to the directory of the MPS daemon, or leave it out"
        report.key_error(("sharing", "mps"), "sharing with MPS needs mpsRoot", hint)
    single = flags.mig_strategy is MigStrategy.SINGLE
    partitioned = {entry.resource: entry.where.path for entry in spec.entries if single and entry.wanted_partitions}
    for item in mps.resources:
        here = report.of(item)
        if item.replicas > MPS_CLIENTS:
            message = f"{item.replicas} replicas: MPS serves at most {MPS_CLIENTS} clients of a device"
            hint, instead = f"expected 2 to {MPS_CLIENTS}, or timeSlicing", "all are offered, as by NVIDIA's plugin"
            here.unless("replicas", message, hint, instead, lenient=item.for_nvidia)
        if item.name in partitioned:
            at = report.document.key_place((*partitioned[item.name], "partitions"))
            here.error("name", f"partitions cannot be shared with MPS, and {item.name} has some, at {at}")
