"""Checks of the file as a whole: entries against each other, flags, labels and conditions, sharing, sizes, `fleet`."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..faults.rules import FaultRule
from ..fleet.scope import FLEET, MADE, TAINTS
from ..model.entry import CDI_STRATEGIES, Condition, Entry, MigStrategy
from ..model.fleet import MAX_NODES, PLACEHOLDER, Fleet, FleetNodes, filled
from ..model.geometry import resource_suffix
from ..model.names import domain_and_name, node_name_problem, resource_name_problem, value_problem
from ..model.problem import KeyPath, Place, Problem, Severity
from ..model.scalars import MAX_COUNT
from ..model.spec import (
    ANNOTATION_PREFIX,
    EXPECTED_DEVICES,
    Flags,
    Mps,
    Node,
    References,
    SharedItem,
    Spec,
    TimeSlicing,
)
from ..planning.sharing import MPS_CLIENTS
from .loader import Document
from .messages import ProblemReport
from .parser import problem_at


def check_file(spec: Spec, report: ProblemReport) -> None:
    check_names(spec.entries, "entry", report, "device ids begin with it, so each entry needs its own")
    _flags(spec.flags, spec.entries, report)
    if spec.sharing:
        _sharing(spec, report)
    _sizes(spec, report)
    _node(spec.node, spec.entries, report)
    _conditions(spec.entries, report)
    if spec.fleet_nodes:
        _fleet(spec.fleet_nodes, report)
    if not spec.entries and not report.broken():
        report.warning((), "no devices are declared, so nothing will be advertised", "list them under devices")


def check_names(items: Iterable[Entry | FaultRule], what: str, report: ProblemReport, hint: str = "") -> None:
    """Check that names are unique. `what` is the kind of the items, for messages."""
    first: dict[str, Entry | FaultRule] = {}
    for item in items:
        if first.setdefault(item.name, item) is not item:
            other = report.of(first[item.name]).place("name")
            report.of(item).error("name", f"the name {item.name!r} is taken by the {what} at {other}", hint)


# --- flags ------------------------------------------------------------------------------------------------------------


def _flags(flags: Flags, entries: Sequence[Entry], report: ProblemReport) -> None:
    """Check the flags against each other, and against the entries."""
    if flags.mig_strategy is MigStrategy.NONE and ("flags",) not in report.broken():
        for entry in entries:
            if entry.wanted_partitions and entry.listed:
                message = f"the partitions of {entry.name} are not advertised under migStrategy none"
                report.of(entry).warning("partitions", message, "set flags.migStrategy to single or mixed")
    for key, value in (("mpsRoot", flags.mps_root), ("nvidiaDevRoot", flags.nvidia_dev_root)):
        if value and not value.startswith("/"):
            report.error(("flags", key), f"{value!r} is not an absolute path; it must start with '/'")
    plugin, here = flags.plugin, report.at("flags", "plugin")
    chosen = set(plugin.device_list_strategy)
    if not chosen:
        hint, instead = "name at least one, or leave the key out", "containers get no list, as from NVIDIA's plugin"
        lenient = here.is_for_nvidia("deviceListStrategy")
        here.unless("deviceListStrategy", "the list is empty", hint, instead, lenient=lenient)
    if not re.fullmatch(ANNOTATION_PREFIX, plugin.cdi_annotation_prefix):
        message = f"{plugin.cdi_annotation_prefix!r} is not the beginning of an annotation's key"
        hint, instead = "expected one such as cdi.k8s.io/", "it is used all the same, as by NVIDIA's plugin"
        lenient = here.is_for_nvidia("cdiAnnotationPrefix")
        here.unless("cdiAnnotationPrefix", message, hint, instead, lenient=lenient)
    if chosen >= CDI_STRATEGIES:
        message = "cdi-annotations and cdi-cri together inject every device twice"
        here.warning("deviceListStrategy", message, "one of them is enough")


def notices(spec: Spec, document: Document) -> tuple[Problem, ...]:
    """Return a notice for each key of an NVIDIA file that NVIDIA's plugin ignores and vdev follows."""
    found: dict[KeyPath, str] = {}
    for block in spec.sharing_blocks.blocks:
        for item in block.resources:
            default = block.default_name(item)
            if item.for_nvidia and item.rename and item.rename != default:
                found[*item.where.path, "rename"] = f"rename: its replicas are {default}"
            if item.for_nvidia and item.devices is not None:
                found[*item.where.path, "devices"] = f"devices: it shares every device of {item.name}"
    for kind, patterns in (("gpus", spec.resources.gpus), ("mig", spec.resources.mig)):
        if any(each.for_nvidia for each in patterns):
            found["resources", kind] = f"resources.{kind} and keeps its names"
    return tuple(
        problem_at(document.key_place(at), at, f"NVIDIA's own plugin ignores {what}", severity=Severity.NOTICE)
        for at, what in found.items()
    )


# --- the node ---------------------------------------------------------------------------------------------------------


