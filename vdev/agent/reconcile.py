"""The reconciler: observe, decide, settle.

    files changed ─► read ─► scan ─► arrange ─┐ (refused as a whole when it is bad)
    hot-plug ──────────────► scan ─► arrange ─┤
    probe verdicts, flapping ─────────────────┼─► ObservedState ─► decide ─► DesiredState ─► appliers, stage by stage
    pods came or went, faults, time ──────────┘              ▲                │
                                                             └─ what they cannot deliver

Its methods run one after the other in one task (see `agent`), so no two steps ever overlap. What is decided is the
core's business, and of the appliers only their list is known here.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

import structlog

from ..config import Loaded
from ..discovery.health_monitor import HealthMonitor
from ..dra.pools import Claimed, claimed_by_name
from ..errors import ConfigError
from ..hostfs.root import machine_type
from ..model.device import Device, Health, Key
from ..model.problem import Problem, errors
from ..model.spec import Spec
from ..node.label_values import Machine
from ..observe.metrics import Metrics
from ..planning.inventory import arrange
from ..planning.plan import DesiredState, ObservedState, Previous, desired_state
from ..planning.repartition import Progresses
from ..planning.resources import EMPTY, Inventory, counts, for_claims, summary
from ..planning.retention import Retired, dropped
from .applier import Applier, Stage
from .config_files import ConfigSource
from .fault_control import FaultControl
from .node_choices import CutSituation, NodeChoices
from .options import Options
from .pod_holders import PodHolders
from .scanner import Scan, Scanner, Verdicts
from .state_file import KeptConfig
from .steps import Steps, ToldProblems, problem_of, tell

log = structlog.get_logger(__name__)

READING = "reading the configuration"
_DECIDING = "deciding what to list"
_ROUNDS = 10  # of deciding and preparing, for one plan

LastGoodReader = Callable[[], Awaitable[KeptConfig | None]]
"""Reads the configuration that an earlier process kept; raises ConfigError where that cannot be used."""


class Reconciler:
    """What is known of the node, and the plan in force.

    `spec` and `scan` are what the files and the host say, `base` is the inventory that follows from them, `served`
    what the kubelet is told: `base` with health, and with what pods may still hold. `claimed` are the names of the
    devices that prepared claims have, by driver.
    """

    def __init__(
        self,
        options: Options,
        config: ConfigSource,
        holders: PodHolders,
        health: HealthMonitor,
        metrics: Metrics,
        *,
        faults: FaultControl,
        steps: Steps,
        choices: NodeChoices,
        appliers: Sequence[Applier],
        claimed: Callable[[], Claimed] = dict,
    ) -> None:
        self.spec = Spec()
        self.scan = Scan()
        self.base = EMPTY
        self._listed: DesiredState | None = None  # of which the kubelet was told last
        self._previous = Previous()  # that, or what an earlier process listed
        self.warnings: tuple[Problem, ...] = ()
        self.scanner = Scanner(options.host, options.node, options.device_dir, options.smi_dir, steps)
        self.holders = holders
        self.choices = choices
        self._claimed = claimed
        self.appliers = sorted(appliers, key=lambda applier: applier.stage)
        self._of_stage = {stage: [each for each in appliers if each.stage is stage] for stage in Stage}
        self.verdicts = Verdicts(health, metrics)
        self._options = options
        self._clock = options.clock
        self._config = config
        self._metrics = metrics
        self._faults = faults
        self._steps = steps
        self._plan: DesiredState | None = None
        self._unprepared: dict[str, Mapping[str, Health]] = {}  # what appliers that fail have not made, by their names
        self._machine: Machine | None = None  # read when it is first asked for
        self._told = ToldProblems(metrics)

    @property
    def problems(self) -> tuple[Problem, ...]:
        of_files = (*self.warnings, *self._config.status.problems)
        of_node = (*self.scan.problems, *self.base.problems, *self._faults.problems)
        of_choices = self.choices.problems
        of_plan = self._plan.problems if self._plan else ()
        of_appliers = (problem for applier in self.appliers for problem in applier.problems)
        return tuple(dict.fromkeys((*of_files, *of_node, *of_choices, *of_plan, *of_appliers, *self._steps.problems)))

    @property
    def unnamed(self) -> frozenset[Key]:
        """What was given out and has no pod in the last answer: the kubelet may have been asked too early."""
        return self.holders.unnamed(self._claimed())

    async def start(self, last_good: LastGoodReader) -> bool:
        """Read, scan and arrange for the first time; whether that succeeded, or the files are what is wrong.

        Strict, also about what only this node tells, such as a path that is no device; a device that merely is absent
        is no error. With failOnInitError false the good part goes on and the rest is reported. Where the files are
        refused, what an earlier process kept is used instead; without that, raises ConfigError. What an earlier process
        kept is also used where reading fails for another reason; without that, raises it.
        """
        try:
            loaded = await self._config.read_first()
            scan = await self.scanner.scan(self.scan, loaded.spec)
            base = self._arrange(loaded.spec, scan)
            if loaded.spec.flags.fail_on_init_error:
                _must_be_good(base, scan)
        except ConfigError as bad:
            await self._fall_back(bad, last_good)
            return True
        except Exception as failed:
            log.exception("configuration not read")
            try:
                await self._fall_back(ConfigError((problem_of(READING, failed),)), last_good)
            except ConfigError:
                raise failed from None
            return False
        self._adopt(loaded, scan, base)
        if loaded.errors:
            log.error("part of the configuration is left out", problems=[str(problem) for problem in loaded.errors])
        return True

    def resume(self, recorded: Inventory, choices: Progresses) -> None:
        """Before anything is applied: this is what an earlier process listed, and the first list is an edit of it.

        `choices` is what had become of the layouts that labels chose.
        """
        self._previous = Previous(advertised=recorded)
        self.choices.recall(choices)
        if self.choices.in_force(self.spec) != self.spec:
            self.base = self._arrange(self.spec, self.scan)
            self._faults.engine.meet(self.base)

    async def _fall_back(self, bad: ConfigError, last_good: LastGoodReader) -> None:
        """Put in force what an earlier process kept, with no more questions than if that process had gone on.

        Raises ConfigError where nothing was kept, or nothing that can be used.
        """
        try:
            kept = await last_good()
            loaded = await self._config.read_again(kept.texts) if kept else None
        except ConfigError as as_well:
            raise ConfigError((*bad.problems, *as_well.problems)) from None
        if kept is None or loaded is None:
            raise bad
        self.scanner.start_over()
        scan = await self.scanner.scan(self.scan, loaded.spec)
        self._put_in_force(loaded, scan, self._arrange(loaded.spec, scan))
        self._told.log(self.problems, but={*self._config.left_out, *self._steps.problems})
        self._config.fell_back(kept.texts, kept.at, bad)

    async def reload(self) -> None:
        """Read the files again; adopt them when they are good, keep what is when they are not."""
        try:
            loaded = await self._config.read()
            scan, base = self.scan, self.base
            spec = loaded.spec
            if is_new := spec != self.spec:
                scan = await self.scanner.scan(self.scan, spec)
                base = await asyncio.to_thread(self._arrange, spec, scan)
            strict = self._config.status.kept_at and spec.flags.fail_on_init_error  # the start is not over
            if is_new or strict:
                _must_be_good(base, scan if strict else Scan())
        except ConfigError as bad:
            self._config.refused(bad)
            return
        except Exception:
            self._config.broke_off()
            raise
        if not is_new:
            self.warnings = loaded.warnings
            self._config.unchanged(loaded)
            return
        before = counts(self.base)
        await asyncio.to_thread(self._faults.engine.meet, base)
        self._adopt(loaded, scan, base)
        offered = {"for_claims": for_claims(base)} if base.claimable else {}
        log.info("configuration applied", resources=counts(base), before=before, **offered)

    async def rescan(self, entries: Iterable[str]) -> None:
        """Look for the devices of these entries again."""
        scan = await self.scanner.scan(self.scan, self.spec, only=entries)
        if scan != self.scan:
            base = await asyncio.to_thread(self._arrange, self.spec, scan)
            await asyncio.to_thread(self._faults.engine.meet, base)
            self.verdicts.scanned(self.scan, scan, self.served, self.base.left_out)
            self.scan, self.base = scan, base
            if self._config.status.kept_at:
                await self.reload()  # this may have been what was wrong

    def _arrange(self, spec: Spec, scan: Scan) -> Inventory:
        return arrange(self.choices.in_force(spec), self._options.node, scan.devices)

    async def _repartition(self) -> None:
        """Cut devices as labels of the node choose."""
        await self.choices.begin(self.spec, clock=self._clock, within=self._options.intervals.first_reading)
        situation = CutSituation(
            found=self.scan.devices,
            listed=self._previous.advertised,
            base=self.base,
            holdings=self.holders.snapshot,
            claimed=self._claimed_devices,
            intervals=self._options.intervals,
        )
        cut = functools.partial(arrange, node=self._options.node, found=self.scan.devices)
        base = await self.choices.advance(self.spec, situation, cut, self._clock)
        if base is not None:
            self.base = base
            await asyncio.to_thread(self._faults.engine.meet, base)

    def _claimed_devices(self) -> Mapping[Key, Device]:
        """What prepared claims have, by driver and published name."""
        return claimed_by_name(self._previous.pools, self._claimed())

    @property
    def served(self) -> Inventory:
        """What this process told the kubelet."""
        return self._listed.advertised if self._listed else EMPTY

    @property
    def retired(self) -> Mapping[Key, Retired]:
        """What of that only pods keep in the list."""
        return self._listed.retired if self._listed else {}

    @property
    def published(self) -> bool:
        """Whether it told the kubelet anything."""
        return self._listed is not None

    async def reconcile(self, *, ask_holders: Callable[[], None]) -> float | None:
        """Observe, decide, and let every applier make its part of the plan true.

        Each applier is a step of its own: one that fails leaves the others alone. Where no decision can be made, the
        last one stays in force.

        Calls `ask_holders` when something vanished that the kubelet may know to be free. Returns the (monotonic) time
        at which to do it again though nothing happens, or None.
        """
        do = self._steps.do
        do("choosing what to probe", lambda: self.verdicts.probe(self.scan, self.base.left_out))
        do("looking at the faults", lambda: self._faults.engine.look(self.base))
        await self._steps.take("following labels that choose layouts", self._repartition)
        plan = await self._prepared()
        if plan is None:
            return self._clock.now() if self._plan else None
        await self._apply(Stage.LIST, plan)  # awaits nothing: since it was decided, no Allocate came between
        retired, served = self.retired, self.served
        self._listed = plan
        if plan.retired.keys() - retired.keys():
            ask_holders()
        now = self._clock.now()
        gone = dropped(served, plan.advertised, now)
        since = now - self._options.intervals.retire_handover
        lately = {each: it for each, it in self._previous.dropped.items() if it.at > since}
        self._previous = plan.as_previous({**lately, **gone})
        if gone:
            await self._steps.take("forgetting devices", self._forget)
        await self._clock.sleep(0)  # the streams send their lists before anything else takes the loop
        await self._apply(Stage.FOLLOW, plan)
        do("counting problems", lambda: self._told.count(self.problems))
        failed = self._steps.failed  # then the step says when
        of_appliers = (each.again_at for each in self.appliers if not failed(each.name))
        again = (plan.again_at, self.choices.again_at, *of_appliers)
        return min((each for each in again if each is not None), default=None)

    async def _prepared(self) -> DesiredState | None:
        """A plan with everything in place that must be there before the kubelet is told.

        What cannot be put in place is a verdict on its devices, and what pods got meanwhile counts: then it is decided
        once more. None where that does not end, or nothing could ever be decided.
        """
        for _ in range(_ROUNDS):
            decided = await self._steps.take(_DECIDING, self._decide)
            plan = self._plan
            if plan is None:
                return None
            await self._apply(Stage.PREPARE, plan)
            if not decided or self._is_current(plan):
                return plan
        return None

    def _is_current(self, plan: DesiredState) -> bool:
        """Whether nothing that preparing the plan has shown, and no Allocate since then, asks for another one."""
        planned = (plan.observed.health, plan.observed.without_tools)
        return planned == (self.current_health(), self._without_tools()) and not plan.is_overtaken(
            self.holders.snapshot()
        )

    async def _decide(self) -> None:
        if self._machine is None and self.spec.node.labels:
            product = await asyncio.to_thread(machine_type, self._options.host)
            self._machine = Machine(product, int(self._clock.wall()))
        observed, before = self._observe(), self._plan
        self._plan = await asyncio.to_thread(desired_state, observed, self._options.intervals)
        for problem in self._plan.problems:
            if before is None or problem not in before.problems:
                tell("problem with what is said of the node", problem)

    def _observe(self) -> ObservedState:
        return ObservedState(
            spec=self.choices.in_force(self.spec),
            layouts=self.choices.progresses,
            node=self._options.node,
            machine=self._machine or Machine(),
            found=self.scan.devices if self._machine else {},
            inventory=self.base,
            health=self.current_health(),
            without_tools=self._without_tools(),
            faults=self._faults.engine.afflictions,
            cdi_faults=self._faults.cdi_faults(self.base),
            in_use=self.holders.snapshot(),
            claimed=self._claimed(),
            previous=self._previous,
            now=self._clock.now(),
        )

    def current_health(self) -> Mapping[str, Health]:
        """The health of raw devices by id, from probes, and from appliers that cannot deliver a device."""
        found = dict(self.verdicts.current())
        for each in (*self._unprepared.values(), *(applier.undeliverable for applier in self.appliers)):
            found |= each
        return found

    def _without_tools(self) -> frozenset[str]:
        return frozenset[str]().union(*(each.toolless for each in self.appliers))

    async def _apply(self, stage: Stage, plan: DesiredState) -> None:
        for applier in self._of_stage[stage]:
            done = await self._steps.take(applier.name, functools.partial(applier.apply, plan))
            if stage is Stage.PREPARE:
                health = Health(healthy=False, reason=self._steps.reason(applier.name))
                self._unprepared[applier.name] = {} if done else dict.fromkeys(applier.unprepared(plan), health)

    async def _forget(self) -> None:
        await asyncio.to_thread(self.scanner.forget, self.scan, self.served)

    def _adopt(self, loaded: Loaded, scan: Scan, base: Inventory) -> None:
        self._put_in_force(loaded, scan, base)
        self._config.applied(loaded, summary(base), {**counts(base), **for_claims(base)})
        self._told.log(self.problems, but={*self._config.left_out, *self._steps.problems})

    def _put_in_force(self, loaded: Loaded, scan: Scan, base: Inventory) -> None:
        self._faults.adopt(loaded.spec, base)
        self.verdicts.scanned(self.scan, scan, self.served, self.base.left_out)
        self.spec, self.scan, self.base, self.warnings = loaded.spec, scan, base, loaded.warnings


def _must_be_good(base: Inventory, scan: Scan) -> None:
    wrong = errors((*scan.problems, *base.problems))
    if wrong:
        raise ConfigError(wrong)
