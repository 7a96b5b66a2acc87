"""One world: a node with its agents and its kubelet, events, and checks of the invariants.

Everything is as in production except gRPC, TCP, the time, and the replacements in `stand_ins`. A broken invariant or an
unexpected error ends the world with a failure.
"""

import asyncio
import contextlib
import hashlib
import math
import random
import re
import shutil
import traceback
from collections import deque
from collections.abc import Coroutine, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from tests.worlds import claim_rules, grpc_channel, invariants
from tests.worlds.agents import Agents
from tests.worlds.claim_model import ClaimModel
from tests.worlds.effects import Effects
from tests.worlds.events import Event, has_claims
from tests.worlds.grpc_calls import Answering, Network
from tests.worlds.invariants import Broken, Excuses, Grants
from tests.worlds.node_model import NodeModel
from tests.worlds.stand_ins import installed
from tests.worlds.virtual_time import START, StandsStillError, WorldClock, WorldLoop
from tests.worlds.world_cluster import NODE, WorldCluster
from vdev.intervals import PRODUCTION
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.sim import Finding, Kubelet, KubeletPanic

_UP = 60.0  # seconds after which a kubelet knows its pods, and every plugin is registered
_QUIET = 5.0  # seconds after a new plan in which every applier must have applied it
_WRITTEN = 40.0  # the same for objects on the API server
_LATE, _SOON = (
    0.5,
    0.002,
)  # the part of the messages of a slow process that is late; the longest delay of others in seconds
_LATEST = 6.0  # the longest delay of a message of a slow process in seconds
_TOLD = 400  # the most lines of history in a failure
_END = 1_500.0  # seconds in which the node must match the file after all faults have ended


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a world. `failure` is empty if it succeeded; `digest` is that of all messages in order."""

    seed: int
    hours: float
    failure: str = ""
    digest: str = ""
    messages: int = 0
    told: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The broken rule, without details."""
        return self.failure.partition(":")[0]