def _node(node: Node, entries: Sequence[Entry], report: ProblemReport) -> None:
    """Warn about labels and conditions that are not written. Refuse labels that select a layout or report its state."""
    known = ("node",) not in report.broken()
    taken: dict[str, tuple[str, str]] = {}
    for entry in entries:
        if entry.choice:
            label, name = entry.choice.label, entry.name
            state = f"reports the state of {label}, which selects the partitions of {name}"
            taken[entry.choice.state_label] = (state, "leave it out")
            taken[label] = (
                f"selects the partitions of {name}",
                "set it by other means than vdev, and see partitions.default",
            )
    for entry in entries:
        here = report.of(entry)
        if known and entry.labels and node.labels is False:
            here.warning("labels", f"the labels of {entry.name} are not written", "set node.labels to true")
        if known and entry.conditions and not node.conditions:
            here.warning("conditions", f"the conditions of {entry.name} are not written", "set node.conditions to true")
        for label in entry.labels.keys() & taken.keys():
            what, hint = taken[label]
            here.error(("labels", label), f"the label {label} {what}", hint)


def _conditions(entries: Sequence[Entry], report: ProblemReport) -> None:
    """Check that an entry has each type once, and that entries of one node agree on the meaning of a type."""
    seen: list[tuple[Entry, Condition, Place]] = []
    for entry in entries:
        for number, each in enumerate(entry.conditions):
            here = report.of(entry).at("conditions", number)
            for owner, first, place in seen:
                # Different patterns count as different nodes.
                may_meet = not (owner.on_nodes and entry.on_nodes) or {*owner.on_nodes} & {*entry.on_nodes}
                if first.type != each.type or not may_meet:
                    continue
                if owner is entry:
                    here.error("type", f"the condition {each.type} is given twice", f"the first is at {place}")
                    break
                if first.true_when is not each.true_when:
                    message = f"the condition {each.type} is True while devices are {first.true_when} at {place}"
                    here.error("trueWhen", message, "use the same trueWhen in both, or give it another type")
                    break
            seen.append((entry, each, here.place(())))


# --- sharing ----------------------------------------------------------------------------------------------------------


def _partition_names(spec: Spec) -> set[str]:
    """The resources that exist only for partitions, with the strategy `mixed`."""
    if spec.flags.mig_strategy is not MigStrategy.MIXED:
        return set()
    return {
        f"{domain_and_name(each.resource)[0]}/{resource_suffix(each.geometry, profile)}"
        for each in spec.entries
        if each.geometry
        for profile in each.possible_profiles
    }


def _sharing(spec: Spec, report: ProblemReport) -> None:
    model = spec.sharing_blocks
    if model.time_slicing and model.mps:
        if report.document.is_for_nvidia(("sharing", "mps")):
            report.warning(("sharing", "timeSlicing"), "timeSlicing beside mps is ignored, as by NVIDIA's plugin")
        else:
            report.at("sharing").one_at_most(("timeSlicing", "mps"), "remove one of the two blocks")
    declared = {entry.resource for entry in spec.entries} | _partition_names(spec)
    for block in model.blocks:
        for number, item in enumerate(block.resources):
            _devices(item, block.resources[:number], report.of(item))
        _names(block, declared, report)
    if model.mps:
        _mps(spec, model.mps, report)


