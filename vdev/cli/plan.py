"""`vdev plan`: previews the devices that a node would advertise, with reasons, and the changes of a reload."""

import argparse
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import discovery, file_choice, importers
from ..agent.options import Options
from ..dra import slices as cutting
from ..dra.published_devices import Pools, PublishedPool
from ..errors import ConfigError
from ..hostfs.root import machine_type
from ..model import telemetry
from ..model.device import EMPTY as NOTHING
from ..model.device import device_document, problem_document
from ..model.problem import Problem, counted, did_you_mean, errors, notice, warning
from ..model.quantity import written
from ..model.spec import Spec
from ..node.vendor_labels import Machine
from ..planning import repartition
from ..planning.inventory import arrange
from ..planning.plan import DesiredState, ObservedState, desired_state
from ..planning.repartition import RepartitionState
from ..planning.resources import Change, Resource, diff
from . import common, options

EPILOG = """examples:
  vdev plan vdev.yaml                          what this host would advertise
  vdev plan vdev.yaml --node npu-7             what the node npu-7 would advertise
  vdev plan configs/ --node npu-7              the same, with a directory that has a file for each node
  vdev plan new.yaml --against old.yaml        what replacing old.yaml with new.yaml would change
  vdev plan vdev.yaml --label nvidia.com/mig.config=all-balanced    with the layout that this label selects
  vdev plan vdev.yaml --explain                why each candidate device matched or did not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_node(parser)
    parser.add_argument(
        "--against",
        nargs="+",
        metavar="OLD",
        help="the current configuration: show what FILE would change",
    )
    parser.add_argument(
        "--explain", action="store_true", help="show every candidate, and the condition that it did not meet"
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a label of the Node that selects a layout (partitions.fromLabel); may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    """Print the plan; 2 if the configuration has errors."""
    chosen = options.read(args)
    labels = dict(common.pair(each, "--label", "nvidia.com/mig.config=all-balanced") for each in args.label)
    new = preview(args.files, chosen, labels)
    old = preview(args.against, chosen, labels) if args.against else None
    problems = (*new.problems, *(errors(old.problems) if old else ()))
    changes = _changes(old, new) if old else {}
    files = [str(each) for each in new.files]
    from_directory = any(os.path.isdir(each) for each in args.files)
    lines = [_lines(new, files if from_directory else [], explain=args.explain)]
    if old:
        lines.append(_change_lines(old, new, changes))
    common.show(args, _document(new, problems) | changes | {"files": files}, itertools.chain(*lines))
    if args.output == "text":
        common.complain(problems)
    return common.exit_code(problems)


# --- the plan of a node without a kubelet -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Preview:
    """Everything that a node would advertise. The labels do not include the time of the start."""

    plan: DesiredState
    files: Sequence[Path]  # those of the node
    found: Mapping[str, discovery.Found]  # by entry, also the candidates that do not match
    problems: tuple[Problem, ...]
    refused: bool  # a running plugin would refuse the files; this is the part without errors

    @property
    def node(self) -> str:
        return self.plan.observed.node

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of the node, whether vdev or Node Feature Discovery writes them."""
        return self.plan.labels if self.plan.features is None else self.plan.features


