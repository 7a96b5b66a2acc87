"""What must fit together: keys that exclude or need each other, names over all entries, sharing, flags.

Shapes and single values were judged by the schema; what only a node can tell (a glob without matches, how many
devices a count meets) is judged by `core.inventory.resources`.
"""

from collections.abc import Mapping, Sequence

from ...core.inventory.sharing import MPS_CLIENTS
from ...core.model import names, path_pattern
from ...core.spec import DeviceListStrategy, EntrySpec, MigStrategy, PathType, Probe, VirtualSource
from ..document.position import Path
from ..schema import config_file, lifecycle_actions, node_block
from ..schema.sources import MAX_COUNT
from ..validation import Reading, Report

DANGEROUS = ("/", "/dev", "/dev/mem", "/dev/kmem", "/dev/port")  # each gives a container power over the whole host

MAX_TOTAL = 1_000_000  # devices of a node, over all resources: about a gigabyte of memory
_LIMIT = f"the kubelet takes lists of 4 MiB, about {MAX_COUNT} devices with the shortest ids"

Entries = Sequence[tuple[Path, config_file.Entry]]


# --- one entry -------------------------------------------------------------------------------------------------------


def entry(model: config_file.Entry, path: Path, report: Report) -> None:
    """The keys of one entry among each other."""
    given = [name for name, source in _sources(model) if source is not None]
    if len(given) != 1:
        what = "says not where its devices come from" if not given else f"has {' and '.join(given)}"
        report.error(path, f"the entry {what}", "expected exactly one of virtual, glob, sysfs and usb")
    _keys_of_sources(model, path, report)
    _nodes(model, path, report)
    _globs(model, path, report)
    if model.sysfs and (model.sysfs.class_ is None) == (model.sysfs.bus is None):
        report.error((*path, "sysfs"), "expected exactly one of class and bus")
    if model.usb and not any((model.usb.vendor, model.usb.product, model.usb.serial, model.usb.port, model.usb.class_)):
        hint = "give at least one of vendor, product, serial, port and class"
        report.error((*path, "usb"), "every USB device would match", hint)
    if model.health:
        _health(model.health, model.virtual is not None, (*path, "health"), report)
    _container(model, path, report)
    if model.virtual and model.virtual.node:
        node_block.check(model.virtual.node, model.virtual.count or 1, (*path, "virtual", "node"), report)
    for key, models, limit in (
        ("onAllocate", model.on_allocate, None),
        ("onRelease", model.on_release, None),
        ("preStart", model.pre_start, lifecycle_actions.PRE_START),
    ):
        lifecycle_actions.check(models, (*path, key), report, limit=limit)


def _sources(model: config_file.Entry) -> tuple[tuple[str, object], ...]:
    return (("virtual", model.virtual), ("glob", model.glob), ("sysfs", model.sysfs), ("usb", model.usb))


def _keys_of_sources(model: config_file.Entry, path: Path, report: Report) -> None:
    if model.glob is None:
        for key, value in (("exclude", model.exclude), ("groupBy", model.group_by)):
            if value:
                report.key_error((*path, key), f"{key} goes with glob only")
    if model.virtual and model.shared:
        hint = "to offer a virtual device several times, use sharing"
        report.key_error((*path, "shared"), "shared goes with glob, sysfs and usb only", hint)


def _nodes(model: config_file.Entry, path: Path, report: Report) -> None:
    for number, name in enumerate(model.on_nodes):
        if name != name.lower():
            message = f"{name!r} matches no node of a cluster, whose names are in lower case"
            report.warning((*path, "onNodes", number), message, f"write {name.lower()!r}")


def _globs(model: config_file.Entry, path: Path, report: Report) -> None:
    for number, item in enumerate(model.glob or ()):
        here = (*path, "glob", number)
        if item.permissions is not None and item.type is PathType.MOUNT:
            report.key_error((*here, "permissions"), "permissions go with type device only", "use readOnly for a mount")
        if item.read_only is not None and item.type is PathType.DEVICE:
            report.key_error((*here, "readOnly"), "readOnly goes with type mount only", "use permissions for a device")
        _dangerous(item.path, model, (*here, "path"), report)
    if model.glob and all(item.optional for item in model.glob):
        report.error((*path, "glob"), "every path is optional, so nothing says when there is a device")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _dangerous(host_path: str, model: config_file.Entry, path: Path, report: Report) -> None:
    plain = "/" + "/".join(_parts(host_path))
    if plain in DANGEROUS and not model.allow_dangerous:
        message = f"{plain} gives a container power over the whole host"
        report.error(path, message, "set allowDangerous: true on the entry if that is meant")


