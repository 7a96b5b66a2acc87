"""`Engine`: all fault rules of one node, and their current effects on devices, calls, registrations, streams and files.

`schedule` decides when a rule is active, and `targets` which devices it selects. Both are pure; a `RuleRun` keeps the
state that they need. The affected code calls hooks of the engine. Each injected fault is counted, and logged with
`injected=True`.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from ..aio.clock import Clock
from ..model.device import Key
from ..observe.metrics import Metrics
from ..planning.resources import EMPTY, Inventory
from . import targets
from .effects import ApiFaults, RegisterFaults, Rpc, StreamFaults
from .rules import COUNTS_BEGINNINGS, DEVICE, KINDS, FaultRule
from .schedule import NO_LABELS, Activation, Dice, begins_between, earliest, hits, on_node, phase, seconds_of
from .targets import ActiveFaults

log = structlog.get_logger(__name__)

_Effect = TypeVar("_Effect")

_NOT_NOW = RegisterFaults(never=True)


@dataclass(slots=True)
class LoadedRule:
    """A loaded rule, shared by all nodes of a process."""

    rule: FaultRule
    source: str
    since: float  # the time from which the rule's times count
    cleared: bool = False


@dataclass(slots=True)
class RuleRun:
    """A rule and its state on one node. Times are seconds of the engine's clock."""

    loaded: LoadedRule
    dice: Dice
    here: bool  # whether the rule is for this node
    looked_at: float  # the time of the last update; earlier events are skipped
    activations: tuple[Activation, ...] = ()  # that have not ended
    acting: tuple[Activation, ...] = ()  # the activations that make the rule active now
    file_exists: bool | None = None  # whether the file that the rule waits for exists; None: unknown
    changes_at: float | None = None
    injections: Counter[str] = field(default_factory=Counter)  # the number of injected faults, by resource
    delays: dict[str, float] = field(default_factory=dict)  # the end of each delay of an active rule, by resource
    calls: Counter[object] = field(default_factory=Counter)
    targets: frozenset[Key] = frozenset()

    @property
    def rule(self) -> FaultRule:
        return self.loaded.rule

    @property
    def live(self) -> bool:
        """Whether the rule can have an effect on this node."""
        return self.here and not self.loaded.cleared

    @property
    def active(self) -> bool:
        return bool(self.acting)

    def activate(self, activation: Activation) -> None:
        """Start the rule's times again."""
        self.activations = (*self.activations, activation)
        # Just before now, so that the next look includes an event at exactly this time.
        self.looked_at = math.nextafter(activation.at, -math.inf)

    def look(self, now: float) -> bool:
        """Update the state. Returns whether a momentary fault must happen now."""
        rule, was_active, since = self.rule, self.active, self.looked_at
        begins = rule.momentary and any(begins_between(rule, self.dice, each, since, now) for each in self.activations)
        phases = [(each, *phase(rule, self.dice, each, now)) for each in self.activations]
        self.acting = tuple(each for each, is_active, _ in phases if is_active)
        self.activations = tuple(each for each, is_active, changes_at in phases if is_active or changes_at is not None)
        self.changes_at = earliest(changes_at for *_, changes_at in phases)
        self.looked_at = now
        if not self.active:
            self.delays.clear()
        return begins if rule.momentary else self.active and not was_active

    def hit(self, inventory: Inventory) -> frozenset[Key]:
        """Return the slots that the rule affects now; after an Allocate, the whole units of the allocated devices."""
        keys = (
            self.targets if each.keys is None else targets.widened(each.keys, self.rule, inventory)
            for each in self.acting
        )
        return frozenset[Key]().union(*keys)

    def counted_hit(self, *what: object) -> int:
        """Count a call, an allocation or another event. Returns its number, or 0 if the rule does not hit it."""
        self.calls[what] += 1
        number = self.calls[what]
        return number if hits(self.rule, self.dice, number, *what) else 0


