"""The controller, which has a task for each node.

files ─► adopt ─┐
Node changed ───┼─► node is due ─► sync: make the Node, plan, apply ─► writers
time ───────────┘   (a task per node, with retries)     (a task per writer, with retries)
"""

import asyncio
import contextlib
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

import structlog

from .. import config
from ..agent import command_socket
from ..agent.options import Options
from ..agent.retry import Retrier
from ..aio.tasks import Backoff, TokenBucket
from ..config import Loaded
from ..dra.slice_applier import ResourceSlices
from ..errors import ApiServerError, ConfigError, UsageError
from ..faults.engine import Engine
from ..faults.rule_store import RuleStore
from ..hostfs.watch import Watcher
from ..kube.api import Api
from ..kube.errors import ApiCall, Unreachable
from ..model.fleet import FleetNodes
from ..model.problem import Problem
from ..model.spec import Spec
from ..node.api_applier import NodeAccess, Writer, injected
from ..observe.metrics import Metrics
from . import scope
from .cluster import Cluster, SeenNode
from .made_nodes import NodeMaker
from .member import Member, spec_for_fleet
from .pod_notes import PodNotes
from .scope import MAKER, Scope

log = structlog.get_logger(__name__)

EVENTS = 500
"""The burst of Events over all nodes; further Events are written one by one."""
_READING = "reading the configuration"
_READS = frozenset({"get", "list", "watch"})


