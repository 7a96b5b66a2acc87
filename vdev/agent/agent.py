"""The agent of a node: starts its parts, reconciles, and shuts down in order.

One task reconciles: it reads files and looks for devices, then the reconciler plans and applies. All events only add
pending work (see `triggers.py`). While another agent serves the node, this one stands by: it reads and scans, applies
nothing, and takes over when the other one ends.
"""

import asyncio
import contextlib
import functools
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import grpc.aio
import structlog

from ..aio.tasks import acting_on, in_background, run_until
from ..deviceplugin.registration import KubeletSocket
from ..deviceplugin.service import ServiceState
from ..discovery.health_monitor import HealthMonitor
from ..dra.applier import DraDrivers
from ..faults.schedule import earliest
from ..node.events import Situation
from ..observe.metrics import Metrics
from ..telemetry.applier import Telemetry
from . import command_socket
from .applier import Applier
from .cdi_files import CdiFiles
from .config_files import ConfigSource
from .device_lists import DeviceLists, Measures
from .fault_control import FaultControl, KernelLog
from .handovers import HandoverActions
from .lock import NodeLock
from .node_layouts import NodeLayouts
from .node_objects import NodeApi
from .options import Options
from .placeholders import Placeholders
from .pod_holders import PodHolders
from .reconcile import READING, Reconciler
from .retry import Retrier
from .service_manager import Notifier
from .state_file import StateFile
from .status import serve_http, status
from .triggers import ASKING_HOLDERS, PendingWork, Triggers

log = structlog.get_logger(__name__)

_Work = Callable[[], Awaitable[object]]
_Task = asyncio.Task[None]

_STATUS_WAITS = 1.0  # seconds, at most, for a pending reconciliation


