"""The life of the running plugin: its parts are put together, started, and ended in order.

One task takes the turns: what is due is read and looked for, then the reconciler decides and settles. Everything that
happens only marks what is due (see `events`). While another agent serves the node, the turns end before anything is
applied: this one stands by, with everything read and looked for, and takes over once the other one is gone.
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
from ..config import file_choice
from ..deviceplugin.registration import KubeletSocket
from ..deviceplugin.requests import Requests
from ..deviceplugin.service import ServiceState
from ..discovery.health_monitor import HealthMonitor
from ..dra.applier import Dra
from ..hostfs.watch import Watcher
from ..observe.metrics import Metrics
from ..telemetry.applier import Telemetry
from ..telemetry.tool_files import ToolFiles
from . import command_socket
from .announcer import Announcer
from .applier import Applier, Beside, Stage
from .cdi_files import CdiFiles
from .config_files import ConfigSource, FileChooser, NodeLabel
from .device_lists import DeviceLists, Measures
from .events import Events
from .fault_control import FaultControl
from .handovers import Actions, HandoverActions
from .kernel_log import KernelLog
from .lock import NodeLock
from .node_choices import NodeChoices
from .node_objects import NodeApi
from .options import Options
from .pod_holders import PodHolders
from .reconcile import READING, Reconciler
from .state_file import Owner, StateFile
from .status import HttpView, situation, status
from .steps import Due, Steps, broken_in
from .virtual_nodes import VirtualNodes

log = structlog.get_logger(__name__)

_Life = Callable[[], Awaitable[object]]
_Task = asyncio.Task[None]

_STATUS_WAITS = 1.0  # seconds, at most, for a turn that is due


class Agent:
    """One node's plugin. `run()` returns the exit code; `stop()` ends it from anywhere in the loop.

    `appliers` are applied besides the agent's own, which keep the node's devices.
    """

    def __init__(self, options: Options, *, appliers: Sequence[Applier] = ()) -> None:
        self.options = options
        self.metrics = Metrics()
        timing, clock = options.timing, options.clock
        self.due = Due(timing)
        self.steps = Steps(on_change=self.due.mark, timing=timing)
        self.lock = NodeLock(options.plugin_dir, waiting=self._wait_for, timing=timing)
        self.link = KubeletSocket(options.kubelet_socket, options.plugin_dir, is_ours=self.lock.stands)
        self.state = StateFile(
            options.state_dir,
            Owner(options.node, str(options.plugin_dir), options.boot_id),
            options.files,
            good=lambda: self.config.good,  # it comes to be below
            timing=timing,
        )
        owner = f"{options.node} {options.plugin_dir}"
        self.nodes = VirtualNodes(options.device_dir, options.host, owner=owner, timing=timing)
        self.handovers = HandoverActions(
            Actions(options.host, self.metrics, timing, self.nodes.renew),
            self.state.record,
            timing=timing,
            ask=lambda: self.events.read_holders(),  # the events come to be below
            wake=self.due.mark,
        )
        self.requests = Requests(
            self.metrics,
            handed_over=self.handovers.allocated,
            pre_start=self.handovers.pre_start,
            allocate_deadline=options.allocate_deadline,
            on_allocated=self.due.ask_holders_soon,
            clock=clock,
        )
        self.faults = FaultControl(options, self.metrics, wake=self.due.mark)
        self.node_api = NodeApi(options, lambda: situation(self), self.faults.engine.on_api, self.steps.hurry)
        label = NodeLabel(self.node_api.object, *file_choice.LABELS)
        chooser = FileChooser(
            options.files,
            options.node,
            label=label,
            last=self.state.kept_files,
            on_change=self.reload,
            timing=timing,
        )
        self.config = ConfigSource(chooser, options.load, options.load_again, self.metrics, clock)
        self.health = HealthMonitor(options.host, clock)
        self.holders = PodHolders(
            options.pod_resources_socket,
            options.plugin_dir,
            self.requests,
            generation=lambda: self.link.generation,
            timing=timing,
            listens=lambda: self.lists.is_listened_to,
            is_down=lambda: self.faults.engine.pod_resources_down,
        )
        self.cdi = CdiFiles(options.cdi_dir, timing)
        self.lists = DeviceLists(
            self.link,
            self.requests,
            on_state=self._on_state,
            faults=self.faults.engine,
            timing=timing,
            steps=self.steps,
        )
        self.kernel_log = KernelLog(options.node, options.host, clock)
        self.measures = Measures(self.metrics, clock)
        self.telemetry = Telemetry(options, self.node_api.api, on_change=self.due.mark)
        self.tools = ToolFiles(options.smi_dir, self.telemetry.measured, timing)
        self.dra = Dra(
            options,
            self.node_api.access,
            self.steps,
            self.metrics,
            wake=self._claims_changed,
            renew=self.nodes.renew,
            faults=self.faults.engine,
        )
        self.reconciler = Reconciler(
            options,
            self.config,
            self.holders,
            self.health,
            self.metrics,
            faults=self.faults,
            steps=self.steps,
            choices=NodeChoices(options.node, self.node_api.object, self.due.mark),
            appliers=(
                self.nodes,
                self.tools,  # before the specifications that mount them
                self.cdi,
                self.state,
                self.measures,  # before any that waits: a resource that stops meanwhile is measured no more
                self.handovers,
                *self.lists.appliers,
                self.kernel_log,
                *self.node_api.appliers,
                self.dra,
                self.telemetry,
                Beside("showing devices in containers", Stage.FOLLOW, self.tools.show),
                *appliers,
            ),
            claimed=lambda: self.dra.claimed,
        )
        self.events = Events(self)
        self.announcer = Announcer(
            options.service_manager,
            HttpView(self).outlook,
            patience=options.boot_wait,
            steps=self.steps,
            timing=timing,
        )
        self.started_at = clock.wall()
        self.turned_at = clock.now()  # when the last turn ended
        self.turns = 0  # that ended
        self.waiting = "starting"  # for what, before the work begins
        self._turning = asyncio.Lock()  # held during a turn, and while the node is taken over
        self._turned = asyncio.Condition()  # told of the end of each turn
        self._displaced = False  # another agent serves the kubelet now
        self._stop = asyncio.Event()
        self._starting = Interruption()

    def stop(self) -> None:
        self.announcer.stop()
        self._stop.set()
        self._starting.interrupt()

    def reload(self) -> None:
        """Read the configuration again soon, and try at once what failed."""
        self.steps.hurry()
        self.due.mark(reload=True)

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
            # gRPC has a thread while there is a channel or a server, and the event loop waits for the thread's end:
            # without this at the end of each question to the kubelet, as long as there is no server.
            grpc.aio.init_grpc_aio()
            stack.callback(grpc.aio.shutdown_grpc_aio)
            actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.reload}
            stack.enter_context(acting_on(actions))
            await stack.enter_async_context(self.announcer.announcing())
            watcher = await self._start(stack)
            if watcher is not None:
                await self._work(watcher)
        log.info("stopped")
        return 1 if self._displaced else 0

    async def _start(self, stack: contextlib.AsyncExitStack) -> Watcher | None:
        """Get ready for work, with everything to be undone on the stack; None when told to stop meanwhile."""
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
            self.due.mark(reload=True)
        stack.callback(self.lock.release)
        stack.callback(self.nodes.release)
        stack.push_async_callback(self.steps.take, "hanging up serial lines", self.nodes.close)
        return watcher

    async def _work(self, watcher: Watcher) -> None:
        """Keep everything current, serve the node as soon as no other agent does, and end what was begun."""
        async with asyncio.TaskGroup() as group:
            tasks = self._follow(group, watcher)
            with contextlib.suppress(Interrupted):
                async with self._starting:
                    if await self.lock.take(self._stop):
                        take_over = functools.partial(self._take_over, group)
                        await self.steps.keep("taking over the node", take_over)
                        tasks += self._serve(group)
            await self._stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()
            await self.dra.stop(hands_over=await self.lock.is_awaited())
            await self.lists.stop()

    def _follow(self, group: asyncio.TaskGroup, watcher: Watcher) -> list[_Task]:
        """Start what is done all the time, also in stand-by."""
        turns = {
            "taking a turn": lambda: self._turn(watcher),
            "watching files": lambda: self.events.watch(watcher),
            "looking at the kubelet now and then": self.events.look_at_kubelet,
            "looking at all devices now and then": self.events.look_again,
        }
        lives = {"following the Node": self.node_api.object.run}
        if (run_dir := self.options.run_dir) is not None:
            commands = {"status": self._status, "top": self.telemetry.top, **self.faults.commands}
            lives["answering commands"] = lambda: command_socket.serve(run_dir, commands, self.options.intervals)
        return self._tasks(group, turns, lives)

    def _serve(self, group: asyncio.TaskGroup) -> list[_Task]:
        """Start what only the agent does that serves the node."""
        news = self.health.changes()
        turns = {
            "looking at holders now and then": self.events.look_at_holders,
            "following health": lambda: self.events.follow_health(news),
            **self.node_api.turns,
            "publishing ResourceSlices": self.dra.work,
            "telling what devices measure": self.telemetry.work,
        }
        lives = {
            "doing ownership actions": self.handovers.run,
            "probing devices": self.health.run,
            "writing what tools show in containers": self.tools.run,
            "following ResourceSlices": self.dra.follow,
        }
        return self._tasks(group, turns, lives)

    def _tasks(self, group: asyncio.TaskGroup, turns: Mapping[str, _Life], lives: Mapping[str, _Life]) -> list[_Task]:
        tasks = [group.create_task(self.steps.repeat(name, each), name=name) for name, each in turns.items()]
        return tasks + [group.create_task(self.steps.keep(name, each), name=name) for name, each in lives.items()]

    async def _take_over(self, group: asyncio.TaskGroup) -> None:
        """Serve the node from the next turn on.

        What the last process listed and who holds what is read only now: the one that served until now had a say in it.
        """
        async with self._turning:
            await self.link.remove_leftovers()
            await self.link.look()  # so that the first services know which kubelet they register with
            (listed, inventory, ledger), _ = await asyncio.gather(self.state.take_over(), self.dra.recall())
            self.handovers.recall(ledger)
            self.holders.recall(ledger.tenants.keys() | ledger.granted)
            self.reconciler.resume(inventory, listed.choices)
            with contextlib.suppress(TimeoutError):  # before the first list, so that it lacks nothing that a pod holds
                async with self.options.clock.timeout(self.options.intervals.first_reading):
                    await self.events.read_holders()
            self.turned_at, self.waiting = self.options.clock.now(), ""
            self.lists.start(group)
            self.dra.start(group)
        self.steps.hurry()
        self.due.mark()

    async def _turn(self, watcher: Watcher) -> None:
        """Take the steps that are due, and wait until there is something to do."""
        async with self._turning:
            await self._take_turn(watcher)
        await self.due.wait()

    async def _take_turn(self, watcher: Watcher) -> None:
        """Read and look for what is due; settle that where this agent serves. A step that fails stays due."""
        begun, work = self.options.clock.now(), self.due.take()
        take, state = self.steps.take, self.reconciler
        if work.reload and not await take(READING, state.reload):
            self.due.work.reload = True
        if work.scan and not await take("looking for devices", functools.partial(state.rescan, work.scan)):
            self.due.work.scan |= work.scan
        self.due.work.scan |= state.scanner.failed
        if work.faults or self.faults.due:
            self.due.work.faults |= not await take("looking at the files of faults", self.faults.look_at_files)
        again_at = await self._apply() if self.lists.running else None
        await take("finding the directories of files", self.events.find_files)
        await take("watching directories", functools.partial(self.events.arm, watcher))
        self.due.wake_at(again_at, self.steps.again_at(begun))
        self.turned_at = self.options.clock.now()
        self.turns += 1
        async with self._turned:
            self._turned.notify_all()
        self.announcer.look()

    async def _apply(self) -> float | None:
        """Decide and tell everybody; the (monotonic) time at which to do it again though nothing happens."""
        api_failed = self.faults.engine.fails_api
        again_at = await self.reconciler.reconcile(ask_holders=self.due.ask_holders)
        await self.steps.take(
            "injecting faults",
            functools.partial(self.faults.act, self.lists, self.node_api.break_watches, self.dra.slices.wipe),
        )
        if self.faults.engine.stirred:
            self.dra.poke()
            self.due.asked.set()  # the answers to that may have been taken away, or come back
        if api_failed and not self.faults.engine.fails_api:
            self.steps.hurry()  # nobody asks to be left alone any more
        return again_at

    async def _status(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        # A turn plans in a thread: wait for those that are due, so that the status shows what a command just changed.
        due = self.turns + self._turning.locked() + self.due.is_marked
        with contextlib.suppress(TimeoutError):
            async with self.options.clock.timeout(_STATUS_WAITS), self._turned:
                await self._turned.wait_for(lambda: self.turns >= due)
        return await asyncio.to_thread(status, self)

    def _wait_for(self, what: str) -> None:
        self.waiting = what
        self.announcer.look()

    def _claims_changed(self) -> None:
        self.due.mark()
        self.due.ask_holders_soon()  # which pods have claims only the kubelet tells

    def displace(self) -> None:
        """Another agent has come to serve the kubelet."""
        self._displaced = True
        self.stop()

    def _on_state(self, resource: str, state: ServiceState) -> None:
        self.announcer.look()
        if self.reconciler.spec.node.events:
            self.due.mark()
        self.metrics.registered.labels(resource).set(state is ServiceState.REGISTERED)
        if state is ServiceState.REGISTERED:
            self.metrics.registrations.labels(resource).inc()
            self.due.ask_holders_soon()  # it may be another kubelet, or the first one there is
        elif state is ServiceState.STOPPED and resource not in self.reconciler.served.resources:
            self.metrics.forget(resource)
            self.requests.forget_resource(resource)
