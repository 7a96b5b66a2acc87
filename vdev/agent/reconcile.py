"""The reconciler: observe, plan, apply.

    files changed ─► read ─► scan ─► arrange ─┐ (refused as a whole if it has errors)
    hot-plug ──────────────► scan ─► arrange ─┤
    probes ───────────────────────────────────┼─► ObservedState ─► plan ─► DesiredState ─► appliers and lists
    pods, faults, time ───────────────────────┘          ▲                      │
                                                         └─ undeliverable devices

All methods run in one task (see `agent.py`), so no two of them ever overlap.
"""

import asyncio
import functools
from collections import Counter
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import structlog

from ..config import Loaded
from ..errors import ConfigError
from ..faults.schedule import earliest
from ..hostfs.root import machine_type
from ..model.device import Health
from ..model.problem import Problem, Severity, errors
from ..model.spec import Spec
from ..node.vendor_labels import Machine
from ..planning.inventory import arrange
from ..planning.plan import DesiredState, ObservedState, Previous, desired_state
from ..planning.repartition import in_force
from ..planning.resources import EMPTY, Inventory, counts
from .applier import Stage
from .retry import problem_of
from .scanner import Scan, Scanner

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

READING = "reading the configuration"
_PLANNING = "deciding what to list"
_REPARTITIONING = "following labels that choose layouts"
_ATTEMPTS = 10  # to plan and prepare, in one reconciliation


