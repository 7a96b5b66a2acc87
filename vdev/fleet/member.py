"""One node of the fleet: its plan, and the appliers that write it."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from ..dra.pools import Held, claimed_devices, published_pools
from ..dra.published_devices import NO_POOLS, Pools
from ..dra.slice_applier import ResourceSlices
from ..faults.engine import Engine, LoadedRule
from ..faults.schedule import earliest
from ..model.device import Key, RawDevice, grouped
from ..model.fleet import FleetNodes
from ..model.spec import Spec
from ..model.telemetry import Telemetry
from ..node.api_applier import ApiApplier, NodeAccess, Writer
from ..node.event_applier import NodeEvents
from ..node.label_applier import NodeLabels
from ..node.status_applier import NodeStatus
from ..node.vendor_labels import Machine
from ..planning import repartition
from ..planning.in_use import Holder, InUse, Use
from ..planning.inventory import arrange, virtual_devices
from ..planning.plan import DesiredState, ObservedState, Previous, desired_state
from ..planning.repartition import Progresses, RepartitionView
from ..planning.resources import EMPTY, Inventory
from ..telemetry.sensors import Sensors
from .cluster import SeenNode
from .pod_devices import Assignment, Pod, assign, keys_of
from .pod_notes import PodNotes
from .scope import delayed

_MACHINE = Machine("vdev")


class Member:
    """One node. `plan` is the last complete plan; delays hold back parts of it.

    `engine` has the fault rules. Their times start at the same moments on all nodes, no matter when a node was listed.
    """

    def __init__(
        self, node: SeenNode, slices: ResourceSlices, notes: PodNotes, access: NodeAccess, engine: Engine
    ) -> None:
        self.node = node
        self.engine = engine
        self.assigned = Assignment()
        self.claim_uses: tuple[Use, ...] = ()  # devices of claims, with the pods that reserved them
        self.plan: DesiredState | None = None
        self.item = FleetNodes()  # of the file, which applies to it
        self.slices = slices
        self._events = NodeEvents(access)
        self._notes = notes
        # Labels come before capacity, so that they exist when a scheduler sees the capacity; slices come last.
        self.appliers: tuple[ApiApplier, ...] = (NodeLabels(access), NodeStatus(access), slices, self._events)
        self.writers: tuple[Writer, ...] = (*self.appliers, notes)  # each runs in a separate task
        self.sensors = Sensors()  # the same as on a node with a kubelet
        self._clock = access.timing.clock
        self._intervals = access.timing.intervals
        self._progresses: Progresses = {}  # the states of the partition layouts that labels of the Node choose
        self._spec = Spec()
        self._found: Mapping[str, Sequence[RawDevice]] = {}
        self._used: frozenset[Use] = frozenset()  # at the last `sync`
        self._planned_from: tuple[object, ...] = ()  # the input of the last plan
        self._again: float | None = None  # when the last plan must be made again
        self.tasks: tuple[asyncio.Task[None], ...] = ()  # of its writers

    def adopt(self, spec: Spec, item: FleetNodes, rules: Mapping[str, LoadedRule]) -> None:
        """Put a configuration and all fault rules in force."""
        self.item = item
        if spec is self._spec:
            return
        name = self.node.name
        self._found = _devices(spec, name)
        self._spec = spec
        if any(rule.on_nodes.labels for rule in spec.faults.rules):
            self.engine.relabel({**self.node.labels, **first_plan(spec, name, self.node.labels).labels})
        self.engine.load(rules)

    @property
    def claimed(self) -> Held:
        """The published names of the devices of claims, by driver."""
        of_driver = grouped((use.driver, use.device) for use in self.claim_uses)
        return {driver: dict.fromkeys(devices) for driver, devices in of_driver.items()}

    def leave(self) -> None:
        """Plan for a node without any devices from now on."""
        self.engine.load({})
        self.adopt(NOTHING, FleetNodes(), {})

    @property
    def telemetry(self) -> Telemetry | None:
        """The section `telemetry` of the last plan; None if the devices have no sensors."""
        return self.plan.observed.spec.telemetry if self.plan else None

    @property
    def has_anything(self) -> bool:
        """Whether the last plan has something to write, such as devices that stay because a pod holds them."""
        return self.plan is not None and any((self.plan.labels, self.plan.capacity, self.plan.pools))

    async def sync(self, pods: Mapping[str, Pod], claim_uses: tuple[Use, ...], *, rejects: bool) -> float | None:
        """Plan for the node and its pods, and apply; returns the time at which to plan again, or None.

        `claim_uses` are the devices of claims; `rejects`: pods that a kubelet would refuse must fail. Returns at once
        if nothing has changed since the last call.
        """
        self.claim_uses = claim_uses
        before, given = self.assigned, (self.item, rejects, claim_uses)
        choices = [entry.choice for entry in self._spec.on_node(self.node.name) if entry.choice]
        chosen = tuple(self.node.labels.get(name) for each in choices for name in (each.label, each.state_label))
        seen = (self._spec, *given, self.node.ready_since(), chosen, before, *pods.values())
        is_quiet = not self.engine.runs and (self._again is None or self._clock.now() < self._again)
        if is_quiet and seen == self._planned_from:
            return self._again
        self._planned_from = () if self.engine.runs else seen
        self._again = await self._sync(pods, rejects=rejects)
        if self.assigned != before:
            self._again = self._clock.now()  # the new devices of pods are input of the next plan
        return self._again

    async def _sync(self, pods: Mapping[str, Pod], *, rejects: bool) -> float | None:
        last, in_use = self.plan, self._in_use(pods)
        spec, base = self._partitioned(pods, in_use)
        faults = self.engine.look(base)
        self.plan = desired_state(
            ObservedState(
                spec=spec,
                layouts=self._progresses,
                node=self.node.name,
                machine=_MACHINE,
                found=self._found,
                inventory=base,
                faults=faults,
                in_use=in_use,
                claimed=self.claimed,
                previous=last.as_previous() if last else Previous(),
                now=self._clock.now(),
            ),
            self._intervals,
        )
        self.engine.relabel({**self.node.labels, **self.plan.labels})
        self._assign(pods, is_first=last is None)
        self._notes.update(self.assigned, self.plan.advertised, rejects=rejects)
        due, wait = delayed(self.plan, self.item, self._age())
        for applier in self.appliers:
            await applier.apply(due)
        for rule in self.engine.take_one_shots():
            if rule.slices is not None:
                self.slices.wipe(rule.concerns)
            elif rule.event is not None:
                self._events.announce(rule.event)
        if self.engine.answers_changed:
            self.slices.look()
        delay_ends = None if wait is None else self._clock.now() + wait
        return earliest((self.plan.again_at, self.engine.next_change, delay_ends))

    def _partitioned(self, pods: Mapping[str, Pod], in_use: InUse) -> tuple[Spec, Inventory]:
        """Return the configuration with the partition layouts in force, and its inventory."""
        spec, node, last, claimed = self._spec, self.node.name, self.plan, self.claimed
        if not any(entry.choice for entry in spec.on_node(node)):
            self._progresses = {}
            return spec, arrange(spec, node, self._found)
        before, listed, pools = self._progresses, EMPTY, NO_POOLS
        if last is not None:
            listed, pools = last.advertised, last.pools
        else:
            # The annotations of pods, and the devices of claims, show which layouts an earlier controller had in force.
            noted = {key: Holder(each.key) for each in pods.values() for key in keys_of(each.noted or {})}
            in_use = replace(in_use, devices=noted)
            if noted or claimed:
                before, listed, pools = self._recall(noted, claimed)
        view = RepartitionView(
            labels=self.node.labels,
            found=self._found,
            listed=listed,
            in_use=in_use,
            claimed=claimed_devices(pools, claimed),
            now=in_use.asked_at,
        )
        self._progresses, base = repartition.advance(before, spec, node, view)
        cut = repartition.in_force(spec, self._progresses)
        return cut, arrange(cut, node, self._found) if base is None else base

    def _recall(self, noted: Collection[Key], claimed: Held) -> tuple[Progresses, Inventory, Pools]:
        """The layouts in force when pods and claims got their devices, if the present labels choose others."""
        choices = [each.choice for each in self._spec.on_node(self.node.name) if each.choice]
        values = dict.fromkeys(name for each in choices for name in each.layouts)
        for value in (None, *values):
            chosen = self.node.labels if value is None else {each.label: value for each in choices}
            cut, before = repartition.chosen(self._spec, self.node.name, chosen, self._found)
            base = arrange(cut, self.node.name, self._found)
            pools = published_pools(base.claimable, base.claimable)
            has_noted = all(name in base.resources and key in base.resources[name].by_id for name, key in noted)
            has_claimed = all(
                pools[driver].by_name.keys() >= set(names) for driver, names in claimed.items() if driver in pools
            )
            if has_noted and has_claimed:
                return ({}, EMPTY, NO_POOLS) if value is None else (before, base, pools)
        return {}, EMPTY, NO_POOLS

    def _assign(self, pods: Mapping[str, Pod], *, is_first: bool) -> None:
        """Assign devices to the pods. Devices that they had when the node came do not trigger `onAllocate` rules."""
        assert self.plan is not None
        before, present = self.assigned.devices, [*pods.values()]
        self.assigned = assign(self.plan.advertised, present, self.assigned)
        for pod in present:
            devices = self.assigned.devices.get(pod.uid)
            if devices and pod.uid not in before and not (is_first and pod.noted):
                for resource, ids in grouped(sorted(keys_of(devices))).items():
                    self.engine.note_allocate(resource, ids)
        used = frozenset(self.plan.observed.in_use.claims)
        for use in () if is_first else used - self._used:
            if (pool := self.plan.pools.get(use.driver)) and (device := pool.by_name.get(use.device)):
                self.engine.note_allocate(use.driver, (device.device.id,))
        self._used = used

    def _in_use(self, pods: Mapping[str, Pod]) -> InUse:
        """The devices of the pods that still exist."""
        holders: dict[Key, Holder] = {}
        for uid, devices in self.assigned.devices.items():
            pod = pods.get(uid)
            if pod is not None:
                for container, of in devices.items():
                    keys = {(name, each) for name, ids in of.items() for each in ids}
                    holders |= dict.fromkeys(keys, Holder(pod.key, container))
        now = self._clock.now()
        claims = tuple(use for use in self.claim_uses if use.pod)
        return InUse(devices=holders, claims=claims, asked_at=now, answered_at=now, answers_since=now)

    def _age(self) -> float | None:
        since = self.node.ready_since()
        return None if since is None else max(0.0, self._clock.wall() - datetime.fromisoformat(since).timestamp())


def _devices(spec: Spec, node: str) -> Mapping[str, Sequence[RawDevice]]:
    """The devices of the node by entry: virtual ones, since it has no host."""
    return {each.name: virtual_devices(each, each.virtual, node) if each.virtual else () for each in spec.on_node(node)}


def first_plan(spec: Spec, node: str, labels: Mapping[str, str]) -> DesiredState:
    """The plan for a node with these labels, before pods, claims and faults."""
    found = _devices(spec, node)
    spec, layouts = repartition.chosen(spec, node, labels, found)
    return desired_state(
        ObservedState(
            spec=spec,
            node=node,
            layouts=layouts,
            machine=_MACHINE,
            found=found,
            inventory=arrange(spec, node, found),
        )
    )


def spec_for_fleet(spec: Spec) -> Spec:
    """The configuration for nodes without a kubelet: resources and labels are on the Node."""
    return spec.model_copy(
        update={"node": spec.node.model_copy(update={"labels": bool(spec.node.labels), "status": True})}
    )


NOTHING = spec_for_fleet(Spec())
"""The configuration of a node that the file no longer selects."""
