"""The rules in force and their runs: answers the plugin's hooks, and tells the agent what to do to devices and when to
look again.

Decides nothing of its own: `core.faults.schedule` says when, `core.faults.targets` on what; here is the memory that
they take as arguments (when a rule was loaded, what fired, how many calls there were). Everything that it lets happen
is logged with `injected=True` and counted.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from ..aio.clock import Clock, sleep
from ..core.faults import targets
from ..core.faults.schedule import Dice, Firing, Key, Phase, earliest, hits, on_node, phase, seconds_of, strikes
from ..core.faults.targets import Afflictions
from ..core.inventory.resources import EMPTY, Inventory
from ..core.model.device import Health
from ..core.model.fault_effects import (
    Call,
    CallFault,
    Cdi,
    CdiFault,
    FaultKind,
    Flap,
    PodResources,
    Process,
    Register,
    RegisterFault,
    Remove,
    Rpc,
    SetHealth,
    Socket,
    SocketFault,
    Stream,
    StreamFault,
)
from ..core.model.fault_rules import ALWAYS, FaultRuleSpec, FaultSpec, Start
from ..errors import UsageError
from ..observe.metrics import Metrics

log = structlog.get_logger(__name__)

CONFIGURATION = "configuration"
"""The source whose rules win over those of the same name."""
_RANK = {CONFIGURATION: 0, "live": 2}
_OVER = Phase(active=False, changes_at=None)


@dataclass(frozen=True, slots=True)
class Strike:
    """A momentary fault that must happen now: to the resources' streams or sockets, or to the process."""

    rule: FaultRuleSpec
    fault: StreamFault | SocketFault | Process


@dataclass(slots=True)
class Run:
    """One rule on this node, since it was loaded."""

    rule: FaultRuleSpec
    source: str
    dice: Dice
    loaded_at: float
    here: bool
    firings: tuple[Firing, ...] = ()
    fired: int = 0
    cleared: bool = False
    active: bool = False
    changes_at: float | None = None
    looked_at: float = -math.inf
    injections: Counter[str] = field(default_factory=Counter)
    calls: Counter[object] = field(default_factory=Counter)
    targets: frozenset[Key] = frozenset()

    @property
    def live(self) -> bool:
        """Whether it can do anything on this node."""
        return self.here and not self.cleared

    @property
    def injected(self) -> int:
        """How many times it did something; what reaches several resources at once counts for each of them."""
        return self.injections.total()


def by_lot(rule: FaultRuleSpec) -> bool:
    """Whether the seed matters to the rule."""
    when, chance, selection, effect = rule.when, rule.chance, rule.selection, rule.effect
    return bool(
        when.jitter
        or chance.probability < ALWAYS
        or selection.pick is not None
        or selection.share is not None
        or rule.nodes.share < ALWAYS
        or (isinstance(effect, Call) and effect.delay is not None and effect.delay.median < effect.delay.most)
    )


