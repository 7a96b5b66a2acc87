"""The life of the agent: it starts its parts, takes turns, and ends in order.

One task takes the turns: it reads files and looks for devices, then the reconciler plans and applies. All events only
add pending work (see `events.py`). While another agent serves the node, turns end before anything is applied: this one
stands by with everything read, and takes over once the other one has ended.
"""

import asyncio
import contextlib
import functools
import platform
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc.aio
import structlog

from ..aio.tasks import Interrupted, Interruption, acting_on
from ..hostfs.watch import Watcher
from . import command_socket
from .announcer import Announcer
from .applier import Applier
from .events import Events
from .options import Options
from .parts import AgentParts
from .reconcile import READING
from .retry import broken_in
from .status import HttpView, status

log = structlog.get_logger(__name__)

_Work = Callable[[], Awaitable[object]]
_Task = asyncio.Task[None]

_STATUS_WAITS = 1.0  # seconds, at most, for a pending turn


class Agent(AgentParts):
    """One node's plugin. `run()` returns the exit code; `stop()` ends it, and may be called at any time."""

    def __init__(self, options: Options, *, appliers: Sequence[Applier] = ()) -> None:
        super().__init__(options, appliers)
        self.events = Events(self, on_displaced=self._displace)
        self.announcer: Announcer | None = None
        if options.service_manager is not None:
            self.announcer = Announcer(
                options.service_manager,
                HttpView(self).outlook,
                patience=options.boot_wait,
                retrier=self.retrier,
                timing=options.timing,
            )
        self.turns = 0  # that have ended
        self._turning = asyncio.Lock()  # held during a turn, and during a take-over
        self._turned = asyncio.Condition()  # notified at the end of each turn
        self._api_fails = False  # a fault rule answers in place of the API server
        self._displaced = False  # another agent serves the kubelet now
        self._stop = asyncio.Event()
        self._starting = Interruption()

    def stop(self) -> None:
        if self.announcer is not None:
            self.announcer.stop()
        self._stop.set()
        self._starting.interrupt()

    async def run(self) -> int:
        """Start, work until stopped, shut down.

        Raises ConfigError if the configuration is bad at the start, InvariantBroken if the agent must not go on.
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
            # gRPC runs a thread while there is a channel or a server, and the event loop waits for the end of it.
            # Without this it would wait after each call to the kubelet while there is no server.
            grpc.aio.init_grpc_aio()
            stack.callback(grpc.aio.shutdown_grpc_aio)
            actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.reload}
            stack.enter_context(acting_on(actions))
            if self.announcer is not None:
                await stack.enter_async_context(self.announcer.announcing())
            watcher = await self._start(stack)
            if watcher is not None:
                await self._work(watcher)
        log.info("stopped")
        return 1 if self._displaced else 0

    async def _start(self, stack: contextlib.AsyncExitStack) -> Watcher | None:
        """Get ready for work, and put the clean-up on the stack; returns None if `stop` was called."""
        try:
            async with self._starting:
                return None if self._stop.is_set() else await self._prepare(stack)
        except Interrupted:
            return None

    async def _prepare(self, stack: contextlib.AsyncExitStack) -> Watcher | None:
        if self.options.http_address:
            from ..observe import http  # it imports a web server

            hosts = (self.options.node, platform.node(), *self.options.http_hosts)
            await stack.enter_async_context(http.serving(self.options.http_address, HttpView(self), hosts=hosts))
        stack.push_async_callback(self.node_api.aclose)
        intervals = self.options.intervals
        watcher = Watcher(poll_interval=intervals.look_at_files, settle=intervals.burst)
        stack.enter_context(watcher)
        await self.events.begin(watcher)
        if not await self.reconciler.start(self.state.kept_config):
            self.pending.add(reload=True)
        await self.events.find_files()  # again, with the presets and layouts that were read
        stack.callback(self.lock.release)
        stack.callback(self.nodes.release)
        stack.push_async_callback(self.retrier.run, "hanging up serial lines", self.nodes.close)
        return watcher

    async def _work(self, watcher: Watcher) -> None:
        """Follow the node, serve it as soon as no other agent does, and shut down after `stop`."""
        async with asyncio.TaskGroup() as group:
            tasks = self._follow(group, watcher)
            with contextlib.suppress(Interrupted):
                async with self._starting:
                    if await self.lock.take(self._stop):
                        take_over = functools.partial(self._take_over, group)
                        await self.retrier.supervise("taking over the node", take_over)
                        tasks += self._serve(group)
            await self._stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()
            await self.dra.stop(hands_over=await self.lock.is_awaited())
            await self.lists.stop()

    def _follow(self, group: asyncio.TaskGroup, watcher: Watcher) -> list[_Task]:
        """Start the tasks that also run in stand-by."""
        repeated = {
            "taking a turn": lambda: self._turn(watcher),
            "watching files": lambda: self.events.watch(watcher),
            "looking at the kubelet regularly": self.events.look_at_kubelet,
            "looking at all devices regularly": self.events.look_again,
        }
        lasting = {"following the Node": self.node_api.object.run}
        if (run_dir := self.options.run_dir) is not None:
            commands = {"status": self._status, "top": self.telemetry.top, **self.faults.commands.by_name}
            lasting["answering commands"] = lambda: command_socket.serve(run_dir, commands, self.options.intervals)
        return self._tasks(group, repeated, lasting)

    def _serve(self, group: asyncio.TaskGroup) -> list[_Task]:
        """Start the tasks that only run in the agent that serves the node."""
        news = self.health.changes()
        repeated = {
            "looking at holders regularly": self.events.look_at_holders,
            "following health": lambda: self.events.follow_health(news),
            **self.node_api.turns,
            "publishing ResourceSlices": self.dra.slices.work,
            "serving what devices measure": self.telemetry.work,
        }
        lasting = {
            "doing ownership actions": self.handovers.run,
            "probing devices": self.health.run,
            "writing what tools show in containers": self.tools.run,
            "following ResourceSlices": self.dra.follow,
        }
        return self._tasks(group, repeated, lasting)

    def _tasks(
        self, group: asyncio.TaskGroup, repeated: Mapping[str, _Work], lasting: Mapping[str, _Work]
    ) -> list[_Task]:
        """Start a task for each function; those in `repeated` are called again when they return."""
        retrier = self.retrier
        tasks = [group.create_task(retrier.run_forever(name, work), name=name) for name, work in repeated.items()]
        tasks += [group.create_task(retrier.supervise(name, work), name=name) for name, work in lasting.items()]
        return tasks

    async def _take_over(self, group: asyncio.TaskGroup) -> None:
        """Serve the node from the next turn on.

        The state file and the holders are read only now, because the agent that served until now changed them.
        """
        async with self._turning:
            await self.link.remove_leftovers()
            await self.link.look()  # the first services must know which kubelet they register with
            (listed, inventory, ledger), _ = await asyncio.gather(self.state.take_over(), self.dra.recall())
            self.handovers.recall(ledger)
            self.holders.recall({each.key for each in ledger.tenants})
            self.reconciler.resume(inventory, listed.choices)
            with contextlib.suppress(TimeoutError):  # before the first list, so that it has every held device
                async with self.options.clock.timeout(self.options.intervals.first_reading):
                    await self.read_holders()
            self.turned_at = self.options.clock.now()
            self.lists.start(group)
            self.dra.start(group)
        self.retrier.retry_now()
        self.pending.add()

    async def _turn(self, watcher: Watcher) -> None:
        """Take one turn, and wait until there is a reason for the next one."""
        async with self._turning:
            begun, plan_at = self.options.clock.now(), None
            await self._observe()  # what fails stays pending
            if self.lists.running:  # else another agent serves the node
                plan_at = await self.reconciler.reconcile(ask_holders=self.pending.ask_holders)
                await self._inject_faults()
            await self.retrier.run("watching directories", functools.partial(self.events.arm, watcher))
            self.pending.wake_at(plan_at, self.retrier.next_attempt(begun))
            self.turned_at = self.options.clock.now()
            self.turns += 1
            async with self._turned:
                self._turned.notify_all()
            if self.announcer is not None:
                self.announcer.look()
        await self.pending.wait()

    async def _observe(self) -> None:
        """Read the files and look for the devices that pending work names."""
        work, run = self.pending.take(), self.retrier.run
        if work.reload:
            done = await run(READING, self.reconciler.reload)
            # After it, because the choice of files may have changed. A changed link is a reason to reload, too.
            done &= await run("finding the directories of files", self.events.find_files)
            self.pending.work.reload |= not done
        if work.scan and not await run("looking for devices", lambda: self.reconciler.rescan(work.scan)):
            self.pending.work.scan |= work.scan
        self.pending.work.scan |= self.reconciler.scanner.failed
        if work.faults or self.faults.engine.has_unseen_files:
            self.pending.work.faults |= not await run("looking at the files of faults", self.faults.look_at_files)

    async def _inject_faults(self) -> None:
        act = functools.partial(self.faults.act, self.lists, self.node_api, self.dra.slices)
        await self.retrier.run("injecting faults", act)
        if self.faults.engine.stirred:
            self.dra.poke()
            self.pending.asked.set()  # a rule may have begun or ceased to hide PodResources
        api_failed, self._api_fails = self._api_fails, self.faults.engine.fails_api
        if api_failed and not self._api_fails:
            self.retrier.retry_now()  # the API server answers again

    async def _status(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        # Wait for a turn that is pending, so that the status shows what a command just changed.
        due = self.turns + self._turning.locked() + self.pending.is_waiting
        with contextlib.suppress(TimeoutError):
            async with self.options.clock.timeout(_STATUS_WAITS), self._turned:
                await self._turned.wait_for(lambda: self.turns >= due)
        return await asyncio.to_thread(status, self)

    def _displace(self) -> None:
        """End, because another agent serves the kubelet now."""
        self._displaced = True
        self.stop()
