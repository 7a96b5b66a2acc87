"""The running plugin: wires the parts together and turns every event into a step of the reconciler.

One task, the reconciler's, takes the steps; everything else only marks what is due and wakes it.
"""

import asyncio
import contextlib
import functools
import platform
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import structlog

from ..control import command_socket
from ..health import HealthMonitor
from ..hostfs import Watcher
from ..observe.metrics import Metrics
from ..plugin.kubelet_socket import KubeletSocket
from ..plugin.service import State
from . import handover_actions
from .announcer import Announcer
from .fault_control import Drill
from .handover_actions import Ownership
from .http_view import Window
from .inputs import config_files
from .inputs.chosen_files import Chooser
from .inputs.config_files import ConfigSource
from .inputs.pod_holders import HolderTracker
from .lock import Claim
from .options import Options
from .outputs.device_lists import Fleet
from .reconcile import Reconciler
from .requests import FrontDesk
from .status import status
from .steps import Steps, broken_in

log = structlog.get_logger(__name__)


_HOLDERS = "asking the kubelet who holds what"
_KUBELET = "looking at the kubelet's socket"


@dataclass(slots=True)
class Due:
    """What the reconciler has to do next; what fails stays due."""

    reload: bool = False
    scan: set[str] = field(default_factory=set)
    faults: bool = True  # the files that faults come from or wait for