class Engine:
    def __init__(
        self,
        node: str,
        clock: Clock,
        metrics: Metrics,
        *,
        on_change: Callable[[], None],  # called if `look` is needed before `next_change`
        labels: Mapping[str, str] = NO_LABELS,  # of the node
        started: float | None = None,  # when the process started; None: now
        came: float = -math.inf,  # when the node was created; earlier events are skipped
        is_one_of_many: bool = False,  # whether faults are only logged at level debug
    ) -> None:
        self.clock = clock
        self.runs: dict[str, RuleRun] = {}
        self.inventory: Inventory = EMPTY  # the node's devices at the last `look`
        self.active_faults = targets.NONE
        self.next_change: float | None = None  # when the next `look` is due; None: only events change the state
        self.answers_changed = False  # by the last `look`; waiting calls must then evaluate the rules again
        self._node = node
        self._labels = labels
        self._metrics = metrics
        self._on_change = on_change
        self._started = clock.now() if started is None else started
        self._came = came
        self._is_one_of_many = is_one_of_many
        self._active: tuple[RuleRun, ...] = ()
        self._one_shots: list[FaultRule] = []
        self._looked_at = -math.inf

    # --- rules --------------------------------------------------------------------------------------------------------

    def load(self, rules: Mapping[str, LoadedRule]) -> None:
        """Replace all rules, which are given by name. Rules that are already in force continue."""
        before, now = self.runs, dict[str, RuleRun]()
        for name, loaded in rules.items():
            run = before.get(name)
            if run is None or run.loaded is not loaded:
                run = self._begun(loaded)
            now[name] = run
        self.runs = now
        for name, run in before.items():
            if self.runs.get(name) is not run:
                self._end(run)
                run.here = False
        if before or self.runs:
            self._on_change()

    def _begun(self, loaded: LoadedRule) -> RuleRun:
        rule, dice = loaded.rule, Dice(loaded.rule.seed, self._node)
        is_here = on_node(rule.on_nodes, rule.name, dice, self._labels)
        run = RuleRun(loaded, dice, is_here, max(math.nextafter(loaded.since, -math.inf), self._came))
        if not rule.triggered and not loaded.cleared:
            run.activations = (Activation(self._started if rule.since == "start" else loaded.since),)
        run.targets = targets.select(rule, self.inventory, dice)
        return run

    def relabel(self, labels: Mapping[str, str]) -> None:
        """Set the node's labels, by which rules may select nodes."""
        if labels == self._labels:
            return
        self._labels = labels
        for run in self.runs.values():
            is_here = on_node(run.rule.on_nodes, run.rule.name, run.dice, labels)
            if is_here != run.here:
                self._end(run)
                run.here, run.looked_at = is_here, self.clock.now()
                self._on_change()

    def clear(self, name: str) -> None:
        run = self.runs[name]
        self._end(run)
        run.activations = ()
        self._on_change()

    def trigger(self, name: str) -> None:
        """Start a rule's fault now. The rule must be for this node."""
        run = self.runs[name]
        run.activate(Activation(self.clock.now(), once=not run.rule.triggered))
        self._on_change()

    def _end(self, run: RuleRun) -> None:
        if run.active:
            self._log(logging.INFO, "fault ends", run)
        run.acting = ()

    def meet(self, inventory: Inventory) -> None:
        """Set the node's devices, and find those that each rule selects. Blocks briefly if there are many."""
        if inventory != self.inventory:
            self.inventory = inventory  # first, because `load` in another thread selects from it
            for run in tuple(self.runs.values()):
                run.targets = targets.select(run.rule, inventory, run.dice)

    # --- calls of the agent -------------------------------------------------------------------------------------------

    def look(self, inventory: Inventory) -> ActiveFaults:
        """Update all rules. Returns their current effects on the devices of this inventory."""
        self.meet(inventory)
        now, since, before = self.clock.now(), self._looked_at, self._active
        self._looked_at = now
        live = [run for run in self.runs.values() if run.live]
        for run in live:
            self._look_at(run, now)
        self._active = tuple(run for run in live if run.active)
        # The kubelet learns at the registration whether to call PreStartContainer, so all rules count, active or not.
        failing = [run.rule for run in live if Rpc.PRE_START in run.rule.rpc]
        self.active_faults = ActiveFaults(
            tuple((run.rule, run.hit(self.inventory)) for run in self._active),
            frozenset(name for name in self.inventory.resources if any(rule.concerns(name) for rule in failing)),
        )
        ends = [end for run in self._active for end in run.delays.values()]
        self.answers_changed = before != self._active or any(since < end <= now for end in ends)
        self.next_change = earliest((*(run.changes_at for run in live), *(end for end in ends if end > now)))
        active = Counter(run.rule.kind for run in self._active)
        for kind in KINDS:
            self._metrics.faults_active.labels(kind).set(active[kind])
        return self.active_faults

    def take_one_shots(self) -> list[FaultRule]:
        """Return the rules whose momentary faults must happen now. Each is returned once."""
        due, self._one_shots = self._one_shots, []
        return due

    @property
    def pod_resources_down(self) -> bool:
        return any(run.rule.pod_resources is not None for run in self._active)

    def cdi(self, resource: str) -> str | None:
        """Return the active fault of a resource's CDI file, or None."""
        for run, block in self._acting(lambda rule: rule.cdi, resource):
            if block.late is None:
                return block.fault
            if not self._has_waited(run, resource, block.late):
                return "missing"
        return None

    def saw_file(self, run: RuleRun, *, exists: bool) -> None:
        before, run.file_exists = bool(run.file_exists), exists
        if exists == before:
            return
        if not exists:
            run.activations = ()
        elif run.counted_hit():
            run.activate(Activation(self.clock.now()))
        self._on_change()

    # --- hooks --------------------------------------------------------------------------------------------------------

    def on_call(self, rpc: Rpc, name: str) -> tuple[RuleRun, float] | None:
        """Return the first rule that hits this call of a resource or a driver, and the seconds that the call waits."""
        for run in self._active:
            rule = run.rule
            if rpc in rule.rpc and rule.concerns(name) and (number := run.counted_hit(rpc, name)):
                delay = seconds_of(rule.delay, run.dice, rule.name, number, rpc, name) if rule.delay else 0.0
                self._inject(run, name, call=rpc.value, number=number, delay=round(delay, 3))
                return run, delay
        return None

    def on_register(self, resource: str) -> tuple[str, RegisterFaults] | None:
        """Return the rule's name and its fault of this registration. `never` also means that it must wait."""
        for run in self._active:
            rule, name = run.rule, run.rule.name
            if not rule.concerns(resource):
                continue
            # A lost socket or stream would make the plugin register again at once, which would end the fault.
            if rule.socket is not None or (rule.stream is not None and rule.stream.close):
                return name, _NOT_NOW
            block = rule.register_
            if block is None:
                continue
            if block.never:
                self._inject_once(run, resource)
                return name, block
            if block.delay is not None:
                if not self._has_waited(run, resource, block.delay):
                    return name, _NOT_NOW
                del run.delays[resource]  # the next registration is delayed again
                continue
            if number := run.counted_hit(resource):
                self._inject(run, resource, number=number)
                return name, block
        return None

    def on_api(self, verb: str, resource: str) -> tuple[str, ApiFaults] | None:
        """Return the name and the fault of the first rule that hits this request to the API server."""
        for run in self._active:
            block = run.rule.api
            if block and block.concerns(verb, resource) and (number := run.counted_hit(verb, resource)):
                self._inject(run, resource, call=verb, number=number)
                return run.rule.name, block
        return None

    def on_stream(self, resource: str) -> StreamFaults | None:
        for run, block in self._acting(lambda rule: rule.stream, resource):
            if not block.close:
                self._inject_once(run, resource)
                return block
        return None

    def on_health(self, driver: str) -> str | None:
        """Return the current fault of a DRA driver's health stream, or None."""
        for run, block in self._acting(lambda rule: rule.health_stream, driver):
            self._inject_once(run, driver)
            return block.fault
        return None

    def on_slices(self, driver: str, *, changed: bool) -> str | None:
        """Return the current fault of a DRA driver's slices, or None. `changed`: there is a change to write."""
        for run, block in self._acting(lambda rule: rule.slices, driver):
            if block.late is None:
                if not block.wiped:  # `wiped` is counted when it happens
                    self._inject_once(run, driver)
                return block.fault
            if changed and not self._has_waited(run, driver, block.late):
                return block.fault
            run.delays.pop(driver, None)  # the next change is delayed again
        return None

    def note_allocate(self, resource: str, ids: Iterable[str]) -> None:
        """Start the rules that wait for an allocation of these devices."""
        if not self.runs:
            return
        keys = frozenset((resource, each) for each in ids)
        for run in self.runs.values():
            waits = run.live and run.rule.on_allocate
            if waits and (selected := keys & run.targets) and run.counted_hit():
                run.activate(Activation(self.clock.now(), selected))
                self._on_change()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _acting(self, effect: Callable[[FaultRule], _Effect | None], name: str) -> Iterator[tuple[RuleRun, _Effect]]:
        """Yield the active rules with this effect that concern a resource or driver."""
        for run in self._active:
            block = effect(run.rule)
            if block is not None and run.rule.concerns(name):
                yield run, block

    def _look_at(self, run: RuleRun, now: float) -> None:
        rule, before = run.rule, run.active
        must_act = run.look(now)
        if must_act and rule.acts_once:
            self._one_shots.append(rule)
            if rule.api is None:  # faults of the API server are counted with each request
                self._inject(run, rule.resource)
        if run.active == before:
            return
        devices = sorted({each for _, each in run.targets})[:8] if rule.kind == DEVICE else None
        level, event = (logging.WARNING, "fault begins") if run.active else (logging.INFO, "fault ends")
        self._log(level, event, run, devices=devices)
        if run.active and rule.kind in COUNTS_BEGINNINGS:
            affected = {name for name, _ in run.hit(self.inventory)} if rule.kind == DEVICE else set()
            for resource in sorted(affected) or (rule.resource,):
                self._count(run, resource)

    def _has_waited(self, run: RuleRun, name: str, delay: float) -> bool:
        """Whether the delay that began with the first call for this resource or driver has ended."""
        if name not in run.delays:
            run.delays[name] = self.clock.now() + delay
            self._inject(run, name, delay=delay)
            self._on_change()
        return self.clock.now() >= run.delays[name]

    def _inject_once(self, run: RuleRun, resource: str) -> None:
        if run.injections[resource] == 0:
            self._inject(run, resource)

    def _inject(self, run: RuleRun, resource: str, **more: object) -> None:
        self._count(run, resource)
        self._log(logging.WARNING, "fault injected", run, resource=resource, **more)

    def _count(self, run: RuleRun, resource: str) -> None:
        run.injections[resource] += 1
        self._metrics.faults_injected.labels(run.rule.kind, resource).inc()

    def _log(self, level: int, event: str, run: RuleRun, **more: object) -> None:
        if self._is_one_of_many:
            level, more = logging.DEBUG, {"node": self._node, **more}
        log.log(level, event, rule=run.rule.name, kind=run.rule.kind, **more, injected=True)
