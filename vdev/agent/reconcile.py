"""The reconciler: what the node advertises, brought from one state to the next.

    files changed ─► read ─► scan ─► arrange ─┐ (refused as a whole when it is bad)
    hot-plug ──────────────► scan ─► arrange ─┤
    probe verdicts ───────────────────────────┼─► health ─► faults ─► retain ─► diff ─► CDI files, services, metrics
    pods came or went ────────────────────────┘

Its methods run one after the other in one task (see `agent`), so no two steps ever overlap. Decisions are the core's;
here is only their order.
"""

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog

from ..config import Loaded
from ..core.faults import targets
from ..core.inventory import resources as inv
from ..core.memory import Memory
from ..core.model.fault_effects import CdiFault
from ..core.model.problem import Problem, errors
from ..core.retention import retain
from ..core.retention.holders import Holdings, Key
from ..core.spec import Spec
from ..errors import ConfigError
from ..health import HealthMonitor
from ..observe.metrics import Metrics
from .fault_control import Drill
from .inputs.config_files import ConfigSource
from .inputs.discovered import Scan, Scanner
from .inputs.pod_holders import HolderTracker
from .inputs.verdicts import Verdicts
from .options import Options
from .outputs.cdi_files import CdiFiles
from .outputs.device_lists import Fleet
from .outputs.record import Record
from .outputs.record_form import Owner
from .outputs.virtual_nodes import StandIns
from .steps import Steps

log = structlog.get_logger(__name__)


_NODES = "making virtual nodes"
_CDI = "writing CDI specifications"
_RECORD = "recording what is listed"
_DECIDING = "deciding what to list"


@dataclass(frozen=True, slots=True)
class _Plan:
    """What was decided last: what to serve, what of that is retained, and what was known of holders."""

    kept: retain.Retained
    wanted: inv.Inventory
    holdings: Holdings


