"""Checks of entries and of sharing: keys that exclude or need each other, names, paths.

The models have checked single values. Facts of a node, such as a glob without matches, are checked by
`planning.inventory`.
"""

from collections.abc import Iterable, Iterator, Sequence

from ..faults.rules import FaultRule
from ..model import names, path_pattern
from ..model.dra import ClaimApi, DraPartitions
from ..model.entry import PRE_START_LIMIT, Action, ContainerPath, Entry, Health, MigStrategy, Probe
from ..model.geometry import resource_suffix
from ..model.nvidia_forms import EXPECTED_DEVICES
from ..model.problem import KeyPath
from ..model.scalars import MAX_COUNT
from ..model.sources import GroupBy, PathType
from ..model.spec import Mps, SharedItem, Spec, TimeSlicing
from ..model.telemetry import LoadPattern
from ..model.template import Template
from ..model.virtual_node import LineEnd, VirtualNode
from ..planning.sharing import MPS_CLIENTS
from .messages import ProblemReport

DANGEROUS = ("/", "/dev", "/dev/mem", "/dev/kmem", "/dev/port")  # each gives a container power over the whole host
MAX_LINES = 1024  # serial lines of an entry; the kernel has 4096 for the whole machine, see kernel.pty.max

# --- one entry -------------------------------------------------------------------------------------------------------


def check_entry(model: Entry, report: ProblemReport) -> None:
    """Check the keys of one entry against each other, as the file gives them."""
    path = model.where.path
    sources = {key: model.by_key[key] or None for key in ("virtual", "glob", "sysfs", "usb")}
    report.exactly_one(path, sources, "no device source")
    _keys_of_sources(model, path, report)
    _nodes(model, path, report)
    _globs(model, path, report)
    if model.sysfs:
        kinds = {"class": model.sysfs.class_, "bus": model.sysfs.bus}
        report.exactly_one((*path, "sysfs"), kinds, "nothing says where in sysfs the devices are")
    _usbs(model, (*path, "usb"), report)
    if model.health:
        _health(model.health, model.virtual is not None, (*path, "health"), report)
    _container(model, path, report)
    if model.virtual and model.virtual.node:
        _virtual_node(model.virtual.node, model.virtual.count, (*path, "virtual", "node"), report)
    _actions(model.on_allocate, (*path, "onAllocate"), report)
    _actions(model.on_release, (*path, "onRelease"), report)
    if model.if_release_fails and not model.on_release:
        report.key_error((*path, "ifReleaseFails"), "ifReleaseFails is for onRelease only")
    _actions(model.pre_start, (*path, "preStart"), report, limit=PRE_START_LIMIT)
    _apis(model, path, report)
    _telemetry(model, path, report)