class Agent:
    """One node's plugin. `run()` returns the exit code; `stop()` ends it from anywhere in the loop."""

    def __init__(self, options: Options, metrics: Metrics | None = None) -> None:
        self.options = options
        self.metrics = metrics or Metrics()
        self.steps = Steps(on_change=self._mark, intervals=options.intervals)
        self.link = KubeletSocket(options.kubelet_socket, options.plugin_dir)
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
        self.state = Reconciler(
            options, self.config, self.holders, self.health, self.metrics, drill=self.drill, steps=self.steps
        )
        self.announcer = Announcer(
            options.service_manager, Window(self).outlook, patience=options.boot_wait, steps=self.steps
        )
        self.claim = Claim(options.plugin_dir, waiting=self._wait_for, period=options.intervals.look_at_lock)
        self.fleet: Fleet | None = None
        self.started_at = time.time()
        self.turned_at = time.monotonic()  # when the reconciler last finished a step
        self.waiting = "starting"  # for what, before the work begins
        self._due = Due()
        self._displaced = False  # another agent serves the kubelet now
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._starting: asyncio.Timeout | None = None
        self._configured: frozenset[Path] = frozenset()
        self._watched: Mapping[Path, frozenset[str]] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._asking: asyncio.TimerHandle | None = None
        self._asked = asyncio.Event()  # somebody wants to know who holds what
        self._limits: tuple[str, ...] = ()
        self._moved = True  # devices may be in other directories than those watched

    def stop(self) -> None:
        """End the agent gracefully, also while it is starting."""
        self.announcer.stop()
        self._stop.set()
        if self._starting is not None and not self._starting.expired():
            self._starting.reschedule(asyncio.get_running_loop().time())

    def reload(self) -> None:
        """Read the configuration again soon, and try at once what failed."""
        self.steps.hurry()
        self._mark(reload=True)

    async def run(self) -> int:
        """Start, work until stopped, shut down.

        Raises ConfigError when the configuration is bad at the start, InvariantBroken when it must not go on.
        """
        try:
            return await self._live()
        except ExceptionGroup as group:
            broken = broken_in(group)
            if broken is None:
                raise
            raise broken from group

    async def _live(self) -> int:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._signals())
            await stack.enter_async_context(self.announcer.announcing())
            watcher = await self._start(stack)
            if watcher is not None:
                await self._work(watcher)
        log.info("stopped")
        return 1 if self._displaced else 0

    async def _start(self, stack: contextlib.AsyncExitStack) -> Watcher | None:
        """Get ready for work, with everything to be undone on the stack; None when told to stop meanwhile."""
        try:
            async with asyncio.timeout(None) as self._starting:
                return None if self._stop.is_set() else await self._prepare(stack)
        except TimeoutError:
            if self._stop.is_set():
                return None
            raise
        finally:
            self._starting = None

    async def _prepare(self, stack: contextlib.AsyncExitStack) -> Watcher | None:
        if self.options.http_address:
            http = await asyncio.to_thread(_http)
            hosts = (self.options.node, platform.node(), *self.options.http_hosts)
            await stack.enter_async_context(http.serving(self.options.http_address, Window(self), hosts=hosts))
        await self.state.start()
        stack.callback(self.claim.release)
        stack.callback(self.state.standins.release)
        if not await self.claim.take(self._stop):
            return None
        if self.claim.waited:
            self.reload()  # the files may have changed meanwhile
        await self.link.remove_leftovers()
        await self.link.look()  # so that the first services know which kubelet they register with
        sys = await asyncio.to_thread(self.options.host.path, "/sys")
        return stack.enter_context(Watcher(sys=sys))

    async def _work(self, watcher: Watcher) -> None:
        self.turned_at, self.waiting = time.monotonic(), ""
        with contextlib.suppress(TimeoutError):  # before the first list, so that nothing that a pod holds misses in it
            async with asyncio.timeout(self.options.intervals.first_reading):
                await self.steps.take(_HOLDERS, self._read_holders)
        steps = self.steps
        async with asyncio.TaskGroup() as group:
            self.fleet = fleet = Fleet(
                group,
                self.link,
                self.desk,
                on_state=self._on_state,
                faults=self.drill.engine,
                intervals=self.options.intervals,
                steps=steps,
            )
            news = self.health.changes()
            turns = {
                "taking a turn": lambda: self._turn(watcher, fleet),
                "watching files": lambda: self._watch(watcher),
                "looking at the kubelet now and then": self._look_at_kubelet,
                "looking at all devices now and then": self._look_again,
                "looking at holders now and then": self._look_at_holders,
                "following health": lambda: self._follow_health(news),
            }
            lives = {
                "doing ownership actions": self.ownership.run,
                "probing devices": self.health.run,
                "following the node's label": lambda: self.config.chooser.follow_label(self.reload),
            }
            if (run_dir := self.options.run_dir) is not None:
                commands = {"status": self._status, **self.drill.commands}
                lives["answering commands"] = lambda: command_socket.serve(run_dir, commands)
            tasks = [group.create_task(steps.repeat(name, each), name=name) for name, each in turns.items()]
            tasks += [group.create_task(steps.keep(name, each), name=name) for name, each in lives.items()]
            await self._stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()
            await fleet.stop()
            await steps.take("hanging up serial lines", self.state.standins.close)

    async def _turn(self, watcher: Watcher, fleet: Fleet) -> None:
        """Take the steps that are due, and wait until there is something to do. A step that fails stays due."""
        due, self._due = self._due, Due(faults=False)
        take = self.steps.take
        if due.reload:
            self._due.reload |= not await take("reading the configuration", self.state.reload)
        if due.scan and not await take("looking for devices", functools.partial(self.state.rescan, due.scan)):
            self._due.scan |= due.scan
        self._due.scan |= self.state.scanner.failed
        if due.faults or self.drill.due:
            self._due.faults |= not await take("looking at the files of faults", self.drill.look_at_files)
        again_at = await self.state.publish(fleet, ask_holders=self._ask_holders)
        await take("injecting faults", functools.partial(self.drill.act, fleet))
        if self.drill.engine.stirred:
            self._asked.set()  # the answers to that may have been taken away, or come back
        self._moved |= due.reload or bool(due.scan)
        if self._moved:
            self._moved = not await take("finding the directories of devices", self._find_directories)
        self.steps.do("watching directories", functools.partial(self._watch_all, watcher))
        self._look_again_at(again_at)
        self.turned_at = time.monotonic()
        self.announcer.turned(reloaded=not self._due.reload)
        await self._wake.wait()
        self._wake.clear()

    async def _find_directories(self) -> None:
        self._watched = await asyncio.to_thread(self.state.scanner.watched, self.state.scan)

    async def _read_holders(self) -> None:
        await self.holders.refresh()
        if self.holders.holders is not None:
            self.ownership.read(self.holders.holders, self.holders.granted(), self.state.served)

    async def _status(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(status, self)

    def _wait_for(self, what: str) -> None:
        self.waiting = what
        self.announcer.look()

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

    def _hang_up(self) -> None:
        self.reload()
        self.announcer.reload()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Act on signals; afterwards they are handled as before, without a moment of the system's own handling.

        So the loop is not told to forget them: it would put the system's handler in between.
        """
        loop = asyncio.get_running_loop()
        actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self._hang_up}
        before = {number: signal.getsignal(number) for number in actions}
        for number, action in actions.items():
            loop.add_signal_handler(number, action)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def _watch(self, watcher: Watcher) -> None:
        files = {*self.options.files, *self.config.chooser.chosen.files}
        self._configured = await asyncio.to_thread(config_files.directories, files)
        self._watch_all(watcher)
        changed = await watcher.changes()
        if self.link.directories & changed.keys():
            await self.steps.take(_KUBELET, self._look_at_directory)
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
        entries = self.state.scanner.concerned(changed)
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
        if not self._configured <= watcher.paths:
            self._mark(reload=True)  # an edit may have come after the last reading and before this watch
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
        await asyncio.sleep(self.options.intervals.look_at_kubelet)
        await self.steps.take(_KUBELET, self._look_at_directory)

    async def _look_at_directory(self) -> None:
        """See whether the kubelet is a new one, and whether its directory is still ours to serve."""
        if not await self.claim.keep():
            directory = str(self.options.plugin_dir)
            log.error("the directory was made anew and another vdev serves it; this one ends", directory=directory)
            self._displaced = True
            self.stop()
        await self.link.look()

    async def _look_again(self) -> None:
        await asyncio.sleep(self.options.intervals.look_at_devices)
        self.state.standins.recheck()
        self.state.cdi.recheck()
        self._mark(scan=frozenset(self.state.scan.entries), faults=True)

    async def _look_at_holders(self) -> None:
        """Ask who holds what when that may have changed, and at a slow pace; the kubelet may take its time."""
        intervals = self.options.intervals
        acts = handover_actions.concerns(self.state.spec)
        pace = intervals.look_at_holders_for_actions if acts else intervals.look_at_holders
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pace):
                await self._asked.wait()
        await asyncio.sleep(self.steps.pause(_HOLDERS))
        self._asked.clear()
        await self.steps.take(_HOLDERS, self._read_holders)
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
        """At that moment ask who holds what, since something retired may have become free, and take a step.

        What failed is tried again when its pause is over.
        """
        for timer in self._timers:
            timer.cancel()
        loop, now = asyncio.get_running_loop(), time.monotonic()
        times = ((moment, self._on_time), (self.steps.again_at, self._mark))
        self._timers = [loop.call_later(max(0.0, at - now), then) for at, then in times if at is not None]

    def _on_time(self) -> None:
        self._asked.set()
        self._mark()  # the kubelet may take its time to answer

    async def _follow_health(self, news: AsyncIterator[frozenset[str]]) -> None:
        devices = await anext(news)
        self._mark()
        self.state.verdicts.reported(devices)

    def _on_state(self, resource: str, state: State) -> None:
        self.announcer.look()
        self.metrics.registered.labels(resource).set(state is State.REGISTERED)
        if state is State.REGISTERED:
            self.metrics.registrations.labels(resource).inc()
            self._ask_holders_soon()  # it may be another kubelet, or the first one there is
        elif state is State.STOPPED and resource not in self.state.served.resources:
            self.metrics.forget(resource)
            self.desk.forget_resource(resource)


def _http() -> ModuleType:
    """The HTTP side, imported where it is wanted only: it brings a web server."""
    from ..observe import http

    return http