class Reconciler:
    """The state of the node and the steps that change it.

    `spec` and `scan` are what the files and the host say, `base` is the inventory that follows from them, `served`
    what the kubelet is told: `base` with health, and with what pods may still hold.
    """

    def __init__(
        self,
        options: Options,
        config: ConfigSource,
        holders: HolderTracker,
        health: HealthMonitor,
        metrics: Metrics,
        *,
        drill: Drill,
        steps: Steps,
    ) -> None:
        self.spec = Spec()
        self.scan = Scan()
        self.base = inv.EMPTY
        self.served = inv.EMPTY
        self.record = Record(options.state_dir, Owner(options.node, str(options.plugin_dir), options.boot_id))
        self.published = False  # whether the kubelet is told of `served`
        self.retired: Mapping[Key, retain.Retired] = {}
        self.warnings: tuple[Problem, ...] = ()
        self.changed_at: dict[Key, float] = {}  # seconds since the epoch, of a device's last change
        self.cdi = CdiFiles(options.cdi_dir, options.intervals)
        self.scanner = Scanner(options.host, options.node, options.device_dir, steps)
        self.standins = StandIns(
            options.device_dir, options.host, owner=f"{options.node} {options.plugin_dir}", intervals=options.intervals
        )
        self.holders = holders
        self._options = options
        self._config = config
        self.verdicts = Verdicts(health, metrics)
        self._metrics = metrics
        self._drill = drill
        self._steps = steps
        self._plan: _Plan | None = None
        self._cdi_faults: Mapping[str, CdiFault] = {}
        self._recorded = inv.EMPTY  # what an earlier process listed; until something is published, that is edited
        self._memory, self._judged = Memory(), Memory()  # of the last arrangement, and of the last look at health
        self._told: frozenset[Problem] = frozenset()  # the problems of the last configuration, which the log has

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything wrong or doubtful at the moment."""
        of_files = (*self.warnings, *self._config.status.problems)
        of_record = (self.record.problem,) if self.record.problem else ()
        of_node = (*self.scan.problems, *self.base.problems, *self._drill.problems)
        return (*of_files, *of_node, *of_record, *self._steps.problems)

    async def start(self) -> None:
        """Read, scan and arrange for the first time.

        Strict, and raises ConfigError, also for what only this node tells, such as a path that is no device; a device
        that merely is absent is no error. With failOnInitError false the good part goes on and the rest is reported.
        """
        broken: tuple[Problem, ...] = ()
        try:
            loaded = await self._config.read()
        except ConfigError as bad:
            loaded = await self._config.read(partial=True)
            if loaded.spec.flags.fail_on_init_error:
                raise
            broken = tuple(problem for problem in bad.problems if isinstance(problem, Problem))
        scan = await self.scanner.scan(self.scan, loaded.spec)
        base = self._arrange(loaded.spec, scan)
        wrong = errors((*scan.problems, *base.problems))
        if loaded.spec.flags.fail_on_init_error and wrong:
            raise ConfigError(wrong)
        self._recorded = await self.record.read()
        self._adopt(loaded, scan, base)
        if broken:
            self._config.left_out(broken)

    async def reload(self) -> None:
        """Read the files again; adopt them when they are good, keep what is when they are not."""
        self.cdi.recheck()
        try:
            loaded = await self._config.read()
            if loaded.spec == self.spec:
                self.warnings = loaded.warnings
                self._config.unchanged()
                return
            scan = await self.scanner.scan(self.scan, loaded.spec)
            base = await asyncio.to_thread(self._arrange, loaded.spec, scan)
            _must_be_good(base)
        except ConfigError as bad:
            self._config.refused(bad)
            return
        except Exception:
            self._config.broke_off()
            raise
        before = _counts(self.base)
        self._adopt(loaded, scan, base)
        log.info("configuration applied", resources=_counts(base), before=before)

    async def rescan(self, entries: Iterable[str]) -> None:
        """Look for the devices of these entries again."""
        scan = await self.scanner.scan(self.scan, self.spec, again=entries)
        if scan != self.scan:
            base = await asyncio.to_thread(self._arrange, self.spec, scan)
            self.verdicts.scanned(self.scan, scan, self.served, self.base.left_out)
            self.scan, self.base = scan, base

    def _arrange(self, spec: Spec, scan: Scan) -> inv.Inventory:
        return inv.arrange(spec, self._options.node, scan.devices, self._memory)

    async def publish(self, fleet: Fleet, *, ask_holders: Callable[[], None]) -> float | None:
        """Serve what is known now: act on the difference to what is served, and on nothing else.

        Each output is a step of its own: one that fails leaves the others alone. Where no decision can be made, the
        last one stays in force.

        Calls `ask_holders` when something vanished that the kubelet may know to be free. Returns the (monotonic) time
        at which to look again for what may be dropped, or None.
        """
        take, do = self._steps.take, self._steps.do
        do("choosing what to probe", lambda: self.verdicts.probe(self.scan, self.base.left_out))
        do("looking at the faults", lambda: self._drill.engine.look(self.base))
        await take(_NODES, self._settle_nodes)
        prepared = None
        while True:  # until nothing is awaited between the decision and the lists, so that no Allocate comes between
            do(_DECIDING, self._decide)
            plan = self._plan
            if plan is None:
                return None
            if plan.wanted == prepared or not await self._prepare(plan):
                break
            prepared = plan.wanted
        if plan.kept.retired.keys() - self.retired.keys():
            ask_holders()
        self.retired = plan.kept.retired
        changes = inv.diff(self.served, plan.wanted)
        self.served = plan.wanted if changes else self.served
        fleet.settle(self.served)
        self.published, self._recorded = True, inv.EMPTY
        if pressed := self.holders.press(self.retired):
            fleet.list_again(pressed)
        if changes:
            do("noting changes", lambda: self._note(changes))
            await take(_NODES, self._settle_nodes)
        do("measuring", self._measure)
        again = (plan.kept.again_at, self.cdi.again_at, self.verdicts.again_at(), self.standins.again_at)
        return min((each for each in again if each is not None), default=None)

    async def _settle_nodes(self) -> None:
        await self.standins.settle(self.base, self.served, holdings=self._holdings())

    async def _prepare(self, plan: "_Plan") -> bool:
        """Bring to disk what must be there before the kubelet is told: CDI specifications, and the record.

        Returns whether there was anything to do, during which an Allocate may have come.
        """
        faults = self._drill.cdi_faults(self.base)
        changes = inv.diff(self.served, plan.wanted)
        specify = bool(changes) or self.cdi.due or self._steps.failed(_CDI) or faults != self._cdi_faults
        record = any(map(_lists_others, changes)) or self._steps.failed(_RECORD)
        if specify:
            await self._steps.take(_CDI, functools.partial(self._settle_cdi, plan, faults))
        if record:
            await self._steps.take(_RECORD, functools.partial(self.record.write, plan.wanted))
        return specify or record

    async def _settle_cdi(self, plan: "_Plan", faults: Mapping[str, CdiFault]) -> None:
        await self.cdi.settle(plan.wanted, plan.holdings, faults)
        self._cdi_faults = faults

    def _holdings(self) -> Holdings:
        return self.holders.snapshot(tuple(self.served.resources.values()))

    def _decide(self) -> None:
        """What to serve, given all that is known."""
        holdings, faults = self._holdings(), self._drill.engine.afflictions
        verdicts = {**self.verdicts.current(), **self.standins.failed, **self.cdi.failed}
        fresh = targets.afflict(inv.with_health(self.base, verdicts, self._judged), faults)
        kept = retain.retain(
            self.served if self.published else self._recorded,
            fresh,
            self.retired,
            holdings,
            time.monotonic(),
            settle=self._options.intervals.retire_settle,
            blind=self._options.intervals.retire_blind,
            recheck=self._options.intervals.retire_recheck,
        )
        wanted = inv.settled(self.served, targets.drop(kept.inventory, faults.dropped))
        self._plan = _Plan(kept, wanted, holdings)

    def _note(self, changes: Iterable[inv.Change]) -> None:
        self._stamp(changes)
        if any(isinstance(each, inv.Removed) or (isinstance(each, inv.Changed) and each.removed) for each in changes):
            self.scanner.forget(self.scan, self.served)

    def _adopt(self, loaded: Loaded, scan: Scan, base: inv.Inventory) -> None:
        self._drill.adopt(loaded.spec, base)
        self.verdicts.scanned(self.scan, scan, self.served, self.base.left_out)
        self.spec, self.scan, self.base, self.warnings = loaded.spec, scan, base, loaded.warnings
        self._config.applied(", ".join(f"{name} {count}" for name, count in _counts(base).items()))
        told, self._told = self._told, frozenset(self.problems)
        for problem in dict.fromkeys(self.problems):
            if problem not in told:
                write = log.error if problem.is_error else log.warning
                write("problem in the configuration", where=problem.where, problem=problem.message, hint=problem.hint)

    def _stamp(self, changes: Iterable[inv.Change]) -> None:
        now = time.time()
        for change in changes:
            match change:
                case inv.Added(resource):
                    self.changed_at |= {(resource.name, slot.id): now for slot in resource.slots}
                case inv.Changed(new=new):
                    self.changed_at |= {(new.name, each): now for each in change.added}
                    self.changed_at |= {(new.name, each): now for each, _ in change.health}
                    for each in change.removed:
                        self.changed_at.pop((new.name, each), None)
                    self._count_health(change)
                case inv.Removed(resource):
                    for slot in resource.slots:
                        self.changed_at.pop((resource.name, slot.id), None)

    def _count_health(self, change: inv.Changed) -> None:
        for each, health in change.health:
            if change.old.by_id[each].health.healthy != health.healthy:
                word = "Healthy" if health.healthy else "Unhealthy"
                self._metrics.health_changes.labels(change.new.name, word).inc()
                self._metrics.health_changed.labels(change.new.name).set_to_current_time()

    def _measure(self) -> None:
        held = Counter(name for name, _ in self.holders.holders or ())
        retired = Counter(name for name, _ in self.retired)
        for name, resource in self.served.resources.items():
            self._metrics.devices.labels(name, "Healthy").set(resource.healthy)
            self._metrics.devices.labels(name, "Unhealthy").set(len(resource.slots) - resource.healthy)
            self._metrics.list_bytes.labels(name).set(resource.list_bytes)
            self._metrics.retired.labels(name).set(retired[name])
            self._metrics.held.labels(name).set(held[name])
        problems = self.problems
        for severity in ("error", "warning"):
            self._metrics.problems.labels(severity).set(sum(problem.severity == severity for problem in problems))


def _lists_others(change: inv.Change) -> bool:
    """Whether other ids are listed, and not only other states of the same ones."""
    return not isinstance(change, inv.Changed) or bool(change.added or change.removed)


def _must_be_good(base: inv.Inventory) -> None:
    broken = errors(base.problems)
    if broken:
        raise ConfigError(broken)


def _counts(inventory: inv.Inventory) -> dict[str, int]:
    return {name: len(resource.slots) for name, resource in inventory.resources.items()}