class Engine:
    """All rules of this node. `on_change` is called when a look is due before `next_change`.

    `stirred`: the last look changed answers to the hooks, so that whoever waits for one must ask again.
    """

    def __init__(self, node: str, clock: Clock, metrics: Metrics, *, on_change: Callable[[], None]) -> None:
        self.clock = clock
        self.runs: dict[str, Run] = {}
        self.afflictions = targets.NONE
        self._node = node
        self._metrics = metrics
        self._on_change = on_change
        self._started: float | None = None
        self._inventory: Inventory = EMPTY
        self._late: dict[tuple[str, str], float] = {}  # (rule, what) -> when it has waited long enough
        self._active = tuple[Run, ...]()
        self._struck: list[Strike] = []
        self._looked_at = -math.inf
        self.stirred = False

    # --- rules --------------------------------------------------------------------------------------------------------

    def load(self, source: str, faults: FaultSpec) -> None:
        """The rules of a source are these now: a changed one starts anew, an equal one goes on, a missing one heals.

        Another seed changes the rules that draw lots.

        Raises UsageError when another source has a rule of the same name, over which only the configuration wins.
        """
        dice = Dice(faults.seed, self._node)
        self._started = self.clock.now() if self._started is None else self._started
        for rule in faults.rules:
            other = self.runs.get(rule.name)
            if other is not None and source not in (other.source, CONFIGURATION):
                raise UsageError(f"the rule {rule.name!r} exists already, from {other.source}; choose another name")
        kept = {name: run for name, run in self.runs.items() if run.source != source}
        for rule in faults.rules:
            old = self.runs.get(rule.name)
            same = old is not None and old.rule == rule and (old.dice == dice or not by_lot(rule))
            kept[rule.name] = old if old and same else self._begin(rule, source, dice)
        for name, run in self.runs.items():
            if kept.get(name) is not run:
                self._end(run)
        self.runs = dict(sorted(kept.items(), key=lambda each: _RANK.get(each[1].source, 1)))  # later rules win
        self._select()
        self._on_change()

    def clear(self, name: str) -> None:
        """End a rule; one of the configuration comes back when it is triggered or changed. Raises UsageError."""
        run = self._run(name)
        self._end(run)
        run.cleared, run.firings = True, ()
        self._on_change()

    def trigger(self, name: str, keys: frozenset[Key] | None = None) -> None:
        """Let a rule's fault happen now. Raises UsageError."""
        run = self._run(name)
        if not run.here:
            raise UsageError(f"the rule {name!r} is not for this node, {self._node}")
        run.cleared = False
        waits = run.rule.triggered
        self._fire(run, Firing(self.clock.now(), keys, once=not waits))
        self._on_change()

    def _run(self, name: str) -> Run:
        run = self.runs.get(name)
        if run is None:
            raise UsageError(f"there is no fault {name!r}; there are: {', '.join(sorted(self.runs)) or 'none'}")
        return run

    def _begin(self, rule: FaultRuleSpec, source: str, dice: Dice) -> Run:
        now = self.clock.now()
        run = Run(rule, source, dice, now, on_node(rule.nodes, rule.name, dice))
        started = now if self._started is None else self._started
        if rule.when.start is Start.LOAD or (rule.when.start is Start.START and started == now):
            run.firings = (Firing(now),)
        elif rule.when.start is Start.START:
            run.firings, run.looked_at = (Firing(started),), now  # what would have happened before is past
        return run

    def _end(self, run: Run) -> None:
        if run.active:
            log.info("fault ends", rule=run.rule.name, kind=run.rule.kind.value, injected=True)
        run.active = False
        self._late = {key: due for key, due in self._late.items() if key[0] != run.rule.name}

    def _fire(self, run: Run, firing: Firing) -> None:
        """One more zero of the rule's time; those that are over are forgotten."""
        now = self.clock.now()
        alive = (each for each in run.firings if phase(run.rule, run.dice, each, now) != _OVER)
        run.firings = (*alive, firing)
        run.fired += 1
        run.looked_at = math.nextafter(now, -math.inf)  # an event at this very moment is still to come

    def meet(self, inventory: Inventory) -> None:
        """These are the node's devices now; which of them each rule means."""
        if inventory is not self._inventory:
            self._inventory = inventory
            self._select()

    # --- what the agent asks ------------------------------------------------------------------------------------------

    def look(self, inventory: Inventory) -> Afflictions:
        """Bring every run up to now; what faults do to the devices of this inventory."""
        if not self.runs and not self._active:
            self.afflictions, self.stirred = targets.NONE, False
            return targets.NONE
        before = self._active
        came_due = any(self._looked_at < due <= self.clock.now() for due in self._late.values())
        self.meet(inventory)
        now = self.clock.now()
        for run in self.runs.values():
            if run.live:
                self._look_at(run, now)
        self._active = tuple(run for run in self.runs.values() if run.live and run.active)
        names = {run.rule.name for run in self._active}
        self._late = {key: due for key, due in self._late.items() if key[0] in names}
        self.afflictions = self._afflict(now)
        self.stirred = came_due or before != self._active
        self._looked_at = now
        for kind in FaultKind:
            self._metrics.faults_active.labels(kind.value).set(sum(run.rule.kind is kind for run in self._active))
        return self.afflictions

    @property
    def next_change(self) -> float | None:
        """When to look again, by the clock; None: not before something happens."""
        late = (due for due in self._late.values() if due > self.clock.now())
        return earliest((*(run.changes_at for run in self.runs.values() if run.live), *late))

    def take_strikes(self) -> list[Strike]:
        """What must happen now, each time once."""
        struck, self._struck = self._struck, []
        return struck

    def removed_by(self, key: Key) -> str | None:
        """The rule that unplugs this slot now."""
        if key not in self.afflictions.removed and key not in self.afflictions.dropped:
            return None
        return next(
            (run.rule.name for run in self._active if isinstance(run.rule.effect, Remove) and key in run.targets), None
        )

    @property
    def pod_resources_down(self) -> bool:
        """Whether the PodResources API shall not answer."""
        return any(isinstance(run.rule.effect, PodResources) for run in self._active)

    def cdi(self, resource: str) -> CdiFault | None:
        """What becomes of the resource's CDI file."""
        for run in self._active:
            effect = run.rule.effect
            if isinstance(effect, Cdi) and run.rule.concerns(resource):
                late = effect.fault is CdiFault.LATE
                if not (late and self._waited(run, resource, effect.delay)):
                    return CdiFault.MISSING if late else effect.fault
        return None

    @property
    def files(self) -> Mapping[str, str]:
        """The files that rules wait for, by rule."""
        return {name: run.rule.when.file for name, run in self.runs.items() if run.rule.when.start is Start.FILE}

    def saw_file(self, name: str, *, there: bool) -> None:
        """A rule's file is there, or is not."""
        run, now = self.runs[name], self.clock.now()
        if there and not run.firings:
            if hits(run.rule.chance, run.dice, name, run.fired + 1):
                self._fire(run, Firing(now))
            else:
                run.fired += 1
                run.firings = (Firing(now, until=now),)
        elif not there and run.firings:
            run.firings = ()
        else:
            return
        self._on_change()

    # --- hooks --------------------------------------------------------------------------------------------------------

    def on_call(self, rpc: Rpc, resource: str) -> CallFault | None:
        """What happens to this call: the first rule that hits it."""
        for run in self._active:
            effect = run.rule.effect
            if isinstance(effect, Call) and rpc in effect.rpcs and run.rule.concerns(resource):
                number = self._counted(run, (rpc, resource))
                if not hits(run.rule.chance, run.dice, run.rule.name, number, rpc, resource):
                    continue
                name = run.rule.name
                delay = seconds_of(effect.delay, run.dice, name, number, rpc, resource) if effect.delay else 0.0
                self._note(run, resource, call=rpc.value, number=number, delay=round(delay, 3))
                return CallFault(
                    rule=name, delay=delay, hang=effect.hang, fail=effect.fail, faulty_answer=effect.faulty_answer
                )
        return None

    def holds(self, rule: str) -> bool:
        """Whether a hanging call goes on hanging."""
        return any(run.rule.name == rule for run in self._active)

    def on_register(self, resource: str) -> RegisterFault | None:
        """What happens to the registration that is due."""
        for run in self._active:
            effect, name = run.rule.effect, run.rule.name
            if not run.rule.concerns(resource):
                continue
            match effect:
                case Stream(fault=StreamFault.CLOSE) | Socket():
                    return RegisterFault(rule=name, hold=True)
                case Register(never=True):
                    self._note_once(run, resource)
                    return RegisterFault(rule=name, hold=True)
                case Register(delay=delay) if delay:
                    if not self._waited(run, resource, delay):
                        return RegisterFault(rule=name, hold=True)
                    del self._late[name, resource]  # the next one is late again
                case Register():
                    number = self._counted(run, resource)
                    if hits(run.rule.chance, run.dice, name, number, resource):
                        self._note(run, resource, number=number)
                        return RegisterFault(rule=name, version=effect.version, twice=effect.twice)
        return None

    def on_stream(self, resource: str) -> Stream | None:
        """What becomes of the resource's streams now."""
        for run in self._active:
            effect = run.rule.effect
            if isinstance(effect, Stream) and effect.fault is not StreamFault.CLOSE and run.rule.concerns(resource):
                self._note_once(run, resource)
                return effect
        return None

    def allocated(self, resource: str, ids: Iterable[str]) -> None:
        """Devices were given to a pod: rules that wait for that begin, for these devices."""
        keys = frozenset((resource, each) for each in ids)
        for name, run in self.runs.items():
            if run.live and run.rule.when.start is Start.ALLOCATE and (mine := keys & run.targets):
                number = self._counted(run, "allocate")
                if hits(run.rule.chance, run.dice, name, number):
                    self._fire(run, Firing(self.clock.now(), mine))
                    self._on_change()

    async def sleep(self, seconds: float) -> None:
        """Wait by the clock."""
        await sleep(self.clock, seconds)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _select(self) -> None:
        for run in self.runs.values():
            run.targets = targets.select(run.rule, self._inventory, run.dice) if run.here else frozenset()

    def _look_at(self, run: Run, now: float) -> None:
        rule = run.rule
        phases = [phase(rule, run.dice, firing, now) for firing in run.firings]
        run.changes_at = earliest(each.changes_at for each in phases)
        active = any(each.active for each in phases)
        if rule.momentary or (active and not run.active):
            struck = any(strikes(rule, run.dice, each, run.looked_at, now) for each in run.firings)
            if (struck and rule.momentary) or (not rule.momentary and isinstance(rule.effect, (Stream, Socket))):
                self._strike(run)
        run.looked_at = now
        if active != run.active:
            run.active = active
            devices = targets.names(run.targets)[:8] if rule.kind is FaultKind.DEVICE else None
            write = log.warning if active else log.info
            write(
                f"fault {'begins' if active else 'ends'}",
                rule=rule.name,
                kind=rule.kind.value,
                devices=devices,
                injected=True,
            )
            if active and rule.kind in (FaultKind.DEVICE, FaultKind.CDI, FaultKind.POD_RESOURCES):
                for resource in self._resources_of(run):
                    self._note(run, resource, quiet=True)

    def _resources_of(self, run: Run) -> Iterable[str]:
        """The resources whose devices the rule hits now; for other kinds what the rule says."""
        if run.rule.kind is not FaultKind.DEVICE:
            return (run.rule.resource,)
        return sorted({name for name, _ in self._hit(run, self.clock.now())}) or (run.rule.resource,)

    def _strike(self, run: Run) -> None:
        match run.rule.effect:
            case Process() as effect:
                self._struck.append(Strike(run.rule, effect))
            case Stream(fault=StreamFault.CLOSE as fault) | Socket(fault=fault):
                self._struck.append(Strike(run.rule, fault))
            case _:
                return
        self._note(run, run.rule.resource)

    def _afflict(self, now: float) -> Afflictions:
        verdicts: dict[Key, Health] = {}
        removed: set[Key] = set()
        dropped: set[Key] = set()
        for run in self._active:
            keys = self._hit(run, now)
            match run.rule.effect:
                case SetHealth(healthy, reason):
                    verdicts |= dict.fromkeys(keys, Health(healthy, reason, run.rule.name))
                case Flap(reason=reason):
                    verdicts |= dict.fromkeys(keys, Health(False, reason, run.rule.name))
                case Remove(drop_held):
                    (dropped if drop_held else removed).update(keys)
        pre_start = frozenset(
            name
            for run in self.runs.values()
            if run.live and isinstance(run.rule.effect, Call) and Rpc.PRE_START in run.rule.effect.rpcs
            for name in self._inventory.resources
            if run.rule.concerns(name)
        )
        return Afflictions(verdicts, frozenset(removed), frozenset(dropped), pre_start)

    def _hit(self, run: Run, now: float) -> frozenset[Key]:
        """The slots that the run's active firings mean; an allocated slot's whole unit with it."""
        keys: set[Key] = set()
        for firing in run.firings:
            if phase(run.rule, run.dice, firing, now).active:
                keys |= run.targets if firing.keys is None else targets.widened(firing.keys, run.rule, self._inventory)
        return frozenset(keys)

    def _waited(self, run: Run, what: str, delay: float) -> bool:
        """Whether something that comes late has waited long enough, from its first mention on."""
        key = (run.rule.name, what)
        if key not in self._late:
            self._late[key] = self.clock.now() + delay
            self._note(run, what, delay=delay)
            self._on_change()
        return self.clock.now() >= self._late[key]

    def _counted(self, run: Run, what: object) -> int:
        run.calls[what] += 1
        return run.calls[what]

    def _note_once(self, run: Run, resource: str) -> None:
        if not run.calls[("noted", resource)]:
            run.calls[("noted", resource)] = 1
            self._note(run, resource)

    def _note(self, run: Run, resource: str, *, quiet: bool = False, **more: object) -> None:
        run.injections[resource] += 1
        self._metrics.faults_injected.labels(run.rule.kind.value, resource).inc()
        if not quiet:
            log.warning(
                "fault injected", rule=run.rule.name, kind=run.rule.kind.value, resource=resource, injected=True, **more
            )
