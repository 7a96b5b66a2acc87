"""One world: a node with its agents and its kubelet, to which events happen, and in which the invariants hold.

Everything in it is what production has, but for the transport, the time and what `machine` lists. A world that breaks
an invariant, or in which anything fails that nobody expects, ends with a failure.
"""

import asyncio
import contextlib
import hashlib
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from ..core.intervals import PRODUCTION
from ..sim import Finding, Kubelet
from . import invariants
from .agents import Agents
from .api.world_cluster import NODE
from .claims import claim_rules
from .drawn_events import Event
from .event_effects import EventEffects
from .invariants import Broken, Grants
from .machine.memory_calls import Answering
from .machine.rounds import StandsStillError
from .machine.stand_ins import installed
from .machine.virtual_time import START, KubeletClock
from .world_base import WorldBase

_UP = 60.0  # seconds after which a kubelet has heard of its pods, and every plugin registered
_QUIET = 5.0  # seconds without a new plan after which every output must have followed
_WRITTEN = 40.0  # seconds after which what goes through the API server must have followed
_END = 1_500.0  # seconds in which the node must be as the file says, after everything is well again


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a world went, and how many hours it lasted. `failure` is empty where all was well; `digest` is of all
    messages, in their order.
    """

    seed: int
    hours: float
    failure: str = ""
    digest: str = ""
    messages: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)  # pods, agents, registrations and so on, counted
    told: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """What was broken, without the particulars."""
        return self.failure.partition(":")[0]


class World(WorldBase):
    """A node to which these events happen in so many seconds. `run` once."""

    def __init__(self, seed: int, events: Sequence[Event], seconds: float, root: Path) -> None:
        super().__init__(seed, root)
        self.events = events
        self.seconds = seconds
        self.grants = Grants(root / "cdi", self.excuses)
        self.agents = Agents(self)
        self._kubelet_since = 0.0
        self._hash = hashlib.blake2b(digest_size=8)
        self._messages = 0

    def run(self) -> Outcome:
        """Let it all happen."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        structlog.configure(processors=[self._logged], cache_logger_on_first_use=False)
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._unhandled)
        text = ""
        with installed(self.dice, self.files), self.cluster.installed() if self.cluster else contextlib.nullcontext():
            try:
                self.loop.run_until_complete(self._live())
            except Broken as broken:
                text = str(broken)
            except StandsStillError:
                text = "time goes on: everybody waits for something that never comes"
            except Exception as failed:
                text = f"nothing fails unexpectedly: {_in_words(failed)}"
        shutil.rmtree(self.root, ignore_errors=True)
        return Outcome(
            seed=self.seed,
            hours=(self.now - START) / 3600,
            failure=text,
            digest=self._hash.hexdigest(),
            messages=self._messages,
            kinds=Counter(each.kind for each in self.events),
            happened=self.counts,
            told=tuple(self.told) if text else (),
        )

    # --- its course ---------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self.model.build()
        self.kubelet = Kubelet(
            self.root / "kubelet",
            clock=KubeletClock(self.loop),
            seed=self.seed,
            node_name=NODE,
            overlaps=self.model.overlaps,
            objects=self.cluster.objects if self.cluster else None,
            cdi_dir=self.root / "cdi" if self.cluster else None,
            strict=self.seed % 2 == 0,
            transport=self.transport("kubelet"),
        )
        self.kubelet.journal.listen(self._entry)
        self.loop.on_death = self.agents.dead
        effects = EventEffects(self, self.agents)
        story = self.loop.create_task(self._story(effects), name="the story")
        await asyncio.wait([story, self.failure], return_when=asyncio.FIRST_COMPLETED)
        if self.failure.done():
            self.failure.result()
        await story

    async def _story(self, effects: EventEffects) -> None:
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
        """Wait until the node is as its file says. Raises Broken when that does not come."""
        self.tell(f"the node must be as its file says, {how}")
        wanted = self.model.plan()
        end = self.now + _END
        while missing := self._missing(wanted):
            if self.now > end:
                raise Broken("the node comes to what its file says", f"{how}: {missing}")
            await asyncio.sleep(5)
        self.counts["seconds to converge"] = max(self.counts["seconds to converge"], round(self.now - (end - _END)))
        await asyncio.sleep(30)
        self.judge()

    def _missing(self, wanted: Mapping[str, frozenset[str]]) -> str:
        claimed = {device for devices in claim_rules.recorded(self.kubelet.root).values() for device in devices}
        missing = invariants.judge_end(self.kubelet, wanted, claimed)
        if self.cluster is None or missing:
            return missing
        return claim_rules.judge_end(self.cluster, self.kubelet, self.root / "cdi")

    # --- what must hold -----------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Look at everything. Raises Broken."""
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
        """Seconds since the kubelet's last start; nothing where it is down."""
        return self.now - self._kubelet_since if self.kubelet.alive else 0.0

    # --- what is seen -------------------------------------------------------------------------------------------------

    def noted(self, call: Answering, what: str, message: bytes) -> None:
        """Part of the digest, and judged."""
        self._messages += 1
        line = f"{self.now:.6f} {call.ends[0]}<{call.ends[1]} {call.method} {what} "
        self._hash.update(line.encode() + message)
        if what == "failure":
            self.tell(f"{call.method} fails: {message.decode()}")
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
        name = type(entry).__name__
        self.counts[name] += 1
        self._hash.update(f"{self.now:.6f} {name}".encode())
        match name:
            case "Lifecycle":
                self._kubelet_since = self.now
                self.tell(f"kubelet {entry.what}")
            case "Registered" | "RegistrationFailed" | "PluginLost" | "Listed":
                self.tell(f"kubelet: {entry}")
            case "PodChanged":
                held = sorted(invariants.in_use(entry.pod))
                self.tell(f"pod {entry.pod.name} {entry.pod.phase.value} {held} {entry.pod.message}".rstrip())
            case "PodDeleted":
                self.tell(f"pod {entry.pod.name} is gone")
        if isinstance(entry, Finding):
            self.tell(f"finding: {entry}")
            explained = self.cluster is not None and self.cluster.explains(entry)
            if explained or self._gave_up(entry) or self._cut_off(entry) or self._on_its_way(entry.code):
                return
            with self._ends_if_broken():
                invariants.judge_finding(entry, self.excuses, self.now)

    @contextlib.contextmanager
    def _ends_if_broken(self) -> Iterator[None]:
        try:
            yield
        except Broken as broken:
            self.fail(broken)

    def _gave_up(self, finding: Finding) -> bool:
        """Whether it is about what was given up because for ten minutes nobody could be asked who holds what.

        That is what a plugin does then (docs/ownership.md), though a pod may live on that has it. That pod's story is
        over: two pods on its device would be nobody's fault.
        """
        blind = not self.kubelet.pod_resources_socket.exists() and self.now - self.blind_since > PRODUCTION.retire_blind
        if finding.code != "held-device-dropped" or not blind:
            return False
        self.spawn(self._end_users(finding.resource))
        return True

    async def _end_users(self, resource: str) -> None:
        """Delete the pods that have what its list has no longer."""
        for pod in self.kubelet.pods():
            used = {id_ for name, id_ in invariants.in_use(pod) if name == resource}
            if used - self.kubelet.listed().get(resource, {}).keys():
                await self.kubelet.delete_pod(pod.name, namespace=pod.namespace, force=True)

    def _cut_off(self, finding: Finding) -> bool:
        """Whether it is about slices that an agent was writing when it was killed, and the next one did not yet."""
        up = any(self.now - life.since > _WRITTEN for life in self.agents.running)
        return finding.code == "pool-incomplete" and not up

    def _on_its_way(self, code: str) -> bool:
        """Whether it is about an id that moved from list to list, which the slow kubelet reads in turn."""
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


def _in_words(failed: BaseException) -> str:
    """An exception with the place where it was raised."""
    while isinstance(failed, BaseExceptionGroup):
        failed = failed.exceptions[0]
    trace = failed.__traceback__
    places = []
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    return f"{failed!r} at {' > '.join(places[-6:])}"