def _health(model: config_file.Health, virtual: bool, path: Path, report: Report) -> None:  # noqa: FBT001
    wanted = {Probe.FILE: "path", Probe.COMMAND: "command"}
    given = {"path": model.path is not None, "content": bool(model.content), "command": bool(model.command)}
    needed = wanted.get(model.probe)
    if needed and not given[needed]:
        report.error(path, f"probe {model.probe} needs {needed}")
    allowed = {Probe.FILE: ("path", "content"), Probe.COMMAND: ("command",)}.get(model.probe, ())
    for key, is_given in given.items():
        if is_given and key not in allowed:
            owner = "command" if key == "command" else "file"
            report.key_error((*path, key), f"{key} goes with probe {owner} only, and this is probe {model.probe}")
    if virtual and model.probe in (Probe.EXISTS, Probe.OPEN):
        report.error(
            (*path, "probe"),
            f"a virtual device has no node of its own to probe with {model.probe}",
            "use file or command",
        )


def _container(model: config_file.Entry, path: Path, report: Report) -> None:
    container = (*path, "container")
    taken: dict[str, Path] = {}
    members: list[tuple[Path, str]] = []
    for number, glob in enumerate(model.glob or ()):
        if not glob.container_path.endswith("/") and (glob.container_path or path_pattern.parse(glob.path).is_literal):
            key = "containerPath" if glob.container_path else "path"
            members.append(((*path, "glob", number, key), glob.container_path or glob.path))
    if model.virtual and model.virtual.node and model.virtual.node.container_path:
        members.append(((*path, "virtual", "node", "containerPath"), model.virtual.node.container_path))
    lists: tuple[tuple[str, Sequence[config_file.ContainerPath]], ...] = (
        ("deviceNodes", model.container.device_nodes),
        ("mounts", model.container.mounts),
    )
    for key, items in lists:
        for number, item in enumerate(items):
            at = (*container, key, number)
            shown = "containerPath" if item.container_path else "hostPath"
            members.append(((*at, shown), item.container_path or item.host_path))
            _dangerous(item.host_path, model, (*at, "hostPath"), report)
    for at, shown in members:
        if not _parts(shown):
            report.error(at, f"{shown} is the container's own root, which nothing can take the place of")
        if shown in taken:
            message = f"{shown} is taken in the container already, at {report.document.value_place(taken[shown])}"
            report.error(at, message, "give each a path of its own")
        taken.setdefault(shown, at)


# --- all entries -----------------------------------------------------------------------------------------------------


def entries(models: Entries, report: Report) -> None:
    """Names over all entries, and paths that two of them hand out."""
    first: dict[str, Path] = {}
    for path, model in models:
        if model.name in first:
            other = report.document.value_place((*first[model.name], "name"))
            hint = "device ids begin with it, so each entry needs its own"
            report.error((*path, "name"), f"the name {model.name!r} is taken by the entry at {other}", hint)
        first.setdefault(model.name, path)
    literal: dict[str, tuple[Path, config_file.Entry]] = {}
    for path, model in models:
        for number, item in enumerate(model.glob or ()):
            if not path_pattern.parse(item.path).is_literal:
                continue
            before = literal.setdefault(item.path, (path, model))
            if before[1] is not model and _may_meet(before[1], model):
                at = report.document.value_place((*before[0], "glob"))
                message = f"{item.path} is handed out by the entry {before[1].name!r} at {at} as well"
                report.warning((*path, "glob", number, "path"), message, "two pods could get it at the same time")


def _may_meet(one: config_file.Entry, other: config_file.Entry) -> bool:
    """Whether both entries may be on one node; different patterns are taken for different nodes."""
    return not one.on_nodes or not other.on_nodes or bool(set(one.on_nodes) & set(other.on_nodes))


# --- sharing and flags -----------------------------------------------------------------------------------------------


def sharing(reading: Reading, models: Entries, partition_names: frozenset[str], report: Report) -> None:
    """The sharing block against itself, the flags and the resources that exist."""
    model = reading.file.sharing
    if model.time_slicing and model.mps:
        report.key_error(("sharing", "mps"), "timeSlicing and mps exclude each other", "remove one of the two blocks")
    for key, block in (("timeSlicing", model.time_slicing), ("mps", model.mps)):
        if block is not None:
            items = list(reading.items(("sharing", key, "resources"), block.resources))
            _overlaps(items, report)
            _renames(items, block, {model.resource for _, model in models} | partition_names, report)
    if model.mps:
        _mps(reading, models, report)


def _overlaps(items: list[tuple[Path, config_file.SharedItem]], report: Report) -> None:
    """Items for one resource must list different devices. A count takes the lowest indices."""
    claims: dict[
        str, dict[str, Path]
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
                message = f"{what} of {item.name} is shared already, at {report.document.value_place(other)}"
                report.error(at, message, "items for one resource must list different devices")
                break
        for claim in wanted:
            taken.setdefault(claim, path)


_ALL, _COUNT = "all", "#"


def _claims(devices: int | tuple[str, ...] | None) -> tuple[str, ...]:
    if devices is None:
        return (_ALL,)
    return (f"{_COUNT}{devices}",) if isinstance(devices, int) else devices


def _holder(claim: str, taken: Mapping[str, Path]) -> Path | None:
    """Who shares a claimed device for certain, or None."""
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
    items: list[tuple[Path, config_file.SharedItem]], block: config_file.TimeSlicing, declared: set[str], report: Report
) -> None:
    targets: dict[str, tuple[str, Path]] = {}
    for path, item in items:
        target = item.rename or (f"{item.name}.shared" if block.rename_by_default else item.name)
        at = (*path, "rename") if item.rename else (*path, "name")
        if not item.rename and target != item.name and (problem := names.resource_name_problem(target)):
            report.error(at, f"renameByDefault makes it {problem}", "give it a rename")
        if target != item.name and target in declared:
            report.error(
                at, f"{item.name} shared as {target} collides with the resource of that name", "choose another name"
            )
        source, first = targets.setdefault(target, (item.name, path))
        if source != item.name:
            message = f"{item.name} shared as {target} collides with {source}, at {report.document.value_place(first)}"
            report.error(at, message, "choose another name")


