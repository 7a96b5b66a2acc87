"""Computes the lists and answers of a node without a kubelet. Files and devices are read as in `vdev run`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import discovery
from .dra.claim import read_claim
from .dra.device_classes import DeviceClass, device_classes
from .dra.preparation import prepare
from .dra.published_devices import NO_POOLS, DraDevice, Pools, PublishedPool
from .errors import ConfigError
from .hostfs import HostRoot
from .hostfs.root import machine_type
from .loading import LABELS, load
from .model import telemetry
from .model.device import EMPTY as NOTHING
from .model.entry import DeviceListStrategy
from .model.problem import Override, Problem, did_you_mean, errors, notice, warning
from .model.spec import Spec
from .node.conditions import NodeCondition, SlotCounts
from .node.maker_labels import Machine
from .planning import allocation, cdi, repartition
from .planning.allocation import ContainerEdits, cdi_documents, container_edits
from .planning.inventory import arrange
from .planning.plan import ObservedState, desired_state
from .planning.repartition import RepartitionState
from .planning.resources import EMPTY, Inventory, Resource


@dataclass(frozen=True, slots=True)
class Preview:
    """Everything that a node would advertise."""

    node: str
    inventory: Inventory
    found: Mapping[str, discovery.Found]  # by entry, also the candidates that do not match
    problems: tuple[Problem, ...]
    refused: bool = False  # a running plugin would refuse the files; this is the part without errors
    # Of the Node; empty if the configuration does not ask for them. A start's time is not among the labels.
    labels: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    capacity: Mapping[str, SlotCounts] = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    pools: Pools = field(default_factory=lambda: NO_POOLS)  # for ResourceSlices
    classes: tuple[DeviceClass, ...] = ()
    notices: tuple[Problem, ...] = ()  # worth knowing, and not wrong


def preview(
    files: Sequence[Path],
    *,
    node: str,
    host_root: Path,
    overrides: Mapping[str, Override],
    preset_dirs: Sequence[Path] = (),
    node_labels: Mapping[str, str] = NOTHING,
) -> Preview:
    """Load the files and plan for the node. If the files have errors, these are reported and the rest is used.

    `node_labels` are labels of the Node that select layouts.
    """
    try:
        loaded = load(files, overrides=overrides, preset_dirs=preset_dirs)
    except ConfigError as bad:
        try:
            loaded = load(files, overrides=overrides, preset_dirs=preset_dirs, partial=True)
        except ConfigError:
            return Preview(node, EMPTY, {}, bad.problems, refused=True)
    spec, choices = repartition.chosen(loaded.spec, node, node_labels)
    host = HostRoot(host_root)
    found = {
        entry.name: discovery.discover(
            entry, host, node=node, numbering=discovery.Numbering(), smi_dir=f"{telemetry.DIRECTORY}/{node}"
        )
        for entry in spec.on_node(node)
    }
    devices = {name: each.devices for name, each in found.items()}
    stock = arrange(spec, node, devices)
    machine = Machine(machine_type(host))
    plan = desired_state(
        ObservedState(spec=spec, layouts=choices, node=node, machine=machine, found=devices, inventory=stock)
    )
    of_node = (*(problem for each in found.values() for problem in each.problems), *stock.problems, *plan.problems)
    refused = bool(loaded.errors or errors(stock.problems))
    of_labels = [
        warning(f"node {node}", f"the label {each.label}={each.value} would fail: {each.sentence}")
        for each in choices.values()
        if each.state is RepartitionState.FAILED
    ]
    of_labels += [
        warning(f"node {node}", f"no devices of this node follow the label {label}", did_you_mean(label, choices))
        for label in node_labels
        if label not in choices and label not in LABELS
    ]
    problems = tuple(dict.fromkeys((*loaded.problems, *of_node, *of_labels)))
    return Preview(
        node,
        stock,
        found,
        problems,
        refused,
        labels=plan.labels if plan.features is None else plan.features,
        capacity=plan.capacity,
        conditions=plan.conditions,
        pools=plan.pools,
        classes=device_classes(loaded.spec)[0],
        notices=(*loaded.notices, *_of_other_nodes(spec, node)),
    )


def _of_other_nodes(spec: Spec, node: str) -> Iterator[Problem]:
    """Yield a notice for each entry, if none is for this node."""
    if not spec.on_node(node):
        for entry in spec.entries:
            message = f"entry {entry.name} is for nodes {', '.join(entry.on_nodes)}, this is {node}"
            yield notice(entry.where, message, "--node NAME plans for another node")


@dataclass(frozen=True, slots=True)
class PreviewedContainer:
    """The edits of a container."""

    edits: ContainerEdits
    cdi: Mapping[str, Mapping[str, Any]]  # the edits of each CDI device in it, by qualified name


def answer(resource: Resource, ids: Sequence[str], strategy: DeviceListStrategy | None = None) -> PreviewedContainer:
    """Return the answer to an allocation of these devices; `strategy` replaces those of the file.

    Raises AllocationError.
    """
    if strategy:
        resource = replace(resource, flags=resource.flags.with_plugin(device_list_strategy=(strategy,)))
    given = container_edits(resource, allocation.allocate(resource, ids))
    documents = cdi_documents(Inventory({resource.name: resource}))
    known = {
        cdi.qualified(kind, device["name"]): cdi.edits_of(document, device)
        for kind, document in documents.items()
        for device in document["devices"]
    }
    annotated = (name for names in given.annotations.values() for name in names.split(","))
    named = dict.fromkeys((*given.cdi_devices, *annotated))
    return PreviewedContainer(given, {name: known[name] for name in named if name in known})


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """The answer of a DRA driver for a claim."""

    devices: list[dict[str, Any]]  # as in the JSON of `v1.NodePrepareResourceResponse`
    specification: Mapping[str, Any]  # the CDI specification
    cdi: Mapping[str, Mapping[str, Any]]  # the edits of each CDI device, by qualified name


def claim_answers(seen: Preview, claim: Mapping[str, Any]) -> dict[str, ClaimAnswer | None]:
    """Return the answer of each driver for an allocated ResourceClaim; None for a driver that is not on this node.

    Raises AllocationError.
    """
    results = claim["status"]["allocation"].get("devices", {}).get("results") or ()
    drivers = dict.fromkeys(str(each.get("driver")) for each in results)
    return {driver: _claim_answer(seen, claim, driver) if driver in seen.pools else None for driver in drivers}


def _claim_answer(seen: Preview, claim: Mapping[str, Any], driver: str) -> ClaimAnswer:
    pool = seen.pools[driver]

    def find(name: str, device: str) -> tuple[PublishedPool, DraDevice] | str:
        found = pool.by_name.get(device)
        return (pool, found) if name == seen.node and found else f"node {seen.node} publishes no such device"

    got = prepare(read_claim(claim, driver, uid=str(claim["metadata"].get("uid"))), driver, find)
    devices = [
        {
            "requestNames": list(each.requests),
            "poolName": each.pool,
            "deviceName": each.device,
            "cdiDeviceIds": list(each.cdi),
            "shareId": each.share_id,
        }
        for each in got.devices
    ]
    known = {
        cdi.qualified(got.document["kind"], each["name"]): cdi.edits_of(got.document, each)
        for each in got.document["devices"]
    }
    return ClaimAnswer(devices, got.document, known)


def identified(resource: Resource, names: Iterable[str]) -> list[str]:
    """Return the ids of devices that are named by id or index; of a device's replicas, the first."""
    by_index: dict[str, str] = {}
    for slot in resource.slots:
        by_index.setdefault(slot.device.ordinal, slot.id)
    return [name if name in resource.by_id else by_index.get(name, name) for name in names]


def healthy(resource: Resource) -> list[str]:
    return [slot.id for slot in resource.slots if slot.health.healthy]


def preferred(resource: Resource, size: int) -> list[str]:
    """Return the ids that the preferred allocation chooses if all healthy devices are free; none if too few are."""
    return list(resource.allocator.prefer(healthy(resource), (), size))
