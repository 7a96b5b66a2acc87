"""Checks of one entry: keys that exclude or need each other, names, paths.

The models check single values. `planning.inventory` checks facts of a node, such as a glob without matches.
"""

from collections.abc import Iterator, Sequence

from pydantic.alias_generators import to_camel

from ..model import path_pattern
from ..model.dra import ClaimApi
from ..model.entry import PRE_START_LIMIT, SOURCES, Action, ContainerPath, Entry, HealthCheck, OnFailure, Probe
from ..model.problem import KeyPath
from ..model.sources import GroupBy
from ..model.telemetry import EntryTelemetry, LoadPattern
from ..model.template import Template
from ..model.virtual import LineEnd, VirtualNode, are_scores
from .messages import ProblemReport

DANGEROUS = ("/", "/dev", "/dev/mem", "/dev/kmem", "/dev/port")  # each gives a container power over the whole host
MAX_LINKED = 256  # devices with fast links; the largest known domain, an NVL72 rack, has 72
MAX_LINES = 1024  # serial lines of an entry; the kernel has 4096 for the whole machine, see kernel.pty.max


def check_entry(entry: Entry, report: ProblemReport) -> None:
    """Check the keys of one entry against each other, as the file gives them."""
    _sources(entry, report)
    for number, name in enumerate(entry.on_nodes):
        if name != name.lower():
            message = f"{name!r} matches no node of a cluster, whose names are in lower case"
            report.warning(("onNodes", number), message, f"write {name.lower()!r}")
    if entry.health:
        _health(entry.health, entry.virtual is not None, report.at("health"))
    _container(entry, report)
    if entry.virtual and entry.virtual.node:
        _virtual_node(entry.virtual.node, entry.virtual.count, report.at("virtual", "node"))
    for key in ("on_allocate", "on_release", "pre_start"):
        if actions := getattr(entry, key):
            _actions(actions, report.at(to_camel(key)))
    if entry.if_release_fails is not OnFailure.BLOCK and not entry.on_release:
        report.key_error("ifReleaseFails", "ifReleaseFails is for onRelease only")
    _apis(entry, report)
    if entry.telemetry:
        _telemetry(entry.telemetry, report.at("telemetry"))


_OF_SOURCES = {"exclude": ["glob"], "groupBy": ["glob", "usb"], "shared": ["glob", "sysfs", "usb"]}


def _sources(entry: Entry, report: ProblemReport) -> None:
    """Check that the entry has exactly one source, and no keys that are only for other sources."""
    if source := report.exactly_one({key: getattr(entry, key) or None for key in SOURCES}, "no device source"):
        report.keys_fit(entry, source, _OF_SOURCES)
    if entry.group_by is GroupBy.NAME and entry.usb:
        report.error("groupBy", "groupBy name is for glob only", "expected position or all")
    for number, item in enumerate(entry.glob):
        here = report.at("glob", number)
        here.keys_fit(item, f"type {item.type}", {"permissions": ["type device"], "readOnly": ["type mount"]})
        _dangerous(item.path, entry, here.at("path"))
    if entry.sysfs:
        kinds = {"class": entry.sysfs.class_, "bus": entry.sysfs.bus}
        report.at("sysfs").exactly_one(kinds, "nothing says where in sysfs the devices are")
    for number, selector in enumerate(entry.usb):
        if not any((selector.vendor, selector.product, selector.serial, selector.port, selector.class_)):
            hint = "give at least one of vendor, product, serial, port and class"
            report.error(("usb", number), "every USB device would match", hint)