class Fleet:
    """The controller of all nodes of a file. `loaded` is the configuration at the start; `load` reads it again.

    Only Nodes with the labels `selector` are changed. `name` is unique among the fleets of a cluster.
    """

    def __init__(
        self,
        options: Options,
        loaded: Loaded,
        api: Api,
        *,
        load: Callable[[], Loaded],
        selector: Mapping[str, str],
        name: str = MAKER,
    ) -> None:
        intervals, clock = options.timing
        self.members: dict[str, Member] = {}
        self.refused: tuple[Problem, ...] = ()  # why the last read of the files is not in force
        self.warnings: tuple[Problem, ...] = ()
        self.writes_per_second = 0.0  # in the last interval of the log
        self.has_begun = False  # all kinds are listed, and nodes are being synced
        self._options = options
        self._load = load
        self._selector = selector
        self._name = name
        self.clock = clock
        self._api = api
        self._epoch = clock.now()
        self._metrics = Metrics()
        self._spec = Spec()
        self._read = Spec()  # the configuration in the files
        self.retrier = Retrier(timing=options.timing)
        self._backoff = Backoff(intervals.api_pause_first, intervals.api_pause_most)
        self.cluster = Cluster(api, on_new=self._start, on_slices=self._look_at_slices)
        self.maker = NodeMaker(api, name)
        self._writing = Retrier(timing=options.timing)  # an operation for each writer of each node
        self._group: asyncio.TaskGroup | None = None  # of the tasks of all nodes and writers
        self._events = TokenBucket(clock, burst=EVENTS, every=intervals.write_event_of_fleet)
        self._rules = RuleStore(
            lambda: {name: member.engine for name, member in self.members.items()},
            clock,
            lambda text, name: config.load_rules(text, name, self._spec),
            owner="this controller",
            allowed=options.fault_injection,
            void=scope.without_effect,
        )
        self._adopt(loaded)

    # --- the configuration --------------------------------------------------------------------------------------------

    def _adopt(self, loaded: Loaded) -> None:
        now = self.clock.now()
        self.refused = ()
        spec = spec_for_fleet(loaded.spec)
        virtual = tuple(entry for entry in spec.entries if entry.virtual is not None)
        self._spec = spec.model_copy(update={"entries": virtual})
        without_effect = tuple(scope.warnings(spec))
        for each in without_effect:
            if each not in self.warnings:
                log.warning("a setting has no effect in a fleet", where=each.where, reason=each.message)
        self.warnings = (*loaded.problems, *without_effect)
        self._rules.configure(self._spec.faults.rules)
        self.scope = Scope(spec.fleet, name=self._name, selector=self._selector)
        for node in map(self.cluster.node, self.scope.made):
            if node.came is None:
                node.came = now
        self._read = loaded.spec
        self.cluster.wake(self.cluster.nodes)

    async def _follow_files(self) -> None:
        """Read the files again when they change; files with errors change nothing."""
        with contextlib.closing(Watcher()) as watcher:
            await watcher.follow({path.absolute().parent: True for path in self._options.config_files})
            if _READING in self.retrier.failing:
                await self._read_files()
            while True:
                await watcher.changes()
                await self._read_files()

    async def _read_files(self) -> None:
        try:
            loaded = await asyncio.to_thread(self._load)
        except ConfigError as bad:
            self.refused = bad.problems
            log.error("configuration refused; the last good one stays", problems=[*map(str, self.refused)])
            return
        if loaded.spec == self._read:
            self.refused = ()
            return
        self._adopt(loaded)
        log.info("configuration applied", nodes=len(self.scope.made))

    # --- nodes --------------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Whether every node matches the file, according to the watches."""
        return self.has_begun and not self.late and not any(node.is_pending for node in self.nodes)

    @property
    def nodes(self) -> Sequence[SeenNode]:
        """All nodes that were seen or that the file makes; a copy, because other threads read it."""
        return tuple(self.cluster.nodes.values())

    @property
    def late(self) -> Sequence[tuple[str, str, str]]:
        """The nodes that do not match the file: name, pending operation, and the error if it failed."""
        late = [(node.name, "creating the Node", node.failure) for node in self.nodes if node.failures]
        late += [(node.name, "planning", "") for node in self.nodes if node.is_pending and node.name in self.scope.made]
        for name, member in tuple(self.members.items()):
            for writer in member.writers:
                if writer.is_pending:
                    late.append((name, writer.name, self._writing.reason(_step(writer, name))))
        return late

    @property
    def writes(self) -> int:
        return self._api.connection.writes

    async def run(self) -> None:
        """Reconcile the nodes with the file, until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            tasks: dict[str, Callable[[], Awaitable[object]]] = {
                **{f"watching {each.kind.name}s": each.run for each in self.cluster.informers},
                _READING: self._follow_files,
                "logging the progress": self._tell_progress,
                "listing nodes": self._begin,
            }
            if (run_dir := self._options.run_dir) is not None:
                commands = {**self._rules.commands, "status": _elsewhere, "top": _elsewhere}
                intervals = self._options.timing.intervals
                tasks["answering commands"] = lambda: command_socket.serve(run_dir, commands, intervals)
            for name, each in tasks.items():
                group.create_task(self.retrier.supervise(name, each), name=name)

    async def _tell_progress(self) -> None:
        """Log a line at intervals while nodes differ from the file, and once when all match, again after each edit."""
        converged: Spec | None = None  # the configuration that all nodes matched
        pause = self._options.timing.intervals.tell_progress
        while True:
            before = self.writes
            await self.clock.sleep(pause)
            self.writes_per_second = (self.writes - before) / pause
            if not self.has_begun:
                continue
            if late := {node for node, *_ in self.late}:
                converged = None
                failing = sum(node.failures > 0 for node in self.nodes)
                log.info("converging", nodes=len(self.members), behind=len(late), failing=failing)
            elif converged is not self._spec:
                converged = self._spec
                refused = sum(node.refused != "" for node in self.nodes)
                log.info("converged", nodes=len(self.members), refused=refused, writes=self.writes)

    async def _begin(self) -> None:
        """Sync all nodes as soon as the API server has listed all kinds."""
        for each in self.cluster.informers:
            await each.answered.wait()
        self.has_begun = True
        for node in self.nodes:
            if node.came is None:
                node.came = self._epoch
            self._start(node)

    def _start(self, node: SeenNode) -> None:
        if self.has_begun:  # otherwise, `_begin` starts all tasks
            assert self._group is not None
            self._group.create_task(self._follow(node), name=f"syncing {node.name}")

    async def _follow(self, node: SeenNode) -> None:
        """Sync a node each time that it is due, until it is gone.

        A failure is only shown in the status, because Conflicts are normal: other clients change Nodes at any time.
        """
        pause: float | None = None
        while self.cluster.nodes.get(node.name) is node:
            await self.clock.wait(node.due, pause)
            node.due.clear()
            node.is_syncing = True
            try:
                pause = await self._plan(node, await self._make(node))
            except Exception as failed:  # a bug that affects one node must not stop the others
                if not isinstance(failed, ApiServerError):
                    log.exception("a node could not be planned", node=node.name)
                asked = failed.wait if isinstance(failed, ApiServerError) else 0.0
                pause = max(self._backoff.pause(node.failures), asked)
                node.failures, node.failure = node.failures + 1, str(failed)
            else:
                node.failures = 0
            finally:
                node.is_syncing = False

    async def _make(self, node: SeenNode) -> FleetNodes | None:
        """Create, mark, delete or hand over the Node. Returns the item of the file that applies to it, or None."""
        wanted, is_made = self.scope.made.get(node.name), self.scope.is_made(node.metadata)
        item, node.refused = None, ""
        if node.has_kubelet:  # from now on, the agent on the node is responsible for it
            if is_made:
                await self.maker.hand_over(node)
        elif wanted is not None:
            await self.maker.make(wanted, node)
            item = wanted.of
        elif is_made:  # it left the file
            await self.maker.remove(node)
            self.cluster.removed(node.name)
        elif (item := self.scope.item_chosen(node.metadata)) is not None:
            await self.maker.mark(node)
        return None if node.refused or node.has_kubelet or node.document is None else item

    async def _plan(self, node: SeenNode, item: FleetNodes | None) -> float | None:
        """Plan for the node and apply. Returns the seconds until it must be synced again, or None."""
        member = self.members.get(node.name)
        if item is not None:
            member = member or self._member(node)
            member.adopt(self._spec, item, self._rules.rules)
            return await self._apply(member)
        # The file does not select the node, or it has a kubelet, or it does not exist.
        if member is None and self._is_left(node):
            member = self._member(node)
        pause = await self._leave(member) if member is not None else None
        if node.document is None and node.name not in self.members and node.name not in self.scope.made:
            del self.cluster.nodes[node.name]
        return pause

    async def _apply(self, member: Member) -> float | None:
        """Plan for the node with its current pods and claims, and apply. Returns the same as `_plan`."""
        name = member.node.name
        pods = self.cluster.pods_of(name)
        again = await member.sync(pods, self.cluster.claim_uses(name), rejects=self._spec.fleet.reject_pods)
        if member.plan is not None:
            telemetry = self._spec.telemetry
            loads = self.cluster.pod_loads(name) if telemetry and telemetry.pod_annotations else {}
            member.sensors.update(member.plan, loads, self.clock.now())
        return None if again is None else max(0.0, again - self.clock.now())

    def _member(self, node: SeenNode) -> Member:
        name, came = node.name, self.clock.now() if node.came is None else node.came
        engine = Engine(
            name,
            self.clock,
            self._metrics,
            on_change=node.due.set,
            labels=node.labels,
            started=self._epoch,
            came=math.nextafter(came, -math.inf),  # so that faults of this moment count
            is_one_of_many=True,
        )
        access = NodeAccess(
            node=name,
            api=Api(self._api.connection, fault=lambda call: _fenced(call, node) or injected(engine.on_api, call)),
            view=node,
            timing=self._options.timing,
            events=self._events,
            level=logging.DEBUG,
            takes_back=True,
        )
        notes = PodNotes(self._api, self.cluster, name)
        slices_of_node = functools.partial(self.cluster.slices_of, name)
        slices = ResourceSlices(access, self.cluster.slices, slices_of_node, engine)
        member = self.members[name] = Member(node, slices, notes, access, engine)
        assert self._group is not None
        create = self._group.create_task
        member.tasks = tuple(create(self._write(name, each), name=_step(each, name)) for each in member.writers)
        return member

    async def _write(self, name: str, writer: Writer) -> None:
        structlog.contextvars.bind_contextvars(node=name)  # for the log lines of appliers
        await self._writing.run_forever(_step(writer, name), writer.work)

    def _look_at_slices(self, names: Collection[str]) -> None:
        for name in self.members.keys() & names:
            self.members[name].slices.look()

    def _is_left(self, node: SeenNode) -> bool:
        """Whether an earlier controller wrote on a node that the file no longer selects, and this may be removed now.

        The devices that it wrote are not known, so they stay until no pod and no claim holds a device of the node.
        """
        if not self.scope.is_marked(node.metadata) or self.cluster.claim_uses(node.name):
            return False
        return not any(each.noted for each in self.cluster.pods_of(node.name).values())

    async def _leave(self, member: Member) -> float | None:
        """Remove what was written on a node that the file no longer selects, unless it is gone or has a kubelet.

        Returns the same as `_plan`.
        """
        node = member.node
        if node.document is not None and self.scope.covers(node.metadata):
            if not node.has_kubelet:
                member.leave()
                pause = await self._apply(member)
                if any(writer.is_pending for writer in member.writers):
                    return 1.0
                if pause is not None or member.has_anything:
                    return pause  # the end of a pod or claim that holds a device triggers another sync
            await self.maker.release(node)
        for task, writer in zip(member.tasks, member.writers, strict=True):
            task.cancel()
            self._writing.forget(_step(writer, node.name))
        node.users.clear()
        del self.members[node.name]
        node.came = self.clock.now()  # past faults do not apply to a later node of this name
        return None


async def _elsewhere(_request: Mapping[str, Any]) -> Any:
    raise UsageError("this process is the controller of a fleet; its page, /status and /metrics are at --http-address")


def _step(writer: Writer, node: str) -> str:
    return f"{writer.name} of {node}"


def _fenced(call: ApiCall, node: SeenNode) -> ApiServerError | None:
    """Refuse writes for a node that has got a kubelet."""
    if node.has_kubelet and call.verb not in _READS:
        return Unreachable(call, "the node has a kubelet by now")
    return None
