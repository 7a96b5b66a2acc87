"""The plan: a pure function from the observed state of a node to its desired state.

    planning/inventory.py  configuration + discovered devices -> inventory (owners, partitions, names, replicas)
    desired_state          inventory + health + faults + devices in use -> lists, CDI documents, labels, pools

`desired_state` does no I/O, reads no clock (the time is part of the observed state), and keeps no state between calls.
The appliers (`agent/applier.py`) and the fleet use only its result. `prove` finds problems of a configuration by
planning for sample nodes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from ..dra.pools import NOTHING_CLAIMED, Held, claimed_devices, published_pools
from ..dra.published_devices import NO_POOLS, Pools
from ..faults import targets
from ..faults.effects import SensorFault, XidError
from ..faults.schedule import earliest
from ..faults.targets import ActiveFaults
from ..intervals import PRODUCTION, Intervals
from ..model.device import Device, DeviceKey, Health, Key, RawDevice, Slot, base_id
from ..model.entry import Entry
from ..model.names import is_nvidia_id
from ..model.problem import Problem
from ..model.section import Placed
from ..model.spec import NFD, SharedItem, Spec
from ..node.conditions import Losses, NodeCondition, capacity, conditions, losses
from ..node.labels import node_labels
from ..node.vendor_labels import Machine
from . import inventory
from .allocation import cdi_documents
from .cdi import Document
from .in_use import InUse
from .repartition import Progresses, RepartitionState, state_labels
from .resources import EMPTY, Inventory, as_observed
from .retired import Retired, blocked, keep_in_use, without_overlaps

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Previous:
    """The results of the last plan. Before the first one, `advertised` is what an earlier process recorded."""

    advertised: Inventory = EMPTY
    """The device lists that were sent to the kubelet."""
    retired: Mapping[Key, Retired] = field(default_factory=dict)
    """The devices that are in these lists only because a pod may hold them."""
    dropped: Mapping[Key, float] = field(default_factory=dict)
    """The slots that were removed from a list recently, and when."""
    devices: Inventory = EMPTY
    """The devices that existed."""
    lost: Losses = field(default_factory=dict)
    """The devices that were missing or unhealthy."""
    pools: Pools = field(default_factory=lambda: NO_POOLS)
    """The ResourceSlice pools, by driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedState:
    """The complete input of the plan, at one moment."""

    spec: Spec = Spec()
    """The configuration, with the partition layouts that node labels select and that are in force."""
    layouts: Progresses = field(default_factory=dict)
    """The state of these layouts, by label."""
    node: str = ""
    machine: Machine = Machine()
    """The hardware of the node, for labels."""
    found: Mapping[str, Sequence[RawDevice]] = field(default_factory=dict)
    """The raw devices by entry, as discovery found them. Needed for labels only."""
    inventory: Inventory = EMPTY
    """The configuration and the raw devices, arranged into resources by `inventory.arrange`."""
    health: Mapping[str, Health] = field(default_factory=dict)
    """The health of raw devices by id, from probes and from appliers that cannot deliver a device to containers."""
    without_tools: frozenset[str] = frozenset()
    """The ids of raw devices for which the vendor's tools are not available in containers."""
    faults: ActiveFaults = targets.NONE
    """The active faults of devices."""
    cdi_faults: Mapping[str, str] = field(default_factory=dict)
    """The active faults of CDI files, by file name."""
    in_use: InUse = InUse()
    """The devices that pods may hold."""
    claimed: Held = field(default_factory=dict)
    """The published names of the devices of prepared claims, by driver, with their records if available."""
    previous: Previous = Previous()
    now: float = 0.0
    """The monotonic time in seconds."""


