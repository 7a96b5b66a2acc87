"""The sharing block against itself, the flags and the resources that exist."""

from collections.abc import Mapping

from ...core.inventory.listed.sharing import MPS_CLIENTS
from ...core.model.place import KeyPath
from ...core.model.syntax import names
from ...core.spec import MigStrategy
from ..report import ProblemReport
from ..schema import config_file
from ..schema.nvidia_forms import EXPECTED_DEVICES
from ..validation import Validated
from .entries import Entries


def check_sharing(
    validated: Validated, models: Entries, partition_names: frozenset[str], report: ProblemReport
) -> None:
    """Its items among each other, and the names that they make."""
    model = validated.file.sharing
    if model.time_slicing and model.mps:
        if report.document.is_for_nvidia(("sharing", "mps")):
            report.warning(("sharing", "timeSlicing"), "timeSlicing beside mps is ignored, as by NVIDIA's plugin")
        else:
            report.one_at_most(("sharing",), ("timeSlicing", "mps"), "remove one of the two blocks")
    for key, block in (("timeSlicing", model.time_slicing), ("mps", model.mps)):
        if block is not None:
            items = list(validated.items(("sharing", key, "resources"), block.resources))
            for path, item in items:
                _devices(path, item, report)
            _overlaps(items, report)
            _renames(items, block, {model.resource for _, model in models} | partition_names, report)
    if model.mps:
        _mps(validated, models, report)


def _wrong(
    item: config_file.SharedItem, path: KeyPath, report: ProblemReport, message: str, hint: str, instead: str
) -> None:
    """An error; in a file for NVIDIA's plugin, which knows its own resources alone, a warning if it is about these."""
    if item.is_nvidias:
        report.unless_for_nvidia(path, message, hint, instead)
    else:
        report.error(path, message, hint)


def _devices(path: KeyPath, item: config_file.SharedItem, report: ProblemReport) -> None:
    """The list of devices names some, each once."""
    at = (*path, "devices")
    if item.devices == ():
        instead = "every device is shared, as by NVIDIA's plugin"
        _wrong(item, at, report, "the list of devices is empty", EXPECTED_DEVICES, instead)
    listed = item.devices if isinstance(item.devices, tuple) else ()
    for index, device in enumerate(listed):
        if device in listed[:index]:
            message = f"device {device} is listed twice"
            _wrong(item, (*at, index), report, message, "list each device once", "it counts once")


def _overlaps(items: list[tuple[KeyPath, config_file.SharedItem]], report: ProblemReport) -> None:
    """Two items for one resource must list different devices. A count means the lowest indices.

    In a file for NVIDIA's plugin they need not: a device has the larger number of replicas.
    """
    claims: dict[
        str, dict[str, KeyPath]
    ] = {}  # resource -> reference -> who shares it; "all" and "#<count>" stand for many
    for path, item in items:
        taken = claims.setdefault(item.name, {})
        wanted = _claims(item.devices)
        for claim in wanted:
            if (other := _holder(claim, taken)) is not None:
                at = (*path, "devices") if (*path, "devices") in report.document.values else path
                what = (
                    "every device" if claim == _ALL else "device 0" if claim.startswith(_COUNT) else f"device {claim}"
                )
                message = f"{what} of {item.name} is already shared, at {report.document.value_place(other)}"
                hint = "items for one resource must list different devices"
                instead = "it has the larger number of replicas, as with NVIDIA's plugin"
                _wrong(item, at, report, message, hint, instead)
                break
        for claim in wanted:
            taken.setdefault(claim, path)


_ALL, _COUNT = "all", "#"


def _claims(devices: int | tuple[str, ...] | None) -> tuple[str, ...]:
    if devices is None:
        return (_ALL,)
    return (f"{_COUNT}{devices}",) if isinstance(devices, int) else devices


def _holder(claim: str, taken: Mapping[str, KeyPath]) -> KeyPath | None:
    """The item that certainly shares the claimed device, or None."""
    if claim == _ALL or _ALL in taken:
        return next(iter(taken.values()), None) if claim == _ALL else taken[_ALL]
    if claim in taken:
        return taken[claim]
    count = int(claim.removeprefix(_COUNT)) if claim.startswith(_COUNT) else 0
    if claim.isdigit() or count:
        for other, path in taken.items():
            if other.startswith(_COUNT) and (count or int(claim) < int(other[1:])):
                return path
            if count and other.isdigit() and int(other) < count:
                return path
    return None


def _renames(
    items: list[tuple[KeyPath, config_file.SharedItem]],
    block: config_file.TimeSlicing,
    declared: set[str],
    report: ProblemReport,
) -> None:
    targets: dict[str, tuple[str, KeyPath]] = {}
    for path, item in items:
        target = item.rename or (f"{item.name}.shared" if block.rename_by_default else item.name)
        at = (*path, "rename") if item.rename else (*path, "name")
        templated = "{" in item.name
        if templated and item.name not in declared:
            hint = "write it as the entry does, or name one of the resources that it makes"
            report.error((*path, "name"), f"no entry has the resource {item.name}", hint)
        if templated and item.rename:
            hint = "set renameByDefault, or give the entry another name"
            report.key_error((*path, "rename"), f"rename would give one name to every resource of {item.name}", hint)
        made = target != item.name and not item.rename and not templated
        if made and (problem := names.resource_name_problem(target)):
            report.error(at, f"renameByDefault makes it {problem}", "give it a rename")
        if target != item.name and target in declared:
            report.error(
                at, f"{item.name} shared as {target} collides with the resource of that name", "choose another name"
            )
        source, first = targets.setdefault(target, (item.name, path))
        if source != item.name:
            message = f"{item.name} shared as {target} collides with {source}, at {report.document.value_place(first)}"
            report.error(at, message, "choose another name")


def _mps(validated: Validated, models: Entries, report: ProblemReport) -> None:
    flags, mps = validated.file.flags, validated.file.sharing.mps
    assert mps is not None
    if flags.mig_strategy is MigStrategy.MIXED:
        report.key_error(("sharing", "mps"), "MPS does not work with migStrategy mixed", "use timeSlicing")
    if not flags.mps_root and "mps_root" in flags.model_fields_set:
        hint = "set flags.mpsRoot, --mps-root or MPS_ROOT to the directory of the MPS daemon, or leave it out"
        report.key_error(("sharing", "mps"), "sharing with MPS needs mpsRoot", hint)
    single = flags.mig_strategy is MigStrategy.SINGLE
    cut = {model.resource: path for path, model in models if single and model.partitions}
    for path, item in validated.items(("sharing", "mps", "resources"), mps.resources):
        if item.replicas > MPS_CLIENTS:
            message = f"{item.replicas} replicas: MPS serves at most {MPS_CLIENTS} clients of a device"
            hint, instead = f"expected 2 to {MPS_CLIENTS}, or timeSlicing", "all are offered, as by NVIDIA's plugin"
            _wrong(item, (*path, "replicas"), report, message, hint, instead)
        if item.name in cut:
            at = report.document.key_place((*cut[item.name], "partitions"))
            report.error((*path, "name"), f"partitions cannot be shared with MPS, and {item.name} has some, at {at}")
