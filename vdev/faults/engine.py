"""The fault rules in force: what the plugin's hooks answer, what happens to devices, and when to look again.

It decides nothing itself: `faults.schedule` says when, `faults.targets` to what, and each rule's `rule_run`
is the memory that they need. Everything that it makes happen is logged with `injected=True` and counted.
"""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from ..aio.clock import Clock
from ..errors import UsageError
from ..model.device import Key
from ..observe.metrics import Metrics
from ..planning.resources import EMPTY, Inventory
from . import targets
from .afflicted import afflictions_of
from .effects import (
    ApiFaults,
    ClaimCall,
    EventFault,
    RegisterFaults,
    Rpc,
    StreamFaults,
)
from .rule_run import RuleRun, begin, needs_seed
from .rules import DEVICE, KINDS, CallFault, FaultRule, Start
from .schedule import NO_LABELS, Dice, Firing, earliest, on_node, seconds_of
from .targets import Afflictions

log = structlog.get_logger(__name__)

_NOTED_AT_BEGINNING = (DEVICE, "cdi", "podResources", "condition")
_FROM_NOW_ON: Mapping[str, float] = {}
_NOT_NOW = RegisterFaults(never=True)


class Engine:
    """All rules of this node. `on_change` is called when a look is due before `next_change`.

    `labels` are those of the node at first, `started` is when the process began (None: with the first rules), and
    `came` when the node did: what would have happened before is past. Of one of many nodes nobody wants to read in the
    log; only its debug lines tell.
    `stirred`: the last look changed answers to the hooks, so that those who wait for one must ask again.
    """

    def __init__(
        self,
        node: str,
        clock: Clock,
        metrics: Metrics,
        *,
        on_change: Callable[[], None],
        labels: Mapping[str, str] = NO_LABELS,
        started: float | None = None,
        came: float = -math.inf,
        is_one_of_many: bool = False,
    ) -> None:
        self.clock = clock
        self.runs: dict[str, RuleRun] = {}
        self.afflictions = targets.NONE
        self._node = node
        self._labels = labels
        self._metrics = metrics
        self._on_change = on_change
        self._started = started
        self._came = came
        self._is_one_of_many = is_one_of_many
        self._inventory: Inventory = EMPTY
        self._late: dict[tuple[str, str], float] = {}  # (rule, what) -> when it has waited long enough
        self._active = tuple[RuleRun, ...]()
        self._shown: tuple[RuleRun, ...] | None = None  # those that the metrics know of
        self._struck: list[FaultRule] = []
        self.announced: Counter[EventFault] = Counter()  # how often rules said it
        self._looked_at = -math.inf
        self.stirred = False

    # --- rules --------------------------------------------------------------------------------------------------------

    def load(self, sources: Mapping[str, Sequence[FaultRule]], *, since: Mapping[str, float] = _FROM_NOW_ON) -> None:
        """Replace all rules, which are given by source. Their times count from now on, or by name `since` then.

        A changed rule starts anew, an unchanged one goes on, a missing one ends.
        A new seed also restarts the rules that depend on chance. Of two rules with one name the first counts.
        """
        now = self.clock.now()
        self._started = now if self._started is None else self._started
        before, self.runs = self.runs, {}
        for source, rules in sources.items():
            for rule in rules:
                if rule.name in self.runs:
                    continue
                old, dice = before.get(rule.name), Dice(rule.seed, self._node)
                if old is not None and old.rule == rule and (old.dice == dice or not needs_seed(rule)):
                    old.rule, old.source = rule, source  # which may be written elsewhere now
                    self.runs[rule.name] = old
                    continue
                begun = self.runs[rule.name] = self._begun(rule, source, dice, since.get(rule.name, now))
                begun.looked_at = max(begun.looked_at, self._came)
                begun.select(self._inventory)
        for name, run in before.items():
            if self.runs.get(name) is not run:
                self._end(run)
        if before or self.runs:  # else there is nothing to look at, which is most loads
            self._on_change()

    def _begun(self, rule: FaultRule, source: str, dice: Dice, at: float) -> RuleRun:
        started = at if self._started is None else self._started
        return begin(rule, source, dice, at, started, self._labels)

    @property
    def minds_labels(self) -> bool:
        return any(run.rule.nodes.labels for run in self.runs.values())

    def relabel(self, labels: Mapping[str, str]) -> None:
        """The node has these labels now: rules that mean nodes by theirs are for it, or no longer."""
        if labels == self._labels:
            return
        self._labels = labels
        for run in self.runs.values():
            is_here = on_node(run.rule.nodes, run.rule.name, run.dice, labels)
            if is_here != run.here:
                self._end(run)
                run.here, run.looked_at = is_here, self.clock.now()
                run.select(self._inventory)
                self._on_change()

    def clear(self, name: str) -> None:
        """End a rule; a rule of the configuration returns when it is triggered or changed. Raises UsageError."""
        run = self._run(name)
        self._end(run)
        run.cleared, run.firings = True, ()
        self._on_change()

    def trigger(self, name: str) -> None:
        run = self._run(name)
        if not run.here:
            raise UsageError(f"the rule {name!r} is not for this node, {self._node}")
        run.cleared, now = False, self.clock.now()
        waits = run.rule.triggered
        run.fire(Firing(now, once=not waits), now)
        self._on_change()

    def _run(self, name: str) -> RuleRun:
        run = self.runs.get(name)
        if run is None:
            raise UsageError(
                f"there is no fault rule {name!r}; the rules are: {', '.join(sorted(self.runs)) or 'none'}"
            )
        return run

    def _end(self, run: RuleRun) -> None:
        if run.active:
            self._say(logging.INFO, "fault ends", run)
        run.active = False
        self._late = {key: due for key, due in self._late.items() if key[0] != run.rule.name}

    def meet(self, inventory: Inventory) -> None:
        """Take these as the node's devices, and select those that each rule means; in a thread where these are many."""
        if inventory != self._inventory:
            self._inventory = inventory  # first: what is loaded meanwhile selects by itself
            for run in tuple(self.runs.values()):
                run.select(inventory)

    # --- what the agent asks ------------------------------------------------------------------------------------------

    def look(self, inventory: Inventory) -> Afflictions:
        """Bring every rule up to now. What faults do to the devices of this inventory."""
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
        self.afflictions = afflictions_of(self.runs.values(), self._inventory, now)
        self.stirred = came_due or before != self._active
        self._looked_at = now
        if self._shown != self._active:
            self._show(self._active)
        return self.afflictions

    def _show(self, active: tuple[RuleRun, ...]) -> None:
        self._shown = active
        for kind in KINDS:
            self._metrics.faults_active.labels(kind).set(sum(run.rule.kind == kind for run in active))

    @property
    def next_change(self) -> float | None:
        """When to look again, by the clock; None: not before something happens. What came due meanwhile is past."""
        late = (due for due in self._late.values() if due > self._looked_at)
        return earliest((*(run.changes_at for run in self.runs.values() if run.live), *late))

    def take_strikes(self) -> list[FaultRule]:
        """The rules whose momentary faults must happen now; each time is returned once."""
        struck, self._struck = self._struck, []
        return struck

    def removed_by(self, key: Key) -> str | None:
        """The rule that unplugs this slot now."""
        if key not in self.afflictions.removed and key not in self.afflictions.dropped:
            return None
        return next(
            (run.rule.name for run in self._active if (run.rule.remove or run.rule.drop) and key in run.targets),
            None,
        )

    @property
    def pod_resources_down(self) -> bool:
        return any(run.rule.pod_resources is not None for run in self._active)

    def cdi(self, resource: str) -> str | None:
        for run in self._active:
            block = run.rule.cdi
            if block is None or not run.rule.concerns(resource):
                continue
            if block.late is None:
                return block.fault
            if not self._waited(run, resource, block.late):
                return "missing"
        return None

    @property
    def files(self) -> Mapping[str, str]:
        return {name: run.rule.on_file for name, run in self.runs.items() if run.rule.on_file}

    @property
    def has_unseen_files(self) -> bool:
        """Whether a rule waits for a file that has not been looked at since the rule is there."""
        return any(run.file_there is None for run in self.runs.values() if run.rule.start is Start.FILE)

    def saw_file(self, name: str, *, there: bool) -> None:
        """Note that the file that a rule waits for is there, or is not."""
        if self.runs[name].saw_file(self.clock.now(), there=there):
            self._on_change()

    # --- hooks --------------------------------------------------------------------------------------------------------

    def on_call(self, rpc: Rpc | ClaimCall, name: str) -> CallFault | None:
        """What happens to this call of a resource or a driver: the first rule that hits it."""
        for run in self._active:
            rule = run.rule
            if rpc in rule.rpc and rule.concerns(name):
                number = run.counted((rpc, name))
                if run.is_hit(number, rpc, name):
                    delay = seconds_of(rule.delay, run.dice, rule.name, number, rpc, name) if rule.delay else 0.0
                    self._note(run, name, call=rpc.value, number=number, delay=round(delay, 3))
                    return CallFault(rule=rule, delay=delay)
        return None

    def has(self, rule: str) -> bool:
        """Whether the rule is there and nobody cleared it, whether in force or not."""
        run = self.runs.get(rule)
        return run is not None and run.live

    def holds(self, rule: str) -> bool:
        """Whether a hanging call must go on hanging."""
        return any(run.rule.name == rule for run in self._active)

    def on_register(self, resource: str) -> tuple[str, RegisterFaults] | None:
        """What happens to the registration that is due, and by which rule; `never` also if it must wait."""
        for run in self._active:
            rule, name = run.rule, run.rule.name
            if not rule.concerns(resource):
                continue
            if rule.socket is not None or (rule.stream is not None and rule.stream.close):
                return name, _NOT_NOW
            block = rule.register_
            if block is None:
                continue
            if block.never:
                self._note_once(run, resource)
                return name, block
            if block.delay is not None:
                if not self._waited(run, resource, block.delay):
                    return name, _NOT_NOW
                del self._late[name, resource]  # the next one is late again
                continue
            number = run.counted(resource)
            if run.is_hit(number, resource):
                self._note(run, resource, number=number)
                return name, block
        return None

    def on_api(self, verb: str, resource: str) -> tuple[str, ApiFaults] | None:
        """What the API server answers to this request, and by which rule: the first one that hits it."""
        for run in self._active:
            block = run.rule.api
            if block is not None and block.concerns(verb, resource):
                number = run.counted((verb, resource))
                if run.is_hit(number, verb, resource):
                    self._note(run, resource, call=verb, number=number)
                    return run.rule.name, block
        return None

    @property
    def fails_api(self) -> bool:
        return any(run.rule.api is not None for run in self._active)

    def on_stream(self, resource: str) -> StreamFaults | None:
        for run in self._active:
            block = run.rule.stream
            if block is not None and not block.close and run.rule.concerns(resource):
                self._note_once(run, resource)
                return block
        return None

    def on_health(self, driver: str) -> str | None:
        for run in self._active:
            block = run.rule.health_stream
            if block is not None and run.rule.concerns(driver):
                self._note_once(run, driver)
                return block.fault
        return None

    def on_slices(self, driver: str, *, news: bool) -> str | None:
        """What happens to the driver's slices now; `news`: something about them should be written."""
        for run in self._active:
            block = run.rule.slices
            if block is None or not run.rule.concerns(driver):
                continue
            if block.late is None:
                if not block.wiped:  # which is noted when it strikes
                    self._note_once(run, driver)
                return block.fault
            if news and not self._waited(run, driver, block.late):
                return block.fault
            self._late.pop((run.rule.name, driver), None)  # the next change is late again
        return None

    def note_allocate(self, resource: str, ids: Iterable[str]) -> None:
        """Start the rules that wait until a pod is given devices, for these devices."""
        if not self.runs:
            return
        keys = frozenset((resource, each) for each in ids)
        now = self.clock.now()
        for run in self.runs.values():
            waits = run.live and run.rule.start is Start.ALLOCATE
            if waits and (mine := keys & run.targets) and run.is_hit(run.counted("allocate")):
                run.fire(Firing(now, mine), now)
                self._on_change()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _look_at(self, run: RuleRun, now: float) -> None:
        rule, before = run.rule, run.active
        if run.look(now):
            self._strike(run)
        if run.active != before:
            active = run.active
            devices = targets.names(run.targets)[:8] if rule.kind == DEVICE else None
            level, event = (logging.WARNING, "fault begins") if active else (logging.INFO, "fault ends")
            self._say(level, event, run, devices=devices)
            if active and rule.kind in _NOTED_AT_BEGINNING:
                for resource in self._resources_of(run):
                    self._note(run, resource, quiet=True)

    def _resources_of(self, run: RuleRun) -> Iterable[str]:
        """The resources whose devices the rule hits now; for other kinds, the resource that the rule names."""
        if run.rule.kind != DEVICE:
            return (run.rule.resource,)
        return sorted({name for name, _ in run.hit(self._inventory, self.clock.now())}) or (run.rule.resource,)

    def _strike(self, run: RuleRun) -> None:
        rule = run.rule
        if not rule.strikes:
            return
        if rule.event is not None:
            self.announced[rule.event] += 1
        else:
            self._struck.append(rule)
        if rule.api is None:  # what it does to requests is counted with them
            self._note(run, rule.resource)

    def _waited(self, run: RuleRun, what: str, delay: float) -> bool:
        """Whether something that a rule delays has waited long enough, counted from the first call."""
        key = (run.rule.name, what)
        if key not in self._late:
            self._late[key] = self.clock.now() + delay
            self._note(run, what, delay=delay)
            self._on_change()
        return self.clock.now() >= self._late[key]

    def _note_once(self, run: RuleRun, resource: str) -> None:
        if not run.calls[("noted", resource)]:
            run.calls[("noted", resource)] = 1
            self._note(run, resource)

    def _note(self, run: RuleRun, resource: str, *, quiet: bool = False, **more: object) -> None:
        run.injections[resource] += 1
        self._metrics.faults_injected.labels(run.rule.kind, resource).inc()
        if not quiet:
            self._say(logging.WARNING, "fault injected", run, resource=resource, **more)

    def _say(self, level: int, event: str, run: RuleRun, **more: object) -> None:
        if self._is_one_of_many:
            level, more = logging.DEBUG, {"node": self._node, **more}
        log.log(level, event, rule=run.rule.name, kind=run.rule.kind, **more, injected=True)