class Reconciler:
    """The observed state of the node, and the plan in force."""

    def __init__(self, agent: "Agent") -> None:
        self.spec = Spec()  # the configuration in force
        self.scan = Scan()  # the devices that were found for it
        self.base = EMPTY  # the inventory that follows from both
        self.warnings: tuple[Problem, ...] = ()  # of the configuration
        self.published = False  # whether this process has sent any list
        self.previous = Previous()  # the lists and pools of the last reconciliation, or of an earlier process
        self.scanner = Scanner(agent.options, agent.retrier)
        self._agent = agent
        self._clock = agent.options.clock
        self._retrier = agent.retrier
        self._plan: DesiredState | None = None  # the newest plan
        self._machine: Machine | None = None  # read when labels first need it
        self._logged: frozenset[Problem] = frozenset()  # the problems that there were after the last reconciliation

    @property
    def advertised(self) -> Inventory:
        """The lists that the kubelet has from this process."""
        return self.previous.advertised if self.published else EMPTY

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [*self.warnings, *self._agent.config.problems]
        found += (*self.scan.problems, *self.base.problems, *self._agent.faults.store.problems)
        if self._agent.layouts.progresses:
            found += self._agent.layouts.problems
        if self._plan:
            found += self._plan.problems
        for applier in self._agent.appliers:
            found += applier.problems
        return tuple(dict.fromkeys((*found, *self._retrier.problems)))

    # --- a reconciliation ---------------------------------------------------------------------------------------------

    async def reconcile(self) -> float | None:
        """Plan and apply; return the (monotonic) time at which to do it again even if nothing happens, or None.

        A failing applier does not affect the others. If no plan can be made, the last one stays in force.
        """
        self._agent.health.update(self.scan.targets(self.base.left_out))
        if self._agent.faults.engine.runs:
            await asyncio.to_thread(
                self._agent.faults.engine.meet, self.base
            )  # slow: it selects the devices of all rules
        self._agent.faults.engine.look(self.base)
        if self._agent.layouts.progresses or any(entry.choice for entry in self.spec.entries):
            await self._retrier.run(_REPARTITIONING, self._agent.layouts.advance)
        plan = await self._prepared()
        if plan is None:
            return self._clock.now() if self._plan else None
        self.log_problems()
        # Nothing is awaited between the last check for Allocates in `_prepared` and this.
        self._agent.lists.send(plan)
        if plan.retired.keys() - self.previous.retired.keys():
            self._agent.holders.ask()  # the kubelet may know that a retired device is free
        self.published = True
        self.previous = plan.as_previous(self._clock.now(), self._agent.options.intervals.retire_handover)
        if self.previous.dropped:
            await asyncio.to_thread(self.scanner.forget, self.scan, self.advertised)
        await self._clock.sleep(0)  # let the streams send their lists first
        await self._apply(Stage.FOLLOW, plan)
        # The retrier schedules failed steps; their own times may be long past.
        failing = self._retrier.failing
        times = [None if _PLANNING in failing else plan.again_at]
        times += [applier.retry_at for applier in self._agent.appliers if applier.name not in failing]
        return earliest(times)

    async def _prepared(self) -> DesiredState | None:
        """Plan, and put everything in place that must exist before the kubelet gets the lists.

        It plans again if a device turns out to be undeliverable, or if an Allocate came in between. Returns None after
        too many attempts, or if no plan was ever made.
        """
        for _ in range(_ATTEMPTS):
            planned = await self._retrier.run(_PLANNING, self._make_plan)
            plan = self._plan
            if plan is None:
                return None
            await self._apply(Stage.PREPARE, plan)
            if not planned:
                return plan  # the last one stays in force
            delivered = (plan.observed.health, plan.observed.without_tools)
            deliverable = (self.current_health(), self._agent.tools.without_tools)
            if delivered == deliverable and not plan.is_overtaken(self._agent.holders.in_use):
                return plan
        return None

    async def _make_plan(self) -> None:
        if self._machine is None and self.spec.node.labels:
            product = await asyncio.to_thread(machine_type, self._agent.options.host)
            self._machine = Machine(product, int(self._clock.wall()))
        observed = ObservedState(
            spec=self._in_force(self.spec),
            layouts=self._agent.layouts.progresses,
            node=self._agent.options.node_name,
            machine=self._machine or Machine(),
            found=self.scan.devices if self._machine else {},
            inventory=self.base,
            health=self.current_health(),
            without_tools=self._agent.tools.without_tools,
            faults=self._agent.faults.engine.active_faults,
            cdi_faults=self._agent.faults.cdi_faults(self.base),
            in_use=self._agent.holders.in_use,
            claimed=self._agent.dra.claimed,
            previous=self.previous,
            now=self._clock.now(),
        )
        self._plan = await asyncio.to_thread(desired_state, observed, self._agent.options.intervals)

    def current_health(self) -> Mapping[str, Health]:
        """The health of raw devices by id, from probes, and from appliers that cannot deliver a device."""
        found = dict(self._agent.health.verdicts)
        for applier in self._agent.appliers:
            found |= applier.undeliverable
        return found

    def measure(self) -> None:
        counts = Counter(problem.severity for problem in self.problems)
        for severity in (Severity.ERROR, Severity.WARNING):
            self._agent.metrics.problems.labels(severity).set(counts[severity])

    def log_problems(self) -> None:
        """Log new problems of the configuration and of the plan, without those that other events already log."""
        found = [*self.warnings, *self.scan.problems, *self.base.problems, *self._agent.faults.store.problems]
        if self._plan:
            found += self._plan.problems
        for problem in dict.fromkeys(found):
            if problem not in self._logged and problem not in self._agent.config.problems:
                write = log.error if problem.is_error else log.warning
                write("problem", where=problem.where, problem=problem.message, hint=problem.hint)
        self._logged = frozenset(found)

    async def _apply(self, stage: Stage, plan: DesiredState) -> None:
        for applier in self._agent.appliers:
            if applier.stage is stage:
                await self._retrier.run(applier.name, functools.partial(applier.apply, plan))

    # --- configuration and devices ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read, scan and arrange for the first time. If reading failed for a reason outside the files, ask to reload.

        The start is strict, also about errors that only this node shows, such as a path that is not a device; an absent
        device is not an error. With failOnInitError false, the good part is used and the rest is reported. If the files
        are refused or cannot be read, the configuration of an earlier process is used. Without that, raises ConfigError
        or the exception.
        """
        try:
            loaded = await self._agent.config.read_first()
            scan = await self.scanner.scan(self.scan, loaded.spec)
            base = self._arrange(loaded.spec, scan)
            if loaded.spec.flags.fail_on_init_error:
                _must_be_good(base, scan)
        except ConfigError as bad:
            await self._fall_back(bad)
            return
        except Exception as failed:
            log.exception("configuration not read")
            try:
                await self._fall_back(ConfigError((problem_of(READING, failed),)))
            except ConfigError:
                raise failed from None
            self._agent.pending.add(reload=True)
            return
        self._agent.config.put_in_force(loaded, counts(base))
        self._adopt(loaded, scan, base)
        if loaded.errors:
            log.error("part of the configuration is left out", problems=[str(problem) for problem in loaded.errors])

    def resume(self, recorded: Inventory) -> None:
        """Take over the lists of an earlier process, so that the first lists are edits of them."""
        self.previous = Previous(advertised=recorded)
        if self._in_force(self.spec) != self.spec:
            self.base = self._arrange(self.spec, self.scan)

    async def _fall_back(self, bad: ConfigError) -> None:
        """Put the configuration of an earlier process in force, without the strict checks of a start.

        Raises ConfigError if there is none that can be used.
        """
        try:
            kept = await self._agent.state.kept_config()
            loaded = await self._agent.config.read_again(kept.texts) if kept else None
        except ConfigError as as_well:
            raise ConfigError((*bad.problems, *as_well.problems), named=bad.named) from None
        if kept is None or loaded is None:
            raise bad
        self.scanner.forget(Scan(), EMPTY)  # the indices of the refused configuration
        scan = await self.scanner.scan(self.scan, loaded.spec)
        self._adopt(loaded, scan, self._arrange(loaded.spec, scan))
        self._agent.config.fell_back(kept.texts, kept.at, bad)

    async def reload(self) -> None:
        """Read the files again, and adopt them if they are good."""
        try:
            loaded = await self._agent.config.read()
            scan, base = self.scan, self.base
            spec = loaded.spec
            if is_new := spec != self.spec:
                scan = await self.scanner.scan(self.scan, spec)
                base = await asyncio.to_thread(self._arrange, spec, scan)
            start_is_over = not self._agent.config.kept_at or not spec.flags.fail_on_init_error
            if is_new or not start_is_over:
                _must_be_good(base, Scan() if start_is_over else scan)
        except ConfigError as bad:
            self._agent.config.refused(bad)
            return
        except Exception:
            self._agent.config.broke_off()
            raise
        if not is_new:
            self.warnings = loaded.warnings
            self._agent.config.unchanged(loaded)
            return
        before = counts(self.base)
        self._agent.config.put_in_force(loaded, counts(base))
        self._adopt(loaded, scan, base)
        log.info("configuration applied", devices=counts(base), before=before)

    async def rescan(self, entries: Collection[str]) -> None:
        scan = await self.scanner.scan(self.scan, self.spec, only=entries)
        if scan != self.scan:
            base = await asyncio.to_thread(self._arrange, self.spec, scan)
            self._count_losses(scan)
            self.scan, self.base = scan, base
            if self._agent.config.kept_at:
                await self.reload()  # these devices may have been the reason for the refusal

    def _arrange(self, spec: Spec, scan: Scan) -> Inventory:
        return arrange(self._in_force(spec), self._agent.options.node_name, scan.devices)

    def _in_force(self, spec: Spec) -> Spec:
        """The configuration with the layouts that labels of the node choose."""
        progresses = self._agent.layouts.progresses
        return in_force(spec, progresses) if progresses else spec

    def _adopt(self, loaded: Loaded, scan: Scan, base: Inventory) -> None:
        """Put a configuration in force, with the devices that were found for it."""
        self._agent.faults.adopt(loaded.spec, base)
        self._count_losses(scan)
        self.spec, self.scan, self.base, self.warnings = loaded.spec, scan, base, loaded.warnings
        if loaded.spec.entries and not loaded.spec.on_node(self._agent.options.node_name):
            wanted = sorted({pattern for entry in loaded.spec.entries for pattern in entry.on_nodes})
            hint = "nothing is advertised; if this is wrong, see --node-name (env NODE_NAME) and onNodes"
            log.info("no entry is for this node", node=self._agent.options.node_name, onNodes=wanted, hint=hint)

    def _count_losses(self, scan: Scan) -> None:
        """Count the devices of unedited entries that disappeared. Another entry counts a device that was left out."""
        for name, old in self.scan.found.items():
            entry = scan.entries.get(name)
            if entry is not None and entry == self.scan.entries[name] and not entry.virtual:
                for raw in old.by_id.keys() - scan.found[name].by_id.keys() - self.base.left_out:
                    self._agent.health.count_flap(raw, entry.resource_of(old.by_id[raw]))


def _must_be_good(base: Inventory, scan: Scan) -> None:
    wrong = errors((*scan.problems, *base.problems))
    if wrong:
        raise ConfigError(wrong)