class World:
    """A node below `root` with these events in so many seconds. The seed determines all random numbers."""

    def __init__(self, seed: int, events: Sequence[Event], seconds: float, root: Path) -> None:
        self.seed = seed
        self.events = events
        self.seconds = seconds
        self.root = root
        self.dice = random.Random(f"world {seed}")
        self.loop = WorldLoop(random.Random(f"machine {seed}"))
        self.cluster = WorldCluster(self) if has_claims(seed) else None
        self.model = NodeModel(root, claims=ClaimModel() if self.cluster else None)
        self.excuses = Excuses()
        self.grants = Grants(root / "cdi", self.excuses)
        self.agents = Agents(self)
        self.network = Network(self._delay, self._noted)
        self.lag: dict[str, float] = {}  # by process: the longest delay of its messages in seconds
        self.blind_since = math.inf  # since when the socket of PodResources is missing
        self.kubelet: Kubelet
        self.told: deque[str] = deque(maxlen=_TOLD)
        self._failure: asyncio.Future[None] = self.loop.create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._kubelet_since = 0.0
        self._hash = hashlib.blake2b(digest_size=8)
        self._messages = 0

    @property
    def now(self) -> float:
        return self.loop.time()

    def tell(self, line: str) -> None:
        """Add a line to the history, which a failure shows."""
        self.told.append(f"{self.now:10.3f} {line}")

    def fail(self, broken: BaseException) -> None:
        """End the world with this failure."""
        if not self._failure.done():
            self._failure.set_exception(broken)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""

        async def guarded() -> None:
            try:
                await work
            except KubeletPanic:
                pass  # the journal has it
            except Exception as failed:
                self.fail(failed)

        task = self.loop.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _delay(self, by: str) -> float:
        lag = self.lag.get(by, 0.0)
        return self.dice.random() * (lag if lag and self.dice.random() < _LATE else _SOON)

    def run(self) -> Outcome:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        structlog.configure(processors=[self._logged], cache_logger_on_first_use=False)
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._unhandled)
        text = ""
        with contextlib.ExitStack() as stack:
            stack.enter_context(grpc_channel.installed(self.network))
            stack.enter_context(installed(self.dice, self.loop))
            if self.cluster is not None:
                stack.enter_context(self.cluster.installed())
            try:
                self.loop.run_until_complete(self._live())
            except Broken as broken:
                text = str(broken)
            except StandsStillError:
                text = "time goes on: everybody waits for something that never comes"
            except Exception as failed:
                text = f"nothing fails unexpectedly: {''.join(traceback.format_exception(failed))}"
        shutil.rmtree(self.root, ignore_errors=True)
        return Outcome(
            seed=self.seed,
            hours=(self.now - START) / 3600,
            failure=text,
            digest=self._hash.hexdigest(),
            messages=self._messages,
            told=tuple(self.told) if text else (),
        )

    # --- course -------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self.model.build()
        self.kubelet = Kubelet(
            self.root / "kubelet",
            clock=WorldClock(self.loop),
            seed=self.seed,
            node_name=NODE,
            overlaps=self.model.overlaps,
            objects=self.cluster.objects if self.cluster else None,
            cdi_dir=self.root / "cdi" if self.cluster else None,
            strict=self.seed % 2 == 0,
        )
        self.kubelet.journal.listen(self._entry)
        self.loop.on_death = self.agents.dead
        effects = Effects(self, self.agents)
        story = self.loop.create_task(self._story(effects), name="the story")
        await asyncio.wait([story, self._failure], return_when=asyncio.FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        await story

    async def _story(self, effects: Effects) -> None:
        begin = self.now
        if self.cluster is not None:
            await self.cluster.start()
        await self.kubelet.start()
        effects.mend()
        self.agents.start()
        for event in self.events:
            await self._until(begin + event.at)
            self.judge()
            self.tell(f"event {event}")
            await effects.happen(event)
        await self._until(begin + self.seconds)
        self.judge()
        await effects.heal()
        await self._converge("with its pods")
        for pod in self.kubelet.pods():
            await self.kubelet.delete_pod(pod.name, namespace=pod.namespace, force=True)
        await self._converge("without pods")

    async def _until(self, moment: float) -> None:
        await asyncio.sleep(max(0.0, moment - self.now))

    async def _converge(self, how: str) -> None:
        """Wait until the node matches its file. Raises Broken after a timeout."""
        self.tell(f"the node must be as its file says, {how}")
        wanted = self.model.plan()
        end = self.now + _END
        while missing := self._missing(wanted):
            if self.now > end:
                raise Broken("the node comes to what its file says", f"{how}: {missing}")
            await asyncio.sleep(5)
        await asyncio.sleep(30)
        self.judge()

    def _missing(self, wanted: Mapping[str, frozenset[str]]) -> str:
        claimed = {device for devices in claim_rules.recorded(self.kubelet.root).values() for device in devices}
        missing = invariants.judge_end(self.kubelet, wanted, claimed)
        if self.cluster is None or self.model.claims is None or missing:
            return missing
        return claim_rules.judge_end(self.cluster, self.model.claims, self.kubelet, self.root / "cdi")

    # --- checks -------------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        pods = self.kubelet.pods()
        invariants.judge_pods(pods)
        if not self._on_its_way("id-in-two-resources"):
            invariants.judge_lists(self.kubelet)
        if self.cluster is not None:
            claim_rules.judge_devices(self.kubelet.root, pods)
        settled = self.agents.settled(self.now - _QUIET)
        if settled is None or not self.kubelet.ready or self.kubelet_up_for < _UP:
            return
        if not self.excuses.has("slow machine", "cut", "lost", "swapped", "late", "ends", now=self.now):
            invariants.judge_held(self.kubelet, pods)
            invariants.judge_outputs(self.kubelet, settled, self.root / "cdi", self.excuses, self.now)
            if self.cluster is not None:
                claim_rules.judge_files(self, pods)
                written = self.agents.settled(self.now - _WRITTEN)
                if self.cluster.is_fair and written is not None:
                    claim_rules.judge_published(self.cluster, self.kubelet, written)

    @property
    def kubelet_up_for(self) -> float:
        """Seconds since the kubelet's last start; 0 if it is down."""
        return self.now - self._kubelet_since if self.kubelet.alive else 0.0

    # --- observations -------------------------------------------------------------------------------------------------

    def _noted(self, call: Answering, what: str, message: bytes) -> None:
        """Add a message to the digest, and check it."""
        self._messages += 1
        line = f"{self.now:.6f} {call.ends[0]}<{call.ends[1]} {call.method} {what} "
        self._hash.update(line.encode() + message)
        if what == "failure":
            self.tell(f"{call.method} fails: {message.decode()}")
            if call.method.endswith("/Allocate"):
                asked = pb.AllocateRequest.FromString(call.request).container_requests
                for id_ in (each for container in asked for each in container.devices_ids):
                    self.excuses.note(f"refused {id_}", self.now + _LATEST)
        if what != "answer" or call.ends[0] == "kubelet":
            return
        with self._ends_if_broken():
            if self.cluster is not None:
                claim_rules.judge_answer(call, message, self)
            if call.method.endswith("/ListAndWatch"):
                self.grants.listed(call.server, message, self.now)
            elif call.method.endswith("/Allocate"):
                self.grants.granted(call.server, call.request, message, since=call.came_at, now=self.now)

    def _entry(self, entry: Any) -> None:
        self._hash.update(f"{self.now:.6f} {entry.event}".encode())
        match entry.event:
            case "kubelet":
                self._kubelet_since = self.now
                self.tell(f"kubelet {entry.fields['what']}")
                if entry.fields["what"] == "started":
                    if self._is_blind:  # the kubelet sees only now which devices were released while it was down
                        self.excuses.note("was blind", self.now + _UP)
                    self.blind_since = math.inf
            case "registered" | "registrationFailed" | "pluginLost" | "listed":
                self.tell(f"kubelet: {entry.document}")
            case "pod":
                pod = self.kubelet.pod(entry.fields["name"])
                held = sorted(invariants.in_use(pod))
                self.tell(f"pod {pod.name} {pod.phase.value} {held} {pod.message}".rstrip())
            case "podDeleted":
                self.tell(f"pod {entry.fields['name']} is gone")
            case "finding":
                self._finding(self.kubelet.findings[-1])

    def _finding(self, finding: Finding) -> None:
        self.tell(f"finding: {finding}")
        explained = self.cluster is not None and self.cluster.explains(finding)
        explained = explained or self._gave_up(finding) or self._cut_off(finding) or self._was_refused(finding)
        if explained or self._on_its_way(finding.code):
            return
        with self._ends_if_broken():
            invariants.judge_finding(finding, self.excuses, self.now)

    @contextlib.contextmanager
    def _ends_if_broken(self) -> Iterator[None]:
        try:
            yield
        except Broken as broken:
            self.fail(broken)

    @property
    def _is_blind(self) -> bool:
        return self.now - self.blind_since > PRODUCTION.retire_blind

    def _gave_up(self, finding: Finding) -> bool:
        """Whether a finding is about devices that were released after ten minutes without an answer of PodResources.

        That is documented (docs/ownership.md), even if a running pod holds one. Such pods are deleted, because another
        pod may get their device.
        """
        blind = self._is_blind or self.excuses.has("was blind", now=self.now)
        if finding.code != "held-device-dropped" or not blind:
            return False
        self.spawn(self._end_users(finding.resource))
        return True

    async def _end_users(self, resource: str) -> None:
        for pod in self.kubelet.pods():
            used = {id_ for name, id_ in invariants.in_use(pod) if name == resource}
            if used - self.kubelet.listed().get(resource, {}).keys():
                await self.kubelet.delete_pod(pod.name, namespace=pod.namespace, force=True)

    def _cut_off(self, finding: Finding) -> bool:
        """Whether a finding is about slices that a killed agent was writing, and the next one has not written yet."""
        up = any(self.now - life.since > _WRITTEN for life in self.agents.running)
        return finding.code == "pool-incomplete" and not up

    def _was_refused(self, finding: Finding) -> bool:
        """Whether a finding is about devices whose Allocate was refused, which a slow kubelet has not seen yet.

        A kubelet looks the devices up again only after a successful Allocate.
        """
        if finding.code != "held-device-dropped" or not self.excuses.has("slow machine", now=self.now):
            return False
        ids = re.findall("'(.+?)'", finding.message)
        is_complete = bool(ids) and " more" not in finding.message  # a long list is cut
        return is_complete and all(self.excuses.has(f"refused {id_}", now=self.now) for id_ in ids)

    def _on_its_way(self, code: str) -> bool:
        """Whether a finding is about an id that moved between two lists, which a slow kubelet reads one by one."""
        slow = self.excuses.has("slow machine", now=self.now)
        return code == "id-in-two-resources" and slow and not self.agents.list_twice()

    def _logged(self, _logger: object, level: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        failed = event.pop("exc_info", None)
        shown = " ".join(f"{key}={value}" for key, value in event.items() if key != "event")
        self.tell(f"agent: {level}: {event['event']} {shown}{f' {failed}' if failed else ''}")
        raise structlog.DropEvent

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, Exception):
            self.fail(error)
