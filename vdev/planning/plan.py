"""The plan: a pure function from the observed state of a node to its desired state.

    planning/inventory.py  configuration + discovered devices -> inventory (owners, partitions, names, replicas)
    desired_state          inventory + health + faults + devices in use -> lists, CDI documents, labels, pools

`desired_state` reads no clock (the time is part of the observed state), does no I/O, and keeps nothing between calls.
The appliers (`agent/applier.py`) and the fleet work from its result alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..faults import targets
from ..faults.effects import SensorFault, XidError
from ..faults.targets import Afflictions
from ..intervals import PRODUCTION, Intervals
from ..model.device import Device, Health, Key, RawDevice, base_id
from ..model.problem import Problem
from ..model.spec import NFD, SAYS_NOTHING, Node, Spec
from ..model.telemetry import Measured, Telemetry
from ..node import conditions
from ..node import conditions as capacity
from ..node.conditions import NodeCondition, SlotCounts
from ..node.label_values import NO_LABELS, Labels, Machine
from ..node.losses import NONE, Losses, losses
from . import allocation, resources, retention
from .cdi import Document
from .in_use import Holdings
from .repartition import Progresses, state_labels
from .resources import EMPTY, Inventory
from .retention import Dropped, Retired

if TYPE_CHECKING:
    from ..dra.published_devices import Pools
    from ..dra.slices import Claimed


NO_POOLS: "Pools" = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """Everything that a decision depends on, at one moment.

    `spec` is the configuration of the node of this name, on this `machine`, with its devices cut as is in force;
    `choices` is what became of the layouts that labels of the node chose. `found` are the devices by entry, given
    where labels are asked for, and `base` what all of that comes to, as `arrange` puts it: another `found` has another
    `base`. `verdicts` are those of probes, by raw device id; `undeliverable` are devices that an output
    cannot bring to containers, and why; those of `toolless` come without their maker's tools.
    `afflictions` and `cdi_faults` (by file name) are what fault rules do now. `before` is the last plan of which the
    kubelet was told, and `recorded` what an earlier process told it; `dropped` are ids that left a list lately, and
    `pools` those of the last plan. `claimed` are the names of the
    devices that prepared claims have, by driver. `now` is monotonic.
    """

    spec: Spec = Spec()
    choices: Progresses = field(default_factory=dict)
    node: str = ""
    machine: Machine = Machine()
    found: Mapping[str, Sequence[RawDevice]] = field(default_factory=dict)
    base: Inventory = EMPTY
    verdicts: Mapping[str, Health] = field(default_factory=dict)
    undeliverable: Mapping[str, Health] = field(default_factory=dict)
    toolless: frozenset[str] = frozenset()
    afflictions: Afflictions = targets.NONE
    cdi_faults: Mapping[str, str] = field(default_factory=dict)
    holdings: Holdings = Holdings()
    before: "DesiredState | None" = None
    recorded: Inventory = EMPTY
    dropped: Mapping[str, Dropped] = field(default_factory=dict)
    pools: "Pools" = field(default_factory=lambda: NO_POOLS)
    claimed: "Claimed" = field(default_factory=dict)
    now: float = 0.0

    @property
    def listed(self) -> Inventory:
        """What the kubelet was told last."""
        return self.before.inventory if self.before else self.recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredState:
    """What shall be: every output makes its part of it true.

    `inventory` is what to list; `told` and `told_pools` are what was listed and published when that was decided.
    `specifications` are the CDI
    documents of what is wanted, by kind. `held` are the ids of devices (without a replica's number) that a pod may
    hold or that are retired: what belongs to one of them stays.
    `again_at` is the (monotonic) time at which to decide again though nothing happens, or None.

    `claimed` are the devices that prepared claims have, by driver and id.

    `node` is what is said of the node beside the device plugin API, the rest what that comes to: `devices` are those
    that are there, with their health, held or not; `lost` those that should be and are not, or do not work.
    `xids` are the driver's errors that devices have now, by resource and device; `kernel_log` is where they are
    written to, if that is not empty.
    `labels` are for the Node object, `features` for Node Feature Discovery (None: no file), `pools` are what Dynamic
    Resource Allocation publishes, by driver. `choices` is what became of the layouts that labels of the node chose.
    `problems` are those of the decision itself.

    `telemetry` is what is told of the devices' sensors, `loads` how those of each entry are loaded, and `sensors` what
    faults do to them, by resource and device; `seed` is that of chance.
    """

    base: Inventory
    inventory: Inventory
    told: Inventory
    retired: Mapping[Key, Retired]
    holdings: Holdings
    held: frozenset[str]
    specifications: Mapping[str, Document]
    cdi_faults: Mapping[str, str]
    again_at: float | None
    node: Node = SAYS_NOTHING
    devices: Inventory = EMPTY
    lost: Losses = field(default_factory=dict)
    xids: Mapping[Key, tuple[XidError, ...]] = field(default_factory=dict)
    kernel_log: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, str] | None = None
    capacity: Mapping[str, SlotCounts] = field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    choices: Progresses = field(default_factory=dict)
    pools: "Pools" = field(default_factory=lambda: NO_POOLS)
    told_pools: "Pools" = field(default_factory=lambda: NO_POOLS)
    problems: tuple[Problem, ...] = ()
    telemetry: Telemetry | None = None
    loads: Mapping[str, Measured] = field(default_factory=dict)
    sensors: Mapping[Key, tuple[SensorFault, ...]] = field(default_factory=dict)
    seed: int = 0
    claimed: Mapping[Key, Device] = field(default_factory=dict)

    @property
    def served(self) -> Inventory:
        """What a device plugin lists: nothing, where the resources are written into the Node's status instead."""
        return EMPTY if self.node.status else self.inventory

    @property
    def unsettled(self) -> frozenset[str]:
        """The resources with an awaited device of which only the kubelet's checkpoint says that a pod has it."""
        if self.holdings.silent or not self.holdings.doubted:
            return frozenset()
        return frozenset(name for name, _ in self.awaited & self.holdings.doubted)

    @property
    def awaited(self) -> frozenset[Key]:
        """What is to become free: retired devices, and what a layout that a label chose takes away."""
        return frozenset(self.retired).union(*(each.doubted for each in self.choices.values()))

    def is_free(self, device: str) -> bool:
        """Whether no pod can have anything of the device of this id (without a replica's number)."""
        return self.holdings.complete and device not in self.held

    def is_overtaken(self, holdings: Holdings) -> bool:
        """Whether a pod may hold something by now that this plan drops, or of which it gives others a part."""
        resources = self.inventory.resources
        return any(
            (name, slot) in self.retired or name not in resources or slot not in resources[name].ids
            for name, slot in holdings.all() - self.holdings.all()
        )


def desired_state(world: ObservedState, intervals: Intervals = PRODUCTION) -> DesiredState:
    """What shall be, in this world."""
    before = world.before
    equipped = resources.without_tools(world.base, world.toolless) if world.toolless else world.base
    healthy = resources.with_health(equipped, {**world.verdicts, **world.undeliverable})
    claimed = _claimed(world)
    fresh = retention.without_claimed(targets.afflict(healthy, world.afflictions), claimed)
    kept = retention.retain(
        world.listed,
        fresh,
        before.retired if before else {},
        world.holdings,
        world.now,
        lately=world.dropped,
        intervals=intervals,
    )
    listed = targets.drop(kept.inventory, world.afflictions.dropped)
    node = world.spec.node
    devices = targets.drop(fresh, world.afflictions.dropped)
    entries = world.spec.on_node(world.node) if node.events or node.conditions else ()
    were, missing = (before.devices, before.lost) if before else (EMPTY, NONE)
    lost = losses(were, devices, missing, entries) if entries else NONE
    published = _pools(world, retention.without_retired(devices, kept.retired, claimed))
    labels = _labels(world) if node.labels else NO_LABELS
    told = labels.values if node.labels is True else NO_LABELS.values
    return DesiredState(
        base=world.base,
        inventory=listed,
        told=world.listed,
        retired=kept.retired,
        claimed=claimed,
        holdings=world.holdings,
        held=_devices((*world.holdings.all(), *kept.retired)),
        specifications=allocation.cdi_documents(listed),
        cdi_faults=world.cdi_faults,
        again_at=kept.again_at,
        node=node,
        devices=devices,
        lost=lost,
        xids=targets.of_devices(devices, world.afflictions.xids),
        kernel_log=world.spec.faults.kernel_log,
        labels={**told, **state_labels(world.choices, world.spec.entries)},
        choices=world.choices,
        features=labels.values if node.labels == NFD else None,
        pools=published,
        told_pools=before.pools if before else NO_POOLS,
        problems=labels.problems + tuple(problem for pool in published.values() for problem in pool.problems),
        capacity=capacity.capacity(listed) if node.status else {},
        telemetry=world.spec.telemetry,
        loads={each.name: each.telemetry for each in world.spec.on_node(world.node) if each.telemetry},
        sensors=targets.of_devices(devices, world.afflictions.sensors),
        seed=world.spec.faults.seed,
        conditions=conditions.conditions(entries, lost, world.afflictions.conditions) if node.conditions else (),
    )


def _pools(world: ObservedState, devices: Inventory) -> "Pools":
    if not (world.base.claimable or world.claimed):
        return NO_POOLS
    from ..dra.slices import pools  # most nodes publish none

    return pools(world, devices)


def _labels(world: ObservedState) -> Labels:
    """Those of the configuration, the devices and what faults take away; health is none of it."""
    from ..node.labels import node_labels  # many nodes want none

    away = world.afflictions.removed | world.afflictions.dropped
    there = targets.drop(world.base, away)
    found = _found(world.found, world.base, there) if away else world.found
    return node_labels(world.spec, world.node, found, there, world.machine)


def _claimed(world: ObservedState) -> Mapping[Key, Device]:
    """What prepared claims have, by driver and id."""
    if not world.claimed:
        return {}
    from ..dra.slices import claimed_by_name  # most nodes publish none

    return {(key[0], device.id): device for key, device in claimed_by_name(world.pools, world.claimed).items()}


def _found(
    found: Mapping[str, Sequence[RawDevice]], base: Inventory, there: Inventory
) -> Mapping[str, Sequence[RawDevice]]:
    """The raw devices without those of which nothing is left."""
    gone = base.raws - there.raws
    return {entry: [raw for raw in raws if raw.id not in gone] for entry, raws in found.items()}


def _devices(keys: Iterable[Key]) -> frozenset[str]:
    return frozenset(base_id(slot) for _, slot in keys)