def _devices(item: SharedItem, before: Sequence[SharedItem], report: ProblemReport) -> None:
    """Check that the list is not empty, and that no device is in it twice or in an earlier item for the resource.

    `planning.sharing` knows the devices, so it also finds one that has different names in two items.
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
    for other in () if lenient else before:
        if item.name == other.name and (clash := _clash(item.devices, other.devices)):
            message = f"{clash} of {item.name} is already shared, at {other.where.place}"
            at = "devices" if report.has("devices") else ()
            report.error(at, message, "items for one resource must list different devices")
            break


def _clash(wanted: References, taken: References) -> str:
    """A device that both items select, for messages, or an empty text."""
    if wanted is None:
        return "every device"
    named = [each for devices in (wanted, taken) if isinstance(devices, tuple) for each in devices]
    return next((f"device {each}" for each in (*named, "0") if _selects(wanted, each) and _selects(taken, each)), "")


def _selects(devices: References, name: str) -> bool:
    if isinstance(devices, int):  # the lowest indices
        return name.isdecimal() and int(name) < devices
    return devices is None or name in devices


def _names(block: TimeSlicing, declared: Collection[str], report: ProblemReport) -> None:
    """Check the names of the replicas. `planning.sharing` also knows the resources of templates."""
    first: dict[str, SharedItem] = {}  # by the resource of the replicas
    for item in block.resources:
        here = report.of(item)
        target = item.rename or block.default_name(item)
        if "{" in item.name and item.name not in declared:
            hint = "write it as the entry does, or name one of the resources that it makes"
            here.error("name", f"no entry has the resource {item.name}", hint)
        if "{" in item.name and item.rename:
            hint = "set renameByDefault, or give the entry another name"
            here.key_error("rename", f"rename would give one name to every resource of {item.name}", hint)
        made = target != item.name and not item.rename and "{" not in item.name
        if made and (problem := resource_name_problem(target)):
            here.error("name", f"renameByDefault makes it {problem}", "give it a rename")
        other = first.setdefault(target, item)
        key = "rename" if item.rename else "name"
        if target != item.name and target in declared:
            message = f"{item.name} shared as {target} collides with the resource of that name"
            here.error(key, message, "choose another name")
        elif other.name != item.name:
            message = f"{item.name} shared as {target} collides with {other.name}, at {other.where.place}"
            here.error(key, message, "choose another name")


def _mps(spec: Spec, mps: Mps, report: ProblemReport) -> None:
    flags = spec.flags
    if flags.mig_strategy is MigStrategy.MIXED:
        report.key_error(("sharing", "mps"), "MPS does not work with migStrategy mixed", "use timeSlicing")
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


# --- sizes ------------------------------------------------------------------------------------------------------------

MAX_TOTAL = 1_000_000  # devices and replicas of a node, over all resources: about a gigabyte of memory


def _sizes(spec: Spec, report: ProblemReport) -> None:
    """Refuse numbers of devices that need too much memory, before the devices are created.

    `planning.inventory` checks the kubelet's limit for a list, which is in bytes. Entries with `onNodes` are not
    counted, because they may never be on one node.
    """
    counts = Counter[str]()
    for entry in spec.entries:
        if entry.virtual and not entry.on_nodes and entry.listed:
            counts[entry.resource] += entry.virtual.count
    total = counts.total()
    oversized: list[tuple[SharedItem, str]] = []
    for item in spec.sharing.resources if spec.sharing else ():
        shared = len(item.devices) if isinstance(item.devices, tuple) else item.devices
        known = counts[item.name]
        total += item.replicas * (known if shared is None else min(shared, known))
        size = item.replicas * ((known or 1) if shared is None else min(shared, known or 1))
        if size > MAX_COUNT:
            oversized.append((item, f"{item.name} shared by {item.replicas} makes {size} devices"))
    if total > MAX_TOTAL:
        report.error("devices", f"a node would have {total} devices and replicas", f"at most {MAX_TOTAL} are allowed")
        return
    for item, message in oversized:
        hint = f"the kubelet accepts lists of up to 4 MiB, about {MAX_COUNT} devices"
        report.of(item).error("replicas", message, hint)


# --- fleet ------------------------------------------------------------------------------------------------------------

_OWN = {"labels": {MADE}, "annotations": {TAINTS, FLEET}}  # a fleet records its own changes in these
_OF_MADE = {key: ["name"] for key in ("labels", "annotations", "taints", "capacity")}


def _fleet(fleet: Fleet, report: ProblemReport) -> None:
    """Check that Kubernetes accepts the nodes, that their names are unique, and that there are not too many."""
    made: dict[str, Place] = {}  # the place of each name
    for place, nodes in enumerate(fleet.nodes):
        here = report.at("fleet", "nodes", place)
        given = here.exactly_one({"name": nodes.name, "selector": nodes.selector}, "no nodes are given")
        if given == "selector":
            here.keys_fit(nodes, given, _OF_MADE)
        if given != "name":
            continue
        _node_names(nodes, made, here.at("name"))
        if len(made) > MAX_NODES:
            message = f"{nodes.name} makes {len(nodes.names)} nodes, and the file {len(made)} in total"
            here.error("name", message, f"a file makes {MAX_NODES} at most; check the range")
            return
        _values_of_nodes(nodes, here)


def _node_names(nodes: FleetNodes, made: dict[str, Place], report: ProblemReport) -> None:
    for name, _ in nodes.names:
        if wrong := node_name_problem(name):
            report.error((), wrong)
            break
        if name in made:
            report.error((), f"the node {name} is made twice", f"it is among those at {made[name]} too")
            break
        made[name] = report.place(())


def _values_of_nodes(nodes: FleetNodes, report: ProblemReport) -> None:
    """Check that placeholders in values exist, and that Kubernetes accepts the labels of every node."""
    known = list(nodes.names[0].values)
    for kind, values in (("labels", nodes.labels), ("annotations", nodes.noted)):
        for key, text in values.items():
            at = (kind, key)
            unknown = next((each for each in PLACEHOLDER.findall(text) if each not in known), None)
            if key in _OWN[kind]:
                report.key_error(at, f"{key} is reserved: vdev marks its nodes with it")
            elif unknown is not None:
                words = ", ".join(f"{{{each}}}" for each in known)
                report.error(at, f"{text!r} has the unknown placeholder {{{unknown}}}; known: {words}")
            elif kind == "labels":
                found = sorted({filled(text, each.values) for each in nodes.names}, key=len, reverse=True)
                if problem := next(filter(None, map(value_problem, found)), ""):
                    report.error(at, problem)