def add_node(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `preview`: files, node and host."""
    common.add_files(parser)
    options.add(parser, "node_name", "host_root")


def preview(paths: Iterable[str | Path], chosen: Options, node_labels: Mapping[str, str] = NOTHING) -> Preview:
    """Load the files and plan for the node of the options. If the files have errors, these are reported, and the rest
    is used.

    `node_labels` are labels of the Node that select layouts and files.
    """
    node, host = chosen.node_name, chosen.host
    files = file_choice.files_of_node([Path(each) for each in paths], node, node_labels)
    try:
        loaded = chosen.load(files)
    except ConfigError as bad:
        problems = importers.explained(bad)
        try:
            loaded = chosen.load(files, partial=problems == bad.problems)
        except ConfigError:
            return Preview(desired_state(ObservedState(node=node)), files, {}, problems, refused=True)
    found = {
        entry.name: discovery.discover(entry, host, node=node, smi_dir=f"{telemetry.DIRECTORY}/{node}")
        for entry in loaded.spec.on_node(node)
    }
    devices = {name: each.devices for name, each in found.items()}
    spec, choices = repartition.chosen(loaded.spec, node, node_labels, devices)
    stock = arrange(spec, node, devices)
    machine = Machine(machine_type(host))
    plan = desired_state(
        ObservedState(spec=spec, layouts=choices, node=node, machine=machine, found=devices, inventory=stock)
    )
    of_node = (*(problem for each in found.values() for problem in each.problems), *stock.problems, *plan.problems)
    of_labels = [
        warning(f"node {node}", f"the label {each.label}={each.value} would fail: {each.sentence}")
        for each in choices.values()
        if each.state is RepartitionState.FAILED
    ]
    of_labels += [
        warning(f"node {node}", f"no devices of this node follow the label {label}", did_you_mean(label, choices))
        for label in node_labels
        if label not in choices and label not in file_choice.LABELS
    ]
    notices = (*loaded.notices(), *_of_other_nodes(spec, node))
    problems = tuple(dict.fromkeys((*loaded.problems, *of_node, *of_labels, *notices)))
    return Preview(plan, files, found, problems, refused=bool(loaded.errors or errors(stock.problems)))


def _of_other_nodes(spec: Spec, node: str) -> Iterator[Problem]:
    """Yield a notice for each entry, if none is for this node."""
    if not spec.on_node(node):
        for entry in spec.entries:
            message = f"entry {entry.name} is for nodes {', '.join(entry.on_nodes)}, this is {node}"
            yield notice(entry.where, message, "--node NAME plans for another node")


# --- what is printed --------------------------------------------------------------------------------------------------


def _document(new: Preview, problems: Iterable[Problem]) -> dict[str, Any]:
    slices = [document for pool in new.plan.pools.values() for document in cutting.objects(pool, new.node)]
    return {
        "node": new.node,
        "resources": [
            {"name": each.name, "devices": list(map(device_document, each.slots)), "listBytes": each.list_bytes}
            for each in new.plan.devices.resources.values()
        ],
        "nodeLabels": dict(new.labels),
        "nodeStatus": new.plan.capacity,
        "conditions": new.plan.conditions,
        "resourceSlices": slices,
        "problems": [problem_document(each) for each in problems],
        "candidates": {
            name: [{"path": each.path, "matched": each.matched, "why": list(each.why)} for each in found.candidates]
            for name, found in new.found.items()
            if found.candidates
        },
    }


def _lines(new: Preview, chosen: Sequence[str], *, explain: bool) -> Iterator[str]:
    """The plan for people. `chosen` are the files that were chosen from directories."""
    yield f"node {new.node}" + (f", with {', '.join(chosen)}" if chosen else "")
    for resource in new.plan.devices.resources.values():
        yield from _resource_lines(new, resource)
    if new.refused:
        more = "; the resources above have no errors" if new.plan.devices.resources else ""
        yield f"\na running vdev would refuse this configuration as a whole{more}"
    elif not new.plan.devices.resources and not new.plan.pools:
        yield "  advertises nothing"
    for pool in new.plan.pools.values():
        yield from _pool_lines(pool, new.node)
    yield from _node_lines(new)
    for entry in new.plan.observed.spec.on_node(new.node) if explain else ():
        if entry.virtual is not None:
            continue
        found = new.found[entry.name]
        none = "" if found.candidates else f" none in {', '.join(sorted(found.watch))}"
        yield f"\ncandidates of {entry.name}:{none}"
        for candidate in found.candidates:
            yield f"  {'+' if candidate.matched else '-'} {candidate.path}: {'; '.join(candidate.why) or 'matched'}"


def _node_lines(new: Preview) -> Iterator[str]:
    if new.labels:
        yield "\nlabels of the node"
        yield from common.table({"LABEL": 0, "VALUE": 1}, [*new.labels.items()])
    if new.plan.capacity:
        yield "\nresources in the node's status, which no device plugin serves"
        amounts = [{"name": name, **amounts} for name, amounts in new.plan.capacity.items()]
        yield from common.table({"RESOURCE": "name", "CAPACITY": "capacity", "ALLOCATABLE": "allocatable"}, amounts)
    if new.plan.conditions:
        yield "\nconditions of the node"
        columns = {"TYPE": "type", "STATUS": "status", "REASON": "reason", "MESSAGE": "message"}
        yield from common.table(columns, new.plan.conditions)


_SLOT: common.Columns = {
    "ID": lambda slot: slot.id,
    "INDEX": lambda slot: slot.device.ordinal,
    "HEALTH": lambda slot: "healthy" if slot.health.healthy else "unhealthy",
    "NUMA": lambda slot: slot.device.raw.topology,
    "PROFILE": lambda slot: slot.device.profile,
    "PATHS": lambda slot: slot.device.raw.paths,
    "REASON": lambda slot: slot.health.reason,
}


def _resource_lines(new: Preview, resource: Resource) -> Iterator[str]:
    count = counted(len(resource.slots), "device")
    yield f"\n{resource.name}: {count}, {resource.healthy} healthy"
    patterns = new.plan.observed.spec.resources
    for each in (*patterns.gpus, *patterns.mig):
        if each.name == resource.name:
            yield f"  named by the pattern {each.pattern!r}"
    yield from common.table(_SLOT, resource.slots, most=common.SHOWN)


_CLAIMED: common.Columns = {
    "DEVICE": lambda device: device.name,
    "TYPE": lambda device: device.attributes["type"].value if "type" in device.attributes else None,
    "PROFILE": lambda device: device.device.profile,
    "MEMORY": lambda device: written(device.capacity["memory"].value) if "memory" in device.capacity else None,
    "CONSUMES": lambda device: [*device.consumes],
    "TAINTS": lambda device: [f"{each.key}={each.value}:{each.effect}" for each in device.taints],
}


def _pool_lines(pool: PublishedPool, node: str) -> Iterator[str]:
    slices = counted(len(cutting.specifications(pool, node)), "ResourceSlice")
    healthy = sum(device.health.healthy for device in pool.devices)
    yield f"\n{pool.driver}: {counted(len(pool.devices), 'device')} for claims in {slices}, {healthy} healthy"
    yield from common.table(_CLAIMED, pool.devices, most=common.SHOWN)


# --- what a reload would change ---------------------------------------------------------------------------------------


def _changes(old: Preview, new: Preview) -> dict[str, list[dict[str, Any]]]:
    """The changes as in the JSON form; none if the old or the new configuration is refused."""
    if new.refused or old.refused:
        return {"changes": [], "labelChanges": [], "sliceChanges": []}
    labels = sorted({*old.labels, *new.labels})
    return {
        "changes": [_change(each) for each in diff(old.plan.devices, new.plan.devices)],
        "labelChanges": [
            {"label": key, "old": old.labels.get(key), "new": new.labels.get(key)}
            for key in labels
            if old.labels.get(key) != new.labels.get(key)
        ],
        "sliceChanges": list(_slice_changes(old.plan.pools, new.plan.pools)),
    }


def _change(change: Change) -> dict[str, Any]:
    if change.old is None or change.new is None:
        kind = "added" if change.old is None else "removed"
        return {"resource": change.name, "change": kind, "devices": [*change.added, *change.removed]}
    return {
        "resource": change.name,
        "change": "changed",
        "added": list(change.added),
        "removed": list(change.removed),
        "health": {each: "Healthy" if health.healthy else "Unhealthy" for each, _, health in change.health},
    }


def _slice_changes(before: Pools, after: Pools) -> Iterator[dict[str, Any]]:
    """The changes of each driver's published devices, by name."""
    for driver in sorted({*before, *after}):
        old, new = _published(before, driver), _published(after, driver)
        added = [name for name in new if name not in old]
        removed = [name for name in old if name not in new]
        changed = [name for name in new if name in old and old[name] != new[name]]
        if (driver in before) != (driver in after) or added or removed or changed:
            yield {"driver": driver, "added": added, "removed": removed, "changed": changed}


def _published(pools: Pools, driver: str) -> dict[str, Any]:
    devices = pools[driver].devices if driver in pools else ()
    return {each.name: cutting.device_document(each) for each in devices}


def _change_lines(old: Preview, new: Preview, found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    if new.refused:
        yield "\na reload would change nothing: it would be refused"
    elif old.refused:
        yield "\nwhat a reload would change is unknown: OLD has errors"
    else:
        yield "\na reload would change:" if any(found.values()) else "\na reload would change nothing"
    before, after = _counts(old.plan), _counts(new.plan)
    for change in (*found["changes"], *found["sliceChanges"]):
        name = change.get("resource") or change["driver"]
        if name not in after:
            yield f"  - {name}: removed; devices that pods and claims may hold are kept until they are free"
        elif name not in before:
            yield f"  + {name}: new, {counted(after[name], 'device')}"
        else:
            yield f"  ~ {name}: {before[name]} -> {counted(after[name], 'device')}"
            yield from _difference_lines(change)
    for each in found["labelChanges"]:
        key, was, will = each["label"], each["old"], each["new"]
        if was is None:
            yield f"  + label {key}: {will}"
        else:
            yield f"  - label {key}" if will is None else f"  ~ label {key}: {was} -> {will}"


def _counts(plan: DesiredState) -> dict[str, int]:
    """How many devices each resource and each driver has."""
    slots = {name: len(each.slots) for name, each in plan.devices.resources.items()}
    return slots | {name: len(each.devices) for name, each in plan.pools.items()}


def _difference_lines(change: Mapping[str, Any]) -> Iterator[str]:
    health = [f"{name}: {health}" for name, health in change.get("health", {}).items()]
    kinds = {"+": change["added"], "-": change["removed"], "~": [*health, *change.get("changed", ())]}
    if not any(kinds.values()):
        yield "      the same devices, but containers get different settings for them"
    for sign, texts in kinds.items():
        yield from (f"      {sign} {text}" for text in texts[: common.SHOWN])
        yield from common.more(texts)
