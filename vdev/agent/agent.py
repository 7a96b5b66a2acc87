"""The running plugin: wires the parts together and turns every event into a step of the reconciler.

One task, the reconciler's, takes the steps; everything else only marks what is due and wakes it.
"""

import asyncio
import contextlib
import platform
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog

from ..health import HealthMonitor
from ..hostfs import Watcher
from ..observe import control
from ..observe.metrics import Metrics
from ..plugin.link import KubeletLink
from ..plugin.service import State
from . import ownership, source
from .alone import Claim
from .choose import Chooser
from .desk import FrontDesk
from .drill import Drill
from .fleet import Fleet
from .holdings import HolderTracker
from .options import Options
from .ownership import Ownership
from .reconcile import Reconciler
from .source import ConfigSource
from .status import status
from .window import Window

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Due:
    """What the reconciler has to do next."""

    reload: bool = False
    scan: set[str] = field(default_factory=set)
    faults: bool = True  # the files that faults come from or wait for


class Agent:
    """One node's plugin. `run()` returns the exit code; `stop()` ends it from anywhere in the loop."""

    def __init__(self, options: Options, metrics: Metrics | None = None) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.link = KubeletLink(options.kubelet_socket, options.plugin_dir)
        self.ownership = Ownership(options.host, self.metrics)
        self.desk = FrontDesk(
            self.metrics,
            self.ownership,
            allocate_deadline=options.allocate_deadline,
            on_allocated=self._ask_holders_soon,
        )
        chooser = Chooser(options.files, options.node, intervals=options.intervals)
        self.config = ConfigSource(chooser, options.load, self.metrics)
        self.health = HealthMonitor(options.host)
        self.drill = Drill(options, self.metrics, wake=self._mark)
        self.holders = HolderTracker(
            options.pod_resources_socket,
            options.plugin_dir,
            self.desk,
            generation=lambda: self.link.generation,
            intervals=options.intervals,
            listens=self._kubelet_listens,
            is_down=lambda: self.drill.engine.pod_resources_down,
        )
        self.state = Reconciler(options, self.config, self.holders, self.health, self.metrics, drill=self.drill)
        self.claim = Claim(options.plugin_dir, waiting=self._wait_for, period=options.intervals.look_at_lock)
        self.fleet: Fleet | None = None
        self.started_at = time.time()
        self.turned_at = time.monotonic()  # when the reconciler last finished a step
        self.waiting = "starting"  # for what, before the work begins
        self._due = Due()
        self._displaced = False  # another agent serves the kubelet now
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._configured: frozenset[Path] = frozenset()
        self._watched: Mapping[Path, frozenset[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._asked = asyncio.Event()  # somebody wants to know who holds what
        self._limits: tuple[str, ...] = ()

    def stop(self) -> None:
        """End the agent gracefully."""
        self._stop.set()

    def reload(self) -> None:
        """Read the configuration again soon."""
        self._mark(reload=True)

    async def run(self) -> int:
        """Start, work until stopped, shut down. Raises ConfigError when the configuration is bad at the start."""
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._signals())
            if self.options.http_address:
                http = await asyncio.to_thread(_http)
                hosts = (self.options.node, platform.node(), *self.options.http_hosts)
                await stack.enter_async_context(http.serving(self.options.http_address, Window(self), hosts=hosts))
            await self.state.start()
            stack.callback(self.claim.release)
            stack.callback(self.state.standins.release)
            if not await self.claim.take(self._stop):
                return 0
            if self.claim.waited:
                self.reload()  # the files may have changed meanwhile
            await self.link.remove_leftovers()
            await self.link.look()  # so that the first services know which kubelet they register with
            sys = await asyncio.to_thread(self.options.host.path, "/sys")
            watcher = stack.enter_context(Watcher(sys=sys))
            if self.options.run_dir is not None:
                await stack.enter_async_context(
                    control.serving(self.options.run_dir, {"status": self._status, **self.drill.commands})
                )
            await self._work(watcher)
        log.info("stopped")
        return 1 if self._displaced else 0

    async def _work(self, watcher: Watcher) -> None:
        self.turned_at, self.waiting = time.monotonic(), ""
        with contextlib.suppress(TimeoutError):  # before the first list, so that nothing that a pod holds misses in it
            async with asyncio.timeout(self.options.intervals.first_reading):
                await self._read_holders()
        async with asyncio.TaskGroup() as group:
            self.fleet = fleet = Fleet(
                group,
                self.link,
                self.desk,
                on_state=self._on_state,
                faults=self.drill.engine,
                intervals=self.options.intervals,
            )
            work = {
                "ownership actions": self.ownership.run(),
                "reconcile": self._reconcile(watcher, fleet),
                "watch files": self._watch(watcher),
                "look at the kubelet": self._look_at_kubelet(),
                "look at all devices": self._look_again(),
                "look at holders": self._look_at_holders(),
                "health probes": self.health.run(),
                "follow health": self._follow_health(),
                "follow the node's label": self.config.chooser.follow_label(self.reload),
            }
            tasks = [group.create_task(each, name=name) for name, each in work.items()]
            await self._stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()
            await fleet.stop()
            await self.state.standins.close()

    async def _reconcile(self, watcher: Watcher, fleet: Fleet) -> None:
        """Take the steps that are due, for ever."""
        moved = True  # whether devices may be in other directories than those watched
        while True:
            due, self._due = self._due, Due(faults=False)
            if due.reload:
                await self.state.reload()
            if due.scan:
                await self.state.rescan(due.scan)
            if due.faults or self.drill.due:
                await self.drill.look_at_files()
            again_at = await self.state.publish(fleet, ask_holders=self._ask_holders)
            self._look_again_at(again_at)
            await self.drill.act(fleet)
            if self.drill.engine.stirred:
                self._asked.set()  # the answers to that may have been taken away, or come back
            if moved or due.reload or due.scan:
                self._watched = await asyncio.to_thread(self.state.scanner.watched, self.state.scan)
                moved = False
            self._watch_all(watcher)
            self.turned_at = time.monotonic()
            await self._wake.wait()
            self._wake.clear()

    async def _read_holders(self) -> None:
        await self.holders.refresh()
        if self.holders.holders is not None:
            self.ownership.read(self.holders.holders, self.holders.granted(), self.state.served)

    async def _status(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return status(self)

    def _wait_for(self, what: str) -> None:
        self.waiting = what

    # --- events -------------------------------------------------------------------------------------------------------

    def _mark(
        self,
        *,
        reload: bool = False,
        scan: frozenset[str] = frozenset(),
        faults: bool = False,
    ) -> None:
        self._due.faults |= faults
        self._due.reload |= reload
        self._due.scan |= scan
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
        while True:
            files = {*self.options.files, *self.config.chooser.chosen.files}
            self._configured = await asyncio.to_thread(source.directories, files)
            self._watch_all(watcher)
            changed = await watcher.changes()
            if self.link.directories & changed.keys():
                await self._look_at_directory()
            self.health.wake(changed)
            if self.state.standins.directories & changed.keys():
                self.state.standins.recheck()
                self._mark()
            if any(self.state.cdi.recheck(changed[each]) for each in self.state.cdi.directories & changed.keys()):
                self._mark()
            if self.drill.directories & changed.keys():
                self._mark(faults=True)
            if self._configured & changed.keys():
                self._mark(reload=True)
            entries = frozenset(name for directory in changed for name in self._watched.get(directory, ()))
            if entries:
                self._mark(scan=entries)

    def _watch_all(self, watcher: Watcher) -> None:
        """Watch what is to be watched now and no more; the content of files matters to configurations and probes."""
        wanted = {
            *self.link.directories,
            *self._configured,
            *self._watched,
            *self.health.directories,
            *self.drill.directories,
            *self.state.standins.directories,
            *self.state.cdi.directories,
        }
        for directory in watcher.paths - wanted:
            watcher.unwatch(directory)
        if not self.drill.directories <= watcher.paths:
            self._mark(faults=True)  # a file may have come after the last look and before this watch
        if not self.state.cdi.directories <= watcher.paths and self.state.cdi.recheck():
            self._mark()  # likewise
        contents = self._configured | self.health.contents | self.drill.directories | self.state.cdi.directories
        for directory in wanted:
            watcher.watch(directory, content=directory in contents)
        for limit in watcher.limits:
            if limit not in self._limits:
                log.warning("file events are limited", reason=limit)
        self._limits = watcher.limits

    async def _look_at_kubelet(self) -> None:
        while True:
            await asyncio.sleep(self.options.intervals.look_at_kubelet)
            await self._look_at_directory()

    async def _look_at_directory(self) -> None:
        """See whether the kubelet is a new one, and whether its directory is still ours to serve."""
        if not await self.claim.keep():
            directory = str(self.options.plugin_dir)
            log.error("the directory was made anew and another vdev serves it; this one ends", directory=directory)
            self._displaced = True
            self.stop()
        await self.link.look()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self.options.intervals.look_at_devices)
            self.state.standins.recheck()
            self.state.cdi.recheck()
            self._mark(scan=frozenset(self.state.scan.entries), faults=True)

    async def _look_at_holders(self) -> None:
        """Ask who holds what when that may have changed, and at a slow pace; the kubelet may take its time."""
        intervals = self.options.intervals
        while True:
            acts = ownership.concerns(self.state.spec)
            pace = intervals.look_at_holders_for_actions if acts else intervals.look_at_holders
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pace):
                    await self._asked.wait()
            self._asked.clear()
            await self._read_holders()
            self._mark()

    def _kubelet_listens(self) -> bool:
        return self.fleet is not None and any(service.streams for service in self.fleet.services.values())

    def _ask_holders_soon(self) -> None:
        """Ask who holds what once the pods of this moment's requests are admitted: one question for all of them."""
        if self._asking is None:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(self.options.intervals.admission, self._ask_holders)

    def _ask_holders(self) -> None:
        self._asking = None
        self._asked.set()

    def _look_again_at(self, moment: float | None) -> None:
        """At that moment ask who holds what, since something retired may have become free, and take a step."""
        if self._timer is not None:
            self._timer.cancel()
        delay = None if moment is None else max(0.0, moment - time.monotonic())
        loop = asyncio.get_running_loop()
        self._timer = None if delay is None else loop.call_later(delay, self._on_time)

    def _on_time(self) -> None:
        self._asked.set()
        self._mark()  # the kubelet may take its time to answer

    async def _follow_health(self) -> None:
        async for devices in self.health.changes():
            self.state.verdicts.reported(devices)
            self._mark()

    def _on_state(self, resource: str, state: State) -> None:
        self.metrics.registered.labels(resource).set(state is State.REGISTERED)
        if state is State.REGISTERED:
            self.metrics.registrations.labels(resource).inc()
        elif state is State.STOPPED and resource not in self.state.served.resources:
            self.metrics.forget(resource)
            self.desk.forget_resource(resource)


def _http() -> ModuleType:
    """The HTTP side, imported where it is wanted only: it brings a web server."""
    from ..observe import http

    return http