@dataclass(frozen=True, kw_only=True)
class DesiredState:
    """The desired state for all appliers. They read the observed state from `observed`."""

    observed: ObservedState
    devices: Inventory
    """The devices that exist, with their health."""
    advertised: Inventory
    """The device lists: `devices`, and retired devices that pods may still hold."""
    served: Inventory
    """The lists of the device plugin; empty if the resources are written to the Node's status instead."""
    retired: Mapping[Key, Retired]
    """The devices that are in the lists only because a pod may hold them."""
    claimed: Mapping[DeviceKey, Device]
    """The devices of prepared claims, by driver and device id."""
    cdi: Mapping[str, Document]
    """The CDI documents by kind."""
    pools: Pools
    """The ResourceSlice pools, by driver."""
    lost: Losses
    """The devices that are missing or unhealthy."""
    labels: Mapping[str, str]
    """The labels of the Node object."""
    features: Mapping[str, str] | None
    """The labels for the file of Node Feature Discovery; None: no file."""
    capacity: Mapping[str, Mapping[str, int]]
    """The capacity and the allocatable amount of extended resources in the Node's status, by name."""
    conditions: tuple[NodeCondition, ...]
    """The conditions in the Node's status."""
    problems: tuple[Problem, ...]
    """The problems of labels and pools."""
    again_at: float | None
    """The monotonic time at which to plan again even if nothing changes, or None."""

    @property
    def xids(self) -> Mapping[DeviceKey, tuple[XidError, ...]]:
        """The active XID errors, by resource and device."""
        return targets.of_devices(self.devices, self.observed.faults.xids)

    @property
    def sensors(self) -> Mapping[DeviceKey, tuple[SensorFault, ...]]:
        """The active sensor faults, by resource and device."""
        return targets.of_devices(self.devices, self.observed.faults.sensors)

    @cached_property
    def held(self) -> frozenset[str]:
        """The ids of devices (without a replica's number) that a pod may hold, or that are retired."""
        return frozenset(base_id(slot) for _, slot in (*self.observed.in_use.all(), *self.retired))

    @property
    def to_list_again(self) -> frozenset[str]:
        """The resources with a device that is about to become free and is not in the kubelet's last answer."""
        in_use, waiting = self.observed.in_use, frozenset(self.retired)
        for layout in self.observed.layouts.values():
            waiting |= layout.awaited
        if not waiting or in_use.answers_since is None:
            return frozenset()
        return frozenset(name for name, _ in waiting & in_use.unlisted)

    def is_free(self, device: str) -> bool:
        """Whether no pod can hold this device (its id without a replica's number) or a part of it."""
        return self.observed.in_use.is_complete and device not in self.held

    def is_overtaken(self, in_use: InUse) -> bool:
        """Whether a pod may now hold a device that this plan removes or that overlaps one of its devices."""
        for name, slot in in_use.all() - self.observed.in_use.all():
            resource = self.advertised.resources.get(name)
            if resource is None or slot not in resource.by_id or (name, slot) in self.retired:
                return True
        return False

    def as_previous(self, now: float = _NEVER, remembered: float = 0.0) -> Previous:
        """Return the state that the next plan needs; `now` is when this plan was applied.

        Slots that were removed from a list stay in `dropped` for `remembered` seconds.
        """
        before = self.observed.previous
        dropped = {key: at for key, at in before.dropped.items() if at > now - remembered}
        for name, resource in before.advertised.resources.items():
            kept = self.advertised.resources[name].by_id if name in self.advertised.resources else {}
            dropped |= {(name, each): now for each in resource.by_id.keys() - kept}
        return Previous(
            advertised=self.advertised,
            retired=self.retired,
            dropped=dropped,
            devices=self.devices,
            lost=self.lost,
            pools=self.pools,
        )