def _mps(reading: Reading, models: Entries, report: Report) -> None:
    flags, mps = reading.file.flags, reading.file.sharing.mps
    assert mps is not None
    if flags.mig_strategy is MigStrategy.MIXED:
        report.key_error(("sharing", "mps"), "sharing with MPS does not go with migStrategy mixed", "use timeSlicing")
    if not flags.mps_root:
        hint = "set flags.mpsRoot, --mps-root or MPS_ROOT to the directory of the MPS daemon, such as /run/nvidia/mps"
        report.key_error(("sharing", "mps"), "sharing with MPS needs mpsRoot", hint)
    for path, item in reading.items(("sharing", "mps", "resources"), mps.resources):
        if item.replicas > MPS_CLIENTS:
            message = f"{item.replicas} replicas: MPS serves at most {MPS_CLIENTS} clients of a device"
            report.error((*path, "replicas"), message, f"expected 2 to {MPS_CLIENTS}, or timeSlicing")
    if flags.mig_strategy is MigStrategy.SINGLE:
        cut = {model.resource: path for path, model in models if model.partitions}
        for path, item in reading.items(("sharing", "mps", "resources"), mps.resources):
            if item.name in cut:
                at = report.document.key_place((*cut[item.name], "partitions"))
                report.error(
                    (*path, "name"), f"partitions cannot be shared with MPS, and {item.name} has some, at {at}"
                )


def sizes(reading: Reading, compiled: Mapping[Path, EntrySpec], report: Report) -> None:
    """Numbers of devices that no list can hold, said before anybody makes that many.

    The exact limit is in bytes and judged by `core.inventory.resources`. Entries for some nodes only may never be on
    one node.
    """
    counts: dict[str, int] = {}
    for path, entry in compiled.items():
        if isinstance(entry.source, VirtualSource) and not entry.on_nodes:
            before = counts.get(entry.resource, 0)
            counts[entry.resource] = before + entry.source.count
            if before <= MAX_COUNT < counts[entry.resource]:
                report.error((*path, "virtual"), f"{entry.resource} has {counts[entry.resource]} devices", _LIMIT)
    if (total := sum(counts.values())) > MAX_TOTAL:
        report.error(("devices",), f"a node would have {total} devices", f"at most {MAX_TOTAL} are allowed")
    model = reading.file.sharing
    for key, block in (("timeSlicing", model.time_slicing), ("mps", model.mps)):
        for path, item in reading.items(("sharing", key, "resources"), block.resources if block else ()):
            known = counts.get(item.name, 1)
            shared = min(known, item.devices) if isinstance(item.devices, int) else known
            shared = len(item.devices) if isinstance(item.devices, tuple) else shared
            if shared * item.replicas > MAX_COUNT:
                message = f"{shared} devices of {item.name} shared by {item.replicas} make {shared * item.replicas}"
                report.error((*path, "replicas"), message, _LIMIT)


def flags(reading: Reading, models: Entries, report: Report) -> None:
    """The flags against each other, and against the entries."""
    model = reading.file.flags
    is_none = model.mig_strategy is MigStrategy.NONE and ("flags",) not in report.broken()
    for path, entry_ in models:
        if is_none and entry_.partitions:
            message = f"the partitions of {entry_.name} are not advertised under migStrategy none"
            report.warning((*path, "partitions"), message, "set flags.migStrategy to single or mixed")
    for key, value in (("mpsRoot", model.mps_root), ("nvidiaDevRoot", model.nvidia_dev_root)):
        if value and not value.startswith("/"):
            report.error(("flags", key), f"{value!r} is not an absolute path; it must start with '/'")
    chosen = set(model.plugin.device_list_strategy)
    if model.plugin.pass_device_specs and all(each.is_cdi for each in chosen):
        message = "passDeviceSpecs has no effect where only CDI strategies are on"
        report.warning(("flags", "plugin", "passDeviceSpecs"), message, "the nodes are in the CDI specification")
    if {DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI} <= chosen:
        message = "cdi-annotations and cdi-cri together inject every device twice"
        report.warning(("flags", "plugin", "deviceListStrategy"), message, "one of them is enough")


def emptiness(reading: Reading, report: Report) -> None:
    """A file without devices advertises nothing, which is rarely meant."""
    if not reading.file.devices and not report.broken():
        report.warning((), "no devices are declared, so nothing will be advertised", "list them under devices")
