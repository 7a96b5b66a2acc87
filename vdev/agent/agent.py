"""The running plugin: wires the parts together, and turns every event into the same few steps.

    files changed ─► read ─► scan ─► arrange ─┐ (refused as a whole when it is bad)
    hot-plug ──────────────► scan ─► arrange ─┤
    probe verdicts ───────────────────────────┼─► health ─► retain ─► diff ─► CDI files, services, metrics
    pods came or went ────────────────────────┘

One task, the reconciler, takes these steps, so no two of them ever overlap; everything else only marks what is due.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from ..config import Loaded
from ..core import inventory as inv
from ..core import retain
from ..core.device import Health, RawDevice
from ..core.problem import Problem, errors
from ..core.spec import HealthSpec, Spec
from ..errors import ConfigError
from ..health import HealthMonitor
from ..hostfs import HostRoot, Watcher
from ..observe.metrics import Metrics
from ..plugin.link import POLL, KubeletLink
from ..plugin.service import State
from . import source
from .cdifiles import CdiFiles
from .desk import FrontDesk
from .fleet import Fleet
from .holdings import SLOW, HolderTracker
from .scan import Scan, Scanner
from .source import ConfigSource

log = structlog.get_logger(__name__)

_RESCAN = 30.0  # seconds between looks at all devices when no event comes


@dataclass(slots=True)
class Due:
    """What the reconciler has to do next."""

    reload: bool = False
    scan: set[str] = field(default_factory=set)
    health: bool = False
    holders: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Where the agent works; all paths are this process's own view."""

    node: str
    files: tuple[Path, ...]
    load: Callable[..., Loaded]  # reads the files with the process's overrides
    kubelet_socket: Path
    pod_resources_socket: Path
    cdi_dir: Path
    host: HostRoot
    run_dir: Path | None = None
    allocate_deadline: float = 5.0
    retire_settle: float = retain.SETTLE
    retire_blind: float = retain.BLIND