class Agent:
    """One node's plugin. `run()` returns the exit code; `stop()` ends it, and may be called at any time.

    `appliers` are called in addition to its own.
    """

    def __init__(self, options: Options, *, appliers: Sequence[Applier] = ()) -> None:
        self.options = options
        self.metrics = Metrics()
        timing, clock = options.timing, options.clock
        # The order matters: a part that takes `self` may use only the parts above it now, and all of them later.
        self.pending = PendingWork(clock)
        self.retrier = Retrier(on_change=self.pending.add, timing=timing)
        self.lock = NodeLock(options.plugin_dir, on_change=self.pending.add, timing=timing)
        self.link = KubeletSocket(options.registration_socket, options.plugin_dir)
        self.state = StateFile(self)
        self.placeholders = Placeholders(options.device_dir, options.host, timing=timing)
        self.handovers = HandoverActions(self)
        self.faults = FaultControl(self)
        self.node_api = NodeApi(self)
        self.config = ConfigSource(self)
        self.health = HealthMonitor(options.host, self.metrics, clock, on_change=self.pending.add)
        self.cdi = CdiFiles(options.cdi_dir, timing)
        self.lists = DeviceLists(self)
        self.holders = PodHolders(self)
        self.kernel_log = KernelLog(options.node_name, options.host, clock)
        self.measures = Measures(self.metrics, clock)
        self.telemetry = Telemetry(options, self.node_api.api, self.retrier, on_change=self.pending.add)
        self.tools = self.telemetry.tools
        self.dra = DraDrivers(self)
        self.layouts = NodeLayouts(self)
        self.appliers: tuple[Applier, ...] = (
            # Stage.PREPARE
            self.placeholders,
            self.tools,  # before the CDI specifications that mount them
            self.cdi,
            self.state,
            self.handovers,
            # Stage.FOLLOW
            self.measures,  # before appliers that wait, because a resource that stops in that time loses its metrics
            self.kernel_log,
            *self.node_api.appliers,
            self.dra,
            self.telemetry,
            *appliers,
        )
        self.reconciler = Reconciler(self)
        self.started_at = clock.wall()
        self.reconciled_at = clock.now()  # when the last reconciliation ended
        self.triggers = Triggers(self)
        self.notifier = Notifier(self, options.service_manager) if options.service_manager else None
        self._reconciling = asyncio.Lock()  # held during a reconciliation, and during a take-over
        self._exit_code = 0
        self._stop = asyncio.Event()

    # --- the parts ----------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Read the configuration again soon, and retry failed operations at once."""
        self.retrier.retry_now()
        self.pending.add(reload=True)

    async def read_holders(self) -> None:
        """Ask the kubelet which pods hold devices, unless that failed a moment ago."""
        await self.retrier.run(ASKING_HOLDERS, self.holders.refresh)

    def situation(self) -> Situation:
        """Return the facts that Events of the Node report in addition to the plan."""
        reading, services = self.config, self.lists.services.values()
        return Situation(
            applied=reading.applied,
            refused=reading.failed,
            reading=reading.history[0]["summary"] if reading.history else "",
            unregistered={each.name: each.trouble for each in services if each.trouble},
            active_rules=self.faults.active_rules,
        )

    def on_claims(self) -> None:
        """React to a change of a DRA driver's prepared claims or problems."""
        self.pending.add()
        self.holders.ask_soon()  # only the kubelet knows which pods have claims

    def on_state(self, resource: str, state: ServiceState) -> None:
        self.pending.add()
        self.metrics.registered.labels(resource).set(state is ServiceState.REGISTERED)
        if state is ServiceState.REGISTERED:
            self.metrics.registrations.labels(resource).inc()
            self.holders.ask_soon()  # it may be another kubelet, or the first one
        elif state is ServiceState.STOPPED and resource not in self.reconciler.advertised.resources:
            self.metrics.forget(resource)

    # --- start, work and stop -----------------------------------------------------------------------------------------

    def stop(self, exit_code: int = 0) -> None:
        self._exit_code = self._exit_code or exit_code
        if self.notifier is not None:
            self.notifier.stop()
        self._stop.set()

    async def run(self) -> int:
        """Start, work until stopped, shut down.

        Raises ConfigError if the configuration is bad at the start.
        """
        async with contextlib.AsyncExitStack() as stack:
            # gRPC runs a thread while there is a channel or a server, and the event loop waits for that thread to end.
            # This call keeps the thread; otherwise the loop waits after each call to the kubelet without a server.
            grpc.aio.init_grpc_aio()
            stack.callback(grpc.aio.shutdown_grpc_aio)
            actions = {signal.SIGTERM: self.stop, signal.SIGINT: self.stop, signal.SIGHUP: self.reload}
            stack.enter_context(acting_on(actions))
            if self.notifier is not None:
                telling = self.retrier.run_forever("telling the service manager", self.notifier.run_once)
                await stack.enter_async_context(in_background(telling, name="service manager"))
            await run_until(self._stop, self._prepare(stack))
            if not self._stop.is_set():
                await self._work()
        log.info("stopped")
        return self._exit_code

    async def _prepare(self, stack: contextlib.AsyncExitStack) -> None:
        """Prepare everything that stand-by also needs, and put the clean-up on the stack."""
        if self.options.http_address:
            serving = self.retrier.supervise("serving HTTP", functools.partial(serve_http, self))
            await stack.enter_async_context(in_background(serving, name="http"))
        stack.push_async_callback(self.node_api.api.connection.aclose)
        watching = self.retrier.supervise("watching the Node", self.node_api.object.run)
        await stack.enter_async_context(in_background(watching, name="watching the Node"))
        await self.triggers.begin(stack)
        await self.reconciler.start()
        stack.callback(self.lock.release)
        stack.callback(self.placeholders.release)
        stack.push_async_callback(self.retrier.run, "hanging up serial lines", self.placeholders.close)

    async def _work(self) -> None:
        """Run the tasks, serve the node as soon as no other agent does, and shut down after `stop`."""
        async with asyncio.TaskGroup() as group:
            tasks = self._follow(group)

            async def serve() -> None:
                await self.lock.take()
                take_over = functools.partial(self._take_over, group)
                await self.retrier.supervise("taking over the node", take_over)
                tasks.extend(self._serve(group))

            await run_until(self._stop, serve())
            await self._stop.wait()
            log.info("stopping")
            for task in tasks:
                task.cancel()
            await self.dra.stop()
            await self.lists.stop()

    def _follow(self, group: asyncio.TaskGroup) -> list[_Task]:
        """Start the tasks that also run in stand-by."""
        repeated: dict[str, _Work] = {
            "reconciling": self._reconcile,
            "watching files": self.triggers.watch,
            "looking again at intervals": self.triggers.look_again,
        }
        lasting: dict[str, _Work] = {}
        if (run_dir := self.options.run_dir) is not None:
            commands = {"status": self._status, "top": self.telemetry.top, **self.faults.store.commands}
            lasting["answering commands"] = lambda: command_socket.serve(run_dir, commands, self.options.intervals)
        return self._tasks(group, repeated, lasting)

    def _serve(self, group: asyncio.TaskGroup) -> list[_Task]:
        """Start the tasks that only run in the agent that serves the node."""
        repeated: dict[str, _Work] = {
            "reading holders at intervals": self.triggers.look_at_holders,
            **self.node_api.writers,
            "publishing ResourceSlices": self.dra.slices.work,
            "serving the metrics of devices": self.telemetry.work,
            "writing data for tools in containers": self.tools.work,
        }
        lasting = {
            "running actions of devices": self.handovers.run,
            "probing devices": self.health.run,
            "watching ResourceSlices": self.dra.follow,
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
        """Serve the node from the next reconciliation on.

        The state file and the holders are read only now, because the agent that served until now changed them.
        """
        async with self._reconciling:
            await self.link.remove_leftovers()
            await self.link.check()  # the first services must know which kubelet they register with
            (before, inventory), _ = await asyncio.gather(self.state.take_over(), self.dra.recall())
            self.holders.recall(self.handovers.recall(before.handovers))
            self.layouts.progresses = before.layouts
            self.reconciler.resume(inventory)
            with contextlib.suppress(TimeoutError):  # before the first list, so that it has every held device
                async with self.options.clock.timeout(self.options.intervals.first_reading):
                    await self.read_holders()
            self.reconciled_at = self.options.clock.now()
            self.lists.start(group)
            self.dra.start(group)
        self.retrier.retry_now()
        self.pending.add()

    async def _reconcile(self) -> None:
        """Reconcile once, and wait until there is a reason for the next time."""
        async with self._reconciling:
            begun, plan_at = self.options.clock.now(), None
            await self._observe()  # work that fails stays pending
            if self.lists.running:  # else another agent serves the node
                plan_at = await self.reconciler.reconcile()
                await self.retrier.run("injecting faults", self.faults.act)
            else:
                self.reconciler.log_problems()
            await self.retrier.run("watching directories", self.triggers.arm)
            until = earliest((plan_at, self.retrier.next_attempt(begun), self.faults.engine.next_change))
            self.reconciled_at = self.options.clock.now()
            if self.notifier is not None:
                self.notifier.look()
        await self.pending.wait(until)
        if plan_at is not None and plan_at <= self.options.clock.now():
            self.holders.ask()  # the devices that pods hold may decide the next plan

    async def _observe(self) -> None:
        """Do the pending work. Work that fails is pending again."""
        pending, run = self.pending, self.retrier.run
        if pending.reload:
            pending.reload = False
            if not await run(READING, self.reconciler.reload):
                pending.reload = True
        if entries := pending.scan:
            pending.scan = set()
            if not await run("looking for devices", functools.partial(self.reconciler.rescan, entries)):
                pending.scan |= entries
        pending.scan |= self.reconciler.scanner.failed
        if self.faults.directories:
            await run("looking at the files of faults", self.faults.look_at_files)

    async def _status(self, _request: Mapping[str, Any]) -> Mapping[str, Any]:
        # Wait for a pending reconciliation, so that the status shows what a command just changed.
        with contextlib.suppress(TimeoutError):
            async with self.options.clock.timeout(_STATUS_WAITS):
                await self.pending.is_done.wait()
        return await asyncio.to_thread(status, self)