def _keys_of_sources(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    if model.exclude and not model.glob:
        report.key_error((*path, "exclude"), "exclude is for glob only")
    if model.group_by and not (model.glob or model.usb):
        report.key_error((*path, "groupBy"), "groupBy is for glob and usb only")
    if model.group_by is GroupBy.NAME and model.usb:
        report.error((*path, "groupBy"), "groupBy name is for glob only", "expected position or all")
    if model.virtual and model.shared:
        hint = "to offer a virtual device several times, use sharing"
        report.key_error((*path, "shared"), "shared is for glob, sysfs and usb only", hint)


def _nodes(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    for number, name in enumerate(model.on_nodes):
        if name != name.lower():
            message = f"{name!r} matches no node of a cluster, whose names are in lower case"
            report.warning((*path, "onNodes", number), message, f"write {name.lower()!r}")


def _globs(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    for number, item in enumerate(model.glob):
        here = (*path, "glob", number)
        if item.permissions is not None and item.type is PathType.MOUNT:
            report.key_error((*here, "permissions"), "permissions are for type device only", "use readOnly for a mount")
        if item.read_only is not None and item.type is PathType.DEVICE:
            report.key_error((*here, "readOnly"), "readOnly is for type mount only", "use permissions for a device")
        _dangerous(item.path, model, (*here, "path"), report)


def _usbs(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    several = len(model.usb) > 1
    for number, selector in enumerate(model.usb):
        if not any((selector.vendor, selector.product, selector.serial, selector.port, selector.class_)):
            hint = "give at least one of vendor, product, serial, port and class"
            report.error((*path, number) if several else path, "every USB device would match", hint)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _dangerous(host_path: str, model: Entry, path: KeyPath, report: ProblemReport) -> None:
    plain = "/" + "/".join(_parts(host_path))
    if plain in DANGEROUS and not model.allow_dangerous:
        message = f"{plain} gives a container power over the whole host"
        report.error(path, message, "set allowDangerous: true on the entry if that is intended")


def _health(model: Health, virtual: bool, path: KeyPath, report: ProblemReport) -> None:
    needed = {Probe.FILE: "path", Probe.COMMAND: "command"}.get(model.probe)
    if needed and not model.by_key[needed]:
        report.error(path, f"probe {model.probe} needs the key {needed}")
    owners = {"path": ["probe file"], "content": ["probe file"], "command": ["probe command"]}
    report.keys_fit(path, model, f"probe {model.probe}", owners)
    if virtual and model.probe in (Probe.EXISTS, Probe.OPEN):
        message = f"a virtual device has no node of its own to probe with {model.probe}"
        report.error((*path, "probe"), message, "use file or command")


def _container(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    container = (*path, "container")
    taken: dict[str, KeyPath] = {}
    members = list(_own_places(model, path))
    lists: tuple[tuple[str, Sequence[ContainerPath]], ...] = (
        ("deviceNodes", model.container.device_nodes),
        ("mounts", model.container.mounts),
    )
    for key, items in lists:
        for number, item in enumerate(items):
            at = (*container, key, number)
            has_own = "container_path" in item.model_fields_set
            members.append(((*at, "containerPath" if has_own else "hostPath"), item.inside.source))
            _dangerous(item.host_path.source, model, (*at, "hostPath"), report)
            if key == "deviceNodes":
                _is_no_directory(item.host_path, (*at, "hostPath"), report)
                if has_own:
                    _is_no_directory(item.inside, (*at, "containerPath"), report)
    for at, shown in members:
        parts = _parts(shown)
        if not parts:
            report.error(at, f"{shown} is the root of the container, which cannot be replaced")
        plain = "/".join(parts)
        if plain in taken:
            message = f"{shown} is already taken in the container, at {report.document.value_place(taken[plain])}"
            report.error(at, message, "give each a path of its own")
        taken.setdefault(plain, at)


def _is_no_directory(template: Template, at: KeyPath, report: ProblemReport) -> None:
    """Check the path of one node. Only a path that is found on the host has a name to put into a directory."""
    path = template.source
    if path.endswith("/") and _parts(path):
        report.error(at, f"{path!r} ends in '/', and this is the path of one node", "write the node's name after it")


def _own_places(model: Entry, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Return the paths of the entry's own nodes in the container, as far as they are known."""
    for number, glob in enumerate(model.glob):
        if not glob.container_path.endswith("/") and (glob.container_path or path_pattern.parse(glob.path).is_literal):
            key = "containerPath" if glob.container_path else "path"
            yield (*path, "glob", number, key), glob.container_path or glob.path
    for number, selector in enumerate(model.usb if len(model.usb) > 1 else ()):
        if selector.container_path and not selector.container_path.endswith("/"):
            yield (*path, "usb", number, "containerPath"), selector.container_path
    node = model.virtual.node if model.virtual else None
    if node and "container_path" in node.model_fields_set:
        yield (*path, "virtual", "node", "containerPath"), node.inside.source


def _virtual_node(model: VirtualNode, count: int, path: KeyPath, report: ProblemReport) -> None:
    """Check the keys of a virtual node against each other; `count` is the number of devices."""
    kinds = {"like": model.like, "pty": model.pty, "file": model.file, "directory": model.directory}
    kind = report.exactly_one(path, kinds, "nothing says what the node is")
    if not kind:
        return
    if kind != "directory":
        _is_no_directory(model.inside, (*path, "containerPath"), report)
    owners = {"permissions": ["like"], "readOnly": ["file", "directory"], "answers": ["pty"], "otherwise": ["pty"]}
    report.keys_fit(path, model, kind, owners)
    scripted = bool(model.answers) or model.otherwise is not None
    if model.pty is not None and scripted != (model.pty is LineEnd.SCRIPT):
        message = "answers are for pty script only" if scripted else "pty script needs answers, or otherwise"
        report.error((*path, "pty"), message)
    if model.pty is not None and count > MAX_LINES:
        report.error((*path, "pty"), f"{count} serial lines", f"an entry may have at most {MAX_LINES}")


def _actions(models: Sequence[Action], path: KeyPath, report: ProblemReport, *, limit: float | None = None) -> None:
    """Check the keys of each action against each other; `limit` is the longest timeout in seconds."""
    for number, model in enumerate(models):
        here = (*path, number)
        kinds = {"command": model.command or None, "truncate": model.truncate, "chmod": model.chmod}
        kind = report.exactly_one(here, kinds, "the action does nothing")
        if not kind:
            continue
        report.keys_fit(here, model, kind, {"mode": ["chmod"], "timeout": ["command"]})
        if limit is not None and model.timeout is not None and model.timeout > limit:
            message = f"{model.timeout:g} seconds are too long: the kubelet waits 30 for all actions before a start"
            report.error((*here, "timeout"), message, f"at most {limit:g}s")


def _apis(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    """Check how the entry is advertised: keys without effect, and devices that two APIs count."""
    for number, api in enumerate(model.advertise):
        if api in model.advertise[:number]:
            report.error((*path, "advertise", number), f"{api} is listed twice")
    if ClaimApi.DRA not in model.advertise:
        if model.dra is not None:
            hint = "set advertise to [dra], or to [device-plugin, dra]"
            report.key_error((*path, "dra"), f"{model.name} is not advertised by dra, so dra has no effect", hint)
        return
    if "{" in model.resource:
        hint = "give the entry a resource without placeholders, or advertise it by device-plugin alone"
        report.error((*path, "resource"), "dra knows no resources with placeholders in their name", hint)
    if ClaimApi.DEVICE_PLUGIN in model.advertise:
        message = (
            f"the devices of {model.name} are counted twice: the device plugin and dra each give them out without "
            f"knowing of the other; a pod that asks for {model.resource} as an extended resource is served by the "
            "device plugin, which wins on every node where it has a healthy device"
        )
        hint = "advertise them in one way where pods must not share them"
        report.warning((*path, "advertise"), message, hint)
    elif model.wanted_partitions and model.dra and model.dra.partitions is DraPartitions.DYNAMIC:
        message = f"the partitions of {model.name} have no effect: dra.partitions is dynamic, so claims cut the devices"
        report.warning((*path, "partitions"), message, "take them out, or set dra.partitions to static")


# --- all entries -----------------------------------------------------------------------------------------------------


def check_names(items: Iterable[Entry | FaultRule], what: str, report: ProblemReport, hint: str = "") -> None:
    """Check that no name is given twice; `what` is what the items are."""
    first: dict[str, Entry | FaultRule] = {}
    for item in items:
        if first.setdefault(item.name, item) is not item:
            other = report.document.value_place((*first[item.name].where.path, "name"))
            report.error((*item.where.path, "name"), f"the name {item.name!r} is taken by the {what} at {other}", hint)


def may_meet(one: Entry, other: Entry) -> bool:
    """Whether both entries may be on one node; different patterns count as different nodes."""
    return not one.on_nodes or not other.on_nodes or bool(set(one.on_nodes) & set(other.on_nodes))


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
    """Check the items of `sharing` against each other, and the names of the resources that they make."""
    model = spec.sharing_blocks
    declared = {entry.resource for entry in spec.entries} | partition_names(spec)
    if model.time_slicing and model.mps:
        if report.document.is_for_nvidia(("sharing", "mps")):
            report.warning(("sharing", "timeSlicing"), "timeSlicing beside mps is ignored, as by NVIDIA's plugin")
        else:
            report.one_at_most(("sharing",), ("timeSlicing", "mps"), "remove one of the two blocks")
    for _, block in model.blocks:
        for item in block.resources:
            _devices(item, report)
        _overlaps(block.resources, report)
        _renames(block, declared, report)
    if model.mps:
        _mps(spec, model.mps, report)


def _wrong(item: SharedItem, path: KeyPath, report: ProblemReport, message: str, hint: str, instead: str) -> None:
    """Report an error; a warning about NVIDIA's resources in a file for NVIDIA's plugin, which ignores others."""
    if item.is_nvidias:
        report.unless_for_nvidia(path, message, hint, instead)
    else:
        report.error(path, message, hint)


def _devices(item: SharedItem, report: ProblemReport) -> None:
    """Check that the list of devices names at least one, and each once."""
    at = (*item.where.path, "devices")
    if item.devices == ():
        instead = "every device is shared, as by NVIDIA's plugin"
        _wrong(item, at, report, "the list of devices is empty", EXPECTED_DEVICES, instead)
    listed = item.devices if isinstance(item.devices, tuple) else ()
    for index, device in enumerate(listed):
        if device in listed[:index]:
            message = f"device {device} is listed twice"
            _wrong(item, (*at, index), report, message, "list each device once", "it counts once")


def _overlaps(items: Sequence[SharedItem], report: ProblemReport) -> None:
    """Check that two items for one resource list different devices.

    In a file for NVIDIA's plugin, a device in two items has the larger number of replicas.
    """
    for number, item in enumerate(items):
        for other in items[:number]:
            if item.name == other.name and (clash := _clash(item, other)):
                path = item.where.path
                at = (*path, "devices") if (*path, "devices") in report.document.values else path
                place = report.document.value_place(other.where.path)
                message = f"{clash} of {item.name} is already shared, at {place}"
                hint = "items for one resource must list different devices"
                instead = "it has the larger number of replicas, as with NVIDIA's plugin"
                _wrong(item, at, report, message, hint, instead)
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
        path = item.where.path
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


def _mps(spec: Spec, mps: Mps, report: ProblemReport) -> None:
    flags = spec.flags
    if flags.mig_strategy is MigStrategy.MIXED:
        report.key_error(("sharing", "mps"), "MPS does not work with migStrategy mixed", "use timeSlicing")
    if not flags.mps_root and "mps_root" in flags.model_fields_set:
        hint = "set flags.mpsRoot, --mps-root or MPS_ROOT to the directory of the MPS daemon, or leave it out"
        report.key_error(("sharing", "mps"), "sharing with MPS needs mpsRoot", hint)
    single = flags.mig_strategy is MigStrategy.SINGLE
    cut = {entry.resource: entry.where.path for entry in spec.entries if single and entry.wanted_partitions}
    for item in mps.resources:
        path = item.where.path
        if item.replicas > MPS_CLIENTS:
            message = f"{item.replicas} replicas: MPS serves at most {MPS_CLIENTS} clients of a device"
            hint, instead = f"expected 2 to {MPS_CLIENTS}, or timeSlicing", "all are offered, as by NVIDIA's plugin"
            _wrong(item, (*path, "replicas"), report, message, hint, instead)
        if item.name in cut:
            at = report.document.key_place((*cut[item.name], "partitions"))
            report.error((*path, "name"), f"partitions cannot be shared with MPS, and {item.name} has some, at {at}")


_UNTIMED = (LoadPattern.IDLE, LoadPattern.STEADY)


def _telemetry(model: Entry, path: KeyPath, report: ProblemReport) -> None:
    """Report keys that have no meaning for the pattern of the entry."""
    block = model.telemetry
    if block is None:
        return
    path = (*path, "telemetry")
    if block.pattern in _UNTIMED and block.period is not None:
        report.key_error((*path, "period"), f"{block.pattern} has no period", "leave it out")
    if block.pattern is LoadPattern.IDLE:
        for key in ("gpu", "memory", "encoder", "decoder"):
            if getattr(block, key) is not None:
                report.key_error((*path, key), f"idle devices have no load, so {key} has no effect")