def _dangerous(host_path: str, entry: Entry, report: ProblemReport) -> None:
    plain = "/" + "/".join(_parts(host_path))
    if plain in DANGEROUS and not entry.allow_dangerous:
        message = f"{plain} gives a container power over the whole host"
        report.error((), message, "set allowDangerous: true on the entry if that is intended")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _health(health: HealthCheck, is_virtual: bool, report: ProblemReport) -> None:
    needed = {Probe.FILE: "path", Probe.COMMAND: "command"}.get(health.probe)
    if needed and not health.by_key[needed]:
        report.error((), f"probe {health.probe} needs the key {needed}")
    owners = {"path": ["probe file"], "content": ["probe file"], "command": ["probe command"]}
    report.keys_fit(health, f"probe {health.probe}", owners)
    if is_virtual and health.probe in (Probe.EXISTS, Probe.OPEN):
        message = f"probe {health.probe} is for real devices, and this one is virtual"
        report.error("probe", message, "use file or command")


def _container(entry: Entry, report: ProblemReport) -> None:
    """Check that container paths are unique, and that none replaces the root or puts a node in a directory's place."""
    members = list(_own_places(entry))
    items: list[tuple[str, int, ContainerPath]]
    items = [("deviceNodes", n, item) for n, item in enumerate(entry.container.device_nodes)]
    items += [("mounts", n, item) for n, item in enumerate(entry.container.mounts)]
    for key, number, item in items:
        here = report.at("container", key, number)
        has_own = "container_path" in item.model_fields_set
        members.append((("container", key, number, "containerPath" if has_own else "hostPath"), item.inside.source))
        _dangerous(item.host_path.source, entry, here.at("hostPath"))
        if key == "deviceNodes":
            _is_no_directory(item.host_path, here.at("hostPath"))
            if has_own:
                _is_no_directory(item.inside, here.at("containerPath"))
    taken: dict[str, KeyPath] = {}
    for at, shown in members:
        parts = _parts(shown)
        if not parts:
            report.error(at, f"{shown} is the root of the container, which cannot be replaced")
        first = taken.setdefault("/".join(parts), at)
        if first != at:
            message = f"{shown} is already taken in the container, at {report.place(first)}"
            report.error(at, message, "give each another path")


def _own_places(entry: Entry) -> Iterator[tuple[KeyPath, str]]:
    """Return the known container paths of the entry's nodes."""
    for number, item in enumerate(entry.glob):
        if item.container_path is None:
            if path_pattern.parse(item.path).is_literal:
                yield ("glob", number, "path"), item.path
        elif not item.container_path.source.endswith("/"):
            yield ("glob", number, "containerPath"), item.container_path.source
    for number, selector in enumerate(entry.usb if len(entry.usb) > 1 else ()):
        if selector.container_path and not selector.container_path.source.endswith("/"):
            yield ("usb", number, "containerPath"), selector.container_path.source
    node = entry.virtual.node if entry.virtual else None
    if node and "container_path" in node.model_fields_set:
        yield ("virtual", "node", "containerPath"), node.inside.source


def _is_no_directory(template: Template, report: ProblemReport) -> None:
    """Report a path of one node that ends in '/'. Only nodes found on the host have a name to append to a directory."""
    path = template.source
    if path.endswith("/") and _parts(path):
        report.error((), f"{path!r} ends in '/', and this is the path of one node", "write the node's name after it")


def _virtual_node(node: VirtualNode, count: int, report: ProblemReport) -> None:
    """Check the keys of a virtual node against each other; `count` is the number of devices."""
    kinds = {"like": node.like, "pty": node.pty, "file": node.file, "directory": node.directory}
    kind = report.exactly_one(kinds, "nothing says what the node is")
    if not kind:
        return
    if kind != "directory":
        _is_no_directory(node.inside, report.at("containerPath"))
    owners = {"permissions": ["like"], "readOnly": ["file", "directory"], "answers": ["pty"], "otherwise": ["pty"]}
    report.keys_fit(node, kind, owners)
    scripted = bool(node.answers) or node.otherwise is not None
    if node.pty is not None and scripted != (node.pty is LineEnd.SCRIPT):
        report.error("pty", "answers are for pty script only" if scripted else "pty script needs answers, or otherwise")
    if node.pty is not None and count > MAX_LINES:
        report.error("pty", f"{count} serial lines", f"an entry may have at most {MAX_LINES}")