def desired_state(observed: ObservedState, intervals: Intervals = PRODUCTION) -> DesiredState:
    """Compute the desired state of a node from its observed state."""
    previous, faults, node = observed.previous, observed.faults, observed.spec.node

    # 1. Set the health from probes and from appliers that cannot deliver a device. Devices that discovery marked
    # Unhealthy stay Unhealthy.
    devices = as_observed(observed.inventory, observed.health, observed.without_tools)

    # 2. Apply fault rules after real health, because they change healthy devices only, and unplug devices.
    devices = targets.apply_faults(devices, faults)

    # 3. A device that an edit moved from claims to the device plugin is Unhealthy until its claim is gone.
    held, claimed = NOTHING_CLAIMED, dict[DeviceKey, Device]()
    if observed.claimed:
        held = claimed_devices(previous.pools, observed.claimed)
        claimed = {(driver, each.device.id): each.device for (driver, _), each in held.items()}
        devices = _without_claimed(devices, claimed)

    # 4. A lost device stays in its list until no pod can hold it. Devices that overlap it are Unhealthy until then.
    kept = keep_in_use(devices, observed.in_use, observed.now, previous, intervals)

    # 5. A fault rule can remove a device from its list even if a pod holds it, so this comes after step 4.
    advertised, devices = targets.drop(kept.inventory, faults.dropped), targets.drop(devices, faults.dropped)

    # 6. Pools leave out retired devices, because a pod may still hold them.
    pools = NO_POOLS
    if observed.inventory.claimable or observed.claimed:
        retired = (each.slot for each in kept.retired.values())
        pools = published_pools(
            observed.inventory.claimable,
            without_overlaps(devices, retired, claimed).claimable,
            claimed=held,
            faults=faults,
        )

    # 7. A lost device existed before and is missing or unhealthy now, so each plan passes these to the next one.
    entries = observed.spec.on_node(observed.node) if node.events or node.conditions else ()
    lost = losses(previous.devices, devices, previous.lost, entries) if entries else {}

    # 8. Labels follow the configuration and the devices that exist, not their health.
    labels: Mapping[str, str] = {}
    problems: list[Problem] = []
    if node.labels:
        gone = observed.inventory.raws - devices.raws
        found = {name: [raw for raw in raws if raw.id not in gone] for name, raws in observed.found.items()}
        labels, warnings = node_labels(observed.spec, observed.node, found, devices, observed.machine)
        problems += warnings

    # 9. Plan again soon if a layout is pending, because it waits for the kubelet's answer or for a label of the Node.
    is_pending = any(each.state is RepartitionState.PENDING for each in observed.layouts.values())
    layouts_at = observed.now + intervals.repartition_recheck if is_pending else None

    for pool in pools.values():
        problems += pool.problems
    return DesiredState(
        observed=observed,
        devices=devices,
        advertised=advertised,
        served=EMPTY if node.status else advertised,
        retired=kept.retired,
        claimed=claimed,
        cdi=cdi_documents(advertised),
        pools=pools,
        lost=lost,
        labels={
            **(labels if node.labels is True else {}),
            **(state_labels(observed.layouts, observed.spec.entries) if observed.layouts else {}),
        },
        features=labels if node.labels == NFD else None,
        capacity=capacity(advertised) if node.status else {},
        conditions=conditions(entries, lost, faults.conditions) if node.conditions else (),
        problems=tuple(problems),
        again_at=earliest((kept.again_at, layouts_at)),
    )


def _without_claimed(devices: Inventory, claimed: Mapping[DeviceKey, Device]) -> Inventory:
    """The devices, with all slots Unhealthy that overlap devices of claims.

    A device that is also offered to claims is not changed, because the configuration allows both uses.
    """
    offers = devices.claimable
    taken = [
        (Slot(device.id, device), f"a claim still has {device.id}")
        for (driver, _), device in claimed.items()
        if driver not in offers or device.id not in offers[driver].by_id
    ]
    return blocked(devices, taken)


def prove(spec: Spec, node: str = "") -> tuple[Problem, ...]:
    """The problems on a node. Without a name, errors that some node would have, and warnings that all nodes would have.

    Resources with real devices are left out, because their number is not known. Without a name, sharing that names ids
    of NVIDIA's driver is left out too, because these ids depend on the name.
    """
    real = {entry.resource for entry in spec.entries if entry.virtual is None}

    def is_known(item: Placed) -> bool:
        if isinstance(item, SharedItem):
            listed = item.devices if isinstance(item.devices, tuple) else ()
            return item.name not in real and (bool(node) or not any(map(is_nvidia_id, listed)))
        return not isinstance(item, Entry) or item.resource not in real

    known = spec.only(is_known)
    if node:
        return _problems_on(known, node)
    patterns = [pattern for entry in spec.entries for pattern in entry.on_nodes]
    examples = [name for pattern in patterns if fnmatchcase(name := re.sub(r"[*?]", "x", pattern), pattern)]
    # "*" is the only pattern that matches the empty name.
    trials = [_problems_on(known, each) for each in dict.fromkeys(("", *examples))]
    everywhere = set.intersection(*map(set, trials))
    return tuple(dict.fromkeys(each for problems in trials for each in problems if each.is_error or each in everywhere))


def _problems_on(spec: Spec, node: str) -> tuple[Problem, ...]:
    """The problems of the devices, and of their labels and ResourceSlices."""
    base = inventory.inventory(spec, node)
    if not spec.node.labels and not base.claimable:
        return base.problems
    return (*base.problems, *desired_state(ObservedState(spec=spec, node=node, inventory=base)).problems)
