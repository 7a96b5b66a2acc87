"""One node of the fleet: what is decided for it, and the appliers that tell it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from .. import discovery
from ..dra.slice_applier import ResourceSlices
from ..dra.slices import Claimed
from ..faults.engine import Engine
from ..faults.rule_store import Sources
from ..faults.schedule import earliest
from ..hostfs import HostRoot
from ..model.device import Key, RawDevice, grouped
from ..model.entry import EntrySpec
from ..model.fleet import Delays
from ..model.sources import VirtualSource
from ..model.spec import Spec
from ..node.api_applier import ApiApplier, NodeAccess
from ..node.event_applier import NodeEvents
from ..node.events import Situation
from ..node.label_applier import NodeLabels
from ..node.label_values import Machine
from ..node.status_applier import NodeStatus
from ..planning.in_use import Holdings, Use
from ..planning.inventory import arrange
from ..planning.plan import DesiredState, ObservedState, desired_state
from .cluster import SeenNode, SeenSlices
from .layouts import Layouts
from .pod_devices import Assignment, assign, by_resource, held
from .scope import delayed, next_age
from .seen_pods import PodNotes, SeenPods
from .writers import Writer


class _NoHost(HostRoot):
    """The host of a node that has none: no path of this machine is one of its own."""

    def info(self, host_path: str) -> None:
        """Nothing is there."""
        del host_path


NOWHERE = _NoHost(Path("/nonexistent"))
MACHINE = Machine("vdev")
NOBODY = Holdings(holders={})
"""No pod holds anything."""


class Member:
    """A node, from when it is known on. `plan` is the last decision, whole; what it is told may come later.

    `engine` has the fault rules; their times count from the same moments on all nodes, so that it does not matter when
    the API server told of which.
    """

    def __init__(self, node: SeenNode, slices: SeenSlices, notes: PodNotes, access: NodeAccess, engine: Engine) -> None:
        self.node = node
        self.engine = engine
        self.assigned = Assignment()
        self.allocated: tuple[Use, ...] = ()  # to claims, by which pods or by none yet
        self.rejects = False
        self.notes = notes
        self.plan: DesiredState | None = None
        self.delays = Delays()
        self.labels = NodeLabels(access)
        self.status = NodeStatus(access)
        self.events = NodeEvents(access, self._situation)
        self.slices = ResourceSlices(access, slices, engine)
        self._clock = access.timing.clock
        self._intervals = access.timing.intervals
        self._layouts = Layouts(node.name)
        self._spec = Spec()
        self._found: Mapping[str, Sequence[RawDevice]] = {}
        self._used: frozenset[Use] = frozenset()  # at the last decision
        self._decided_of: tuple[object, ...] = ()  # what the last turn depended on
        self._again: float | None = None  # when it said to decide again

    @property
    def appliers(self) -> tuple[ApiApplier, ...]:
        """Labels before capacity, slices last: who schedules by capacity finds the labels there."""
        return (self.labels, self.status, self.slices, self.events)

    @property
    def writers(self) -> tuple[Writer, ...]:
        return (*self.appliers, self.notes)

    def adopt(self, spec: Spec, delays: Delays, rules: Sources, since: Mapping[str, float]) -> None:
        """From now on the node is as this configuration says, with these rules, whose times count `since` then."""
        self.delays = delays
        if spec is self._spec:
            return
        name = self.node.name
        self._found = {each.name: discovery.discover(each, NOWHERE, node=name).devices for each in spec.on_node(name)}
        self._spec = spec
        if any(rule.nodes.labels for rule in spec.faults.rules):
            self.engine.relabel({**self.node.labels, **self._first_plan().labels})
        self.engine.load(rules, since=since)

    @property
    def claimed(self) -> Claimed:
        """The devices that claims have, by driver."""
        return {
            driver: frozenset(devices)
            for driver, devices in grouped((use.driver, use.device) for use in self.allocated).items()
        }

    def _uses(self) -> tuple[Use, ...]:
        """Which pod has which device by a claim."""
        return tuple(use for use in self.allocated if use.pod)

    def relabel(self) -> None:
        """Let rules know the labels that the Node has, and those that it shall have from here."""
        self.engine.relabel({**self.node.labels, **(self.plan.labels if self.plan else {})})

    def leave(self) -> None:
        """From now on nothing is to be told of the node."""
        self.engine.load({})
        self.adopt(NOTHING, Delays(), {}, {})

    @property
    def has_anything(self) -> bool:
        """Whether the last decision tells anything of the node: also devices that are held on, though they left."""
        return self.plan is not None and any((self.plan.labels, self.plan.capacity, self.plan.pools))

    def _first_plan(self) -> DesiredState:
        """What the node has before anything happened to it."""
        name = self.node.name
        base = arrange(self._spec, name, self._found)
        world = ObservedState(
            spec=self._spec, node=name, machine=MACHINE, found=self._found, base=base, holdings=NOBODY
        )
        return desired_state(world, self._intervals)

    async def turn(self, pods: SeenPods) -> float | None:
        """Decide for the node and its pods, and tell the appliers; returns when (by the clock) to decide again.

        Where nothing is new since the last turn it is over at once.
        """
        before, given = self.assigned, (self.delays, self.rejects, self.allocated)
        chosen = self._layouts.told(self._spec, self.node.labels)
        seen = (self._spec, *given, self.node.ready_since(), chosen, before, *pods.by_uid.values())
        is_quiet = not self.engine.runs and (self._again is None or self._clock.now() < self._again)
        if is_quiet and seen == self._decided_of:
            return self._again
        self._decided_of = () if self.engine.runs else seen
        self._again = await self._turn(pods)
        if self.assigned != before:
            self._again = self._clock.now()  # what pods have now is part of the next decision
        return self._again

    async def _turn(self, pods: SeenPods) -> float | None:
        last, holdings = self.plan, self._holdings(pods)
        spec, base = self._layouts.look(
            self._spec,
            self._found,
            self.node.labels,
            last=last,
            holdings=holdings,
            noted=_noted(pods),
            claimed=self.claimed,
            now=self._clock.now(),
        )
        afflictions = self.engine.look(base)
        self.plan = desired_state(
            ObservedState(
                spec=spec,
                choices=self._layouts.progresses,
                node=self.node.name,
                machine=MACHINE,
                found=self._found,
                base=base,
                afflictions=afflictions,
                holdings=holdings,
                claimed=self.claimed,
                before=last,
                pools=last.pools if last else {},
                now=self._clock.now(),
            ),
            self._intervals,
        )
        if self.engine.minds_labels:
            self.relabel()
        self._assign(pods, is_first=last is None)
        self.notes.settle(self.assigned, self.plan.inventory, rejects=self.rejects)
        for rule in self.engine.take_strikes():
            if rule.slices is not None:
                self.slices.wipe(rule.concerns)
        age = self._age()
        told = delayed(self.plan, self.delays, age)
        for applier in self.appliers:
            await applier.apply(told)
        if self.engine.stirred:
            self.slices.look()
        later = next_age(self.delays, age)
        grown = None if later is None or age is None else self._clock.now() + later - age
        return earliest((self.plan.again_at, self.engine.next_change, self._layouts.again_at, grown))

    def _assign(self, pods: SeenPods, *, is_first: bool) -> None:
        """Give the pods their devices. What they had when the node came sets off no rule that waits for that."""
        assert self.plan is not None
        before, there = self.assigned.devices, [each.pod for each in pods.by_uid.values()]
        self.assigned = assign(self.plan.inventory, there, self.assigned)
        for pod in there:
            devices = self.assigned.devices.get(pod.uid)
            if devices and pod.uid not in before and not (is_first and pod.noted):
                for resource, ids in by_resource(devices).items():
                    self.engine.allocated(resource, ids)
        used = frozenset(self._uses())
        for use in () if is_first else used - self._used:
            if (pool := self.plan.pools.get(use.driver)) and (device := pool.by_name.get(use.device)):
                self.engine.allocated(use.driver, (device.device.id,))
        self._used = used

    def _holdings(self, pods: SeenPods) -> Holdings:
        """Who has what, of the pods that are still there."""
        holders: dict[Key, str] = {}
        containers: dict[Key, str] = {}
        for uid, devices in self.assigned.devices.items():
            seen = pods.by_uid.get(uid)
            if seen is not None:
                for container, of in devices.items():
                    keys = {(name, each) for name, ids in of.items() for each in ids}
                    holders |= dict.fromkeys(keys, f"{seen.pod.namespace}/{seen.pod.name}")
                    containers |= dict.fromkeys(keys, container)
        return Holdings(holders=holders, containers=containers, claimed=self._uses(), read_at=self._clock.now())

    def _situation(self) -> Situation:
        return Situation(announced=dict(self.engine.announced))  # as it is now: the engine goes on counting

    def _age(self) -> float | None:
        since = self.node.ready_since()
        if since is None:
            return None
        try:
            return max(0.0, self._clock.wall() - datetime.fromisoformat(since).timestamp())
        except ValueError:
            return None


def _noted(pods: SeenPods) -> Mapping[Key, str]:
    """The pods that have devices, by what is written on them."""
    return {
        key: f"{each.pod.namespace}/{each.pod.name}"
        for each in pods.by_uid.values()
        for key in held(each.pod.noted or {})
    }


def spec_for_fleet(spec: Spec) -> Spec:
    """The configuration as nodes without a kubelet have it: resources by the Node's status, labels on the Node, and
    nothing below /dev.
    """
    node = spec.node
    told = node.model_copy(update={"labels": bool(node.labels), "status": True})
    return replace(spec, node=told, entries=tuple(map(_without_nodes, spec.entries)))


def _without_nodes(entry: EntrySpec) -> EntrySpec:
    source = entry.source
    if not isinstance(source, VirtualSource):
        return entry
    return replace(entry, source=replace(source, driver_nodes=(), partition_nodes=()))


NOTHING = spec_for_fleet(Spec())
"""What is said of a node that is not ours any more."""