def _actions(actions: Sequence[Action], report: ProblemReport) -> None:
    for number, action in enumerate(actions):
        here = report.at(number)
        kinds = {"command": action.command or None, "truncate": action.truncate, "chmod": action.chmod}
        kind = here.exactly_one(kinds, "the action does nothing")
        if kind:
            here.keys_fit(action, kind, {"mode": ["chmod"], "timeout": ["command"]})
        if kind and report.path[-1] == "preStart" and (action.timeout or 0) > PRE_START_LIMIT:
            message = f"{action.timeout:g} seconds are too long: the kubelet waits 30 for all actions before a start"
            here.error("timeout", message, f"at most {PRE_START_LIMIT:g}s")


def _apis(entry: Entry, report: ProblemReport) -> None:
    """Check how the entry is advertised: keys without effect, and devices that two APIs count."""
    if ClaimApi.DRA not in entry.advertise:
        if entry.dra is not None:
            hint = "set advertise to [dra], or to [device-plugin, dra]"
            report.key_error("dra", f"{entry.name} is not advertised by dra, so dra has no effect", hint)
        return
    if "{" in entry.resource:
        hint = "give the entry a resource without placeholders, or advertise it by device-plugin alone"
        report.error("resource", "dra does not support placeholders in the name of a resource", hint)
    if ClaimApi.DEVICE_PLUGIN in entry.advertise:
        message = (
            f"the devices of {entry.name} are counted twice: the device plugin and dra each allocate them without "
            f"knowing about the other; a pod that asks for {entry.resource} as an extended resource is served by the "
            "device plugin on every node on which that has a healthy device"
        )
        report.warning("advertise", message, "advertise them by one API if pods must not share them")


def _telemetry(telemetry: EntryTelemetry, report: ProblemReport) -> None:
    """Report keys that have no meaning for the pattern."""
    loaded = [each for each in LoadPattern if each is not LoadPattern.IDLE]
    owners = dict.fromkeys(("gpu", "memory", "encoder", "decoder"), loaded)
    owners["period"] = [each for each in loaded if each is not LoadPattern.STEADY]
    report.keys_fit(telemetry, telemetry.pattern, owners)


# --- NUMA nodes and fast links, also of presets -----------------------------------------------------------------------


def check_numa(nodes: Sequence[int], count: int, report: ProblemReport) -> None:
    """Report a list of NUMA nodes that has neither one node for all devices nor one for each device.

    A `count` of 0 means any number of devices.
    """
    if len(nodes) not in (1, count):
        message = f"{len(nodes)} NUMA nodes for {count or 'any number of'} devices"
        report.error((), message, "give one for all devices, or one per device")


def check_links(rows: Sequence[Sequence[int]], count: int, report: ProblemReport) -> None:
    if count > MAX_LINKED:
        report.error((), f"there are {count} devices", f"links are for at most {MAX_LINKED}")
    elif are_scores(rows, count):
        _check_scores(rows, report)
    else:
        for number, group in enumerate(rows):
            _check_group(group, count, report.at(number))


def _check_group(group: Sequence[int], count: int, report: ProblemReport) -> None:
    for position, index in enumerate(group):
        if index >= count:
            expected = f"expected 0 to {count - 1}" if count else "links need a count"
            report.error(position, f"there is no device {index}", expected)
        elif index in group[:position]:
            report.error(position, f"device {index} is in this group twice", "name each device once")
    if len(group) < 2:  # a link has two ends
        report.error((), "a group of linked devices needs at least two indices")


def _check_scores(rows: Sequence[Sequence[int]], report: ProblemReport) -> None:
    hint = "as many lists of as many numbers as there are devices are scores of pairs, not groups of indices"
    for one, row in enumerate(rows):
        if row[one]:
            report.error((one, one), f"device {one} is linked to itself; the diagonal must be 0", hint)
        for other in range(one):
            if row[other] != rows[other][one]:
                back = rows[other][one]
                message = f"the score of {one} with {other} is {row[other]}, and of {other} with {one} it is {back}"
                report.error((one, other), message, hint)