class Agent:
    """One node's plugin. `run()` returns the exit code; `stop()` ends it from anywhere in the loop."""

    def __init__(self, options: Options, metrics: Metrics | None = None) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.spec = Spec()
        self.scan = Scan()
        self.base = inv.EMPTY  # as discovery sees it
        self.served = inv.EMPTY  # as the kubelet is told
        self.retired: Mapping[retain.Key, retain.Retired] = {}
        self.link = KubeletLink(options.kubelet_socket)
        self.desk = FrontDesk(
            self.metrics, allocate_deadline=options.allocate_deadline, on_allocated=lambda: self._mark(holders=True)
        )
        self.holders = HolderTracker(options.pod_resources_socket, self.desk)
        self.config = ConfigSource(options.load, self.metrics)
        self.health = HealthMonitor(options.host)
        self.fleet: Fleet | None = None
        self.warnings: tuple[Problem, ...] = ()
        self.started_at = time.time()
        self._scanner = Scanner(options.host, options.node)
        self._cdi = CdiFiles(options.cdi_dir)
        self._due = Due()
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._watched: Mapping[Path, frozenset[str]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """End the agent gracefully."""
        self._stop.set()

    def reload(self) -> None:
        """Read the configuration again soon."""
        self._mark(reload=True)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Everything wrong or doubtful at the moment."""
        return (*self.warnings, *self.scan.problems, *self.base.problems, *self.config.status.problems)

    async def run(self) -> int:
        """Start, work until stopped, shut down. Raises ConfigError when the configuration is bad at the start."""
        await self._first_configuration()
        with Watcher(sys=self.options.host.path("/sys")) as watcher:
            await self._run(watcher)
        log.info("stopped")
        return 0

    async def _run(self, watcher: Watcher) -> None:
        async with asyncio.TaskGroup() as group:
            self.fleet = Fleet(group, self.link, self.desk, on_state=self._on_state)
            background = [
                group.create_task(self._watch(watcher), name="watch files"),
                group.create_task(self._look_at_kubelet(), name="look at the kubelet"),
                group.create_task(self._look_again(), name="look at all devices"),
                group.create_task(self._look_at_holders(), name="look at holders"),
                group.create_task(self.health.run(), name="health probes"),
                group.create_task(self._follow_health(), name="follow health"),
            ]
            reconciler = group.create_task(self._reconcile_forever(watcher), name="reconcile")
            with self._signals():
                await self._stop.wait()
            log.info("stopping")
            for task in (reconciler, *background):
                task.cancel()
            await self.fleet.stop()

    async def _first_configuration(self) -> None:
        """Read, scan and arrange; strict, unless failOnInitError says that the good part shall run."""
        partial = False
        try:
            loaded = await self.config.read()
        except ConfigError:
            loaded = await self.config.read(partial=True)
            if loaded.spec.flags.fail_on_init_error:
                raise
            partial = True
        scan = await self._scanner.scan(self.scan, loaded.spec)
        base = inv.arrange(loaded.spec, self.options.node, scan.devices)
        broken = errors(base.problems)
        if broken and loaded.spec.flags.fail_on_init_error:
            raise ConfigError(broken)
        if partial or broken:
            bad = ConfigError((*errors(loaded.warnings), *broken))
            self.config.refused(bad)
        self._adopt(loaded, scan, base)
        for problem in self.problems:
            write = log.error if problem.is_error else log.warning
            write(problem.message, where=problem.where, hint=problem.hint)

    def _adopt(self, loaded: Loaded, scan: Scan, base: inv.Inventory) -> None:
        self.spec, self.scan, self.base, self.warnings = loaded.spec, scan, base, loaded.warnings
        self.config.applied()

    # --- events ---------------------------------------------------------------------------------------------------------

    def _mark(
        self, *, reload: bool = False, scan: frozenset[str] = frozenset(), health: bool = False, holders: bool = False
    ) -> None:
        self._due.reload |= reload
        self._due.scan |= scan
        self._due.health |= health
        self._due.holders |= holders
        self._wake.set()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.reload}
        for number, action in actions.items():
            loop.add_signal_handler(number, action)
        try:
            yield
        finally:
            for number in actions:
                loop.remove_signal_handler(number)

    async def _watch(self, watcher: Watcher) -> None:
        config_dirs = await asyncio.to_thread(source.directories, self.options.files)
        for directory in {*config_dirs, self.link.directory}:
            watcher.watch(directory)
        async for changed in watcher:
            if self.link.directory in changed:
                await self.link.look()
            if config_dirs & changed.keys():
                self._mark(reload=True)
                config_dirs = await asyncio.to_thread(source.directories, self.options.files)
                for directory in config_dirs:
                    watcher.watch(directory)
            entries = frozenset(name for directory in changed for name in self._watched.get(directory, ()))
            if entries:
                self._mark(scan=entries)

    async def _look_at_kubelet(self) -> None:
        await self.link.remove_leftovers()
        while True:
            await self.link.look()
            await asyncio.sleep(POLL)

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(_RESCAN)
            self._mark(scan=frozenset(self.scan.entries))

    async def _look_at_holders(self) -> None:
        while True:
            self._mark(holders=True)
            await asyncio.sleep(SLOW)

    async def _follow_health(self) -> None:
        async for _ in self.health.changes():
            self._mark(health=True)

    def _on_state(self, resource: str, state: State) -> None:
        self.metrics.registered.labels(resource).set(state is State.REGISTERED)
        if state is State.REGISTERED:
            self.metrics.registrations.labels(resource).inc()
        elif state is State.STOPPED and resource not in self.served.resources:
            self.metrics.forget(resource)

    # --- the reconciler -------------------------------------------------------------------------------------------------

    async def _reconcile_forever(self, watcher: Watcher) -> None:
        await self._publish(watcher)
        while True:
            await self._wake.wait()
            self._wake.clear()
            due, self._due = self._due, Due()
            if due.reload:
                await self._reload()
            if due.scan:
                await self._rescan(due.scan)
            if due.holders:
                await self.holders.refresh()
            await self._publish(watcher)

    async def _reload(self) -> None:
        try:
            loaded = await self.config.read()
            if loaded.spec == self.spec:
                self.warnings = loaded.warnings
                self.config.unchanged()
                return
            scan = await self._scanner.scan(self.scan, loaded.spec)
            base = await asyncio.to_thread(inv.arrange, loaded.spec, self.options.node, scan.devices)
            broken = errors(base.problems)
            if broken:
                raise ConfigError(broken)
        except ConfigError as bad:
            self.config.refused(bad)
            return
        before = {name: len(resource.slots) for name, resource in self.base.resources.items()}
        self._adopt(loaded, scan, base)
        after = {name: len(resource.slots) for name, resource in base.resources.items()}
        log.info("configuration applied", resources=after, before=before)

    async def _rescan(self, entries: set[str]) -> None:
        scan = await self._scanner.scan(self.scan, self.spec, again=entries)
        if scan != self.scan:
            self.scan = scan
            self.base = await asyncio.to_thread(inv.arrange, self.spec, self.options.node, scan.devices)

    async def _publish(self, watcher: Watcher) -> None:
        """Serve what is known now: the difference to what is served, and nothing else, is acted on."""
        assert self.fleet is not None
        await self._follow(watcher)
        self.health.update(self._probed())
        fresh = inv.with_health(self.base, self._verdicts())
        now = time.monotonic()
        holdings = self.holders.snapshot(tuple(self.served.resources.values()))
        options = self.options
        kept = retain.retain(
            self.served, fresh, self.retired, holdings, now, settle=options.retire_settle, blind=options.retire_blind
        )
        if kept.retired.keys() - self.retired.keys():
            self._mark(holders=True)  # the kubelet may know already that nobody holds them
        self.retired = kept.retired
        self._look_again_at(kept.again_at)
        changes = inv.diff(self.served, kept.inventory)
        if changes:
            await self._cdi.write(kept.inventory)
            self.served = kept.inventory
            self.fleet.apply(changes)
        self._measure()

    def _look_again_at(self, moment: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        delay = None if moment is None else max(0.0, moment - time.monotonic())
        self._timer = None if delay is None else loop.call_later(delay, lambda: self._mark(holders=True))

    async def _follow(self, watcher: Watcher) -> None:
        watched = await asyncio.to_thread(self._scanner.watched, self.scan)
        if watched != self._watched:
            watcher.watch_only(watched, among=self._watched)
            self._watched = watched

    def _probed(self) -> dict[str, tuple[HealthSpec, RawDevice]]:
        return {
            raw.id: (entry.health, raw)
            for name, entry in self.scan.entries.items()
            if entry.health is not None
            for raw in self.scan.devices[name]
        }

    def _verdicts(self) -> Mapping[str, Health]:
        return {raw: report.health for raw, report in self.health.reports.items()}

    def _measure(self) -> None:
        held = self.holders.holders or {}
        for name, resource in self.served.resources.items():
            self.metrics.devices.labels(name, "Healthy").set(resource.healthy)
            self.metrics.devices.labels(name, "Unhealthy").set(len(resource.slots) - resource.healthy)
            self.metrics.list_bytes.labels(name).set(resource.list_bytes)
            self.metrics.retired.labels(name).set(sum(key[0] == name for key in self.retired))
            self.metrics.held.labels(name).set(sum(key[0] == name for key in held))
        for severity in ("error", "warning"):
            self.metrics.problems.labels(severity).set(sum(problem.severity == severity for problem in self.problems))
