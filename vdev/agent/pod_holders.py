"""Who may hold which device: the kubelet is asked at changes and at a slow pace, with its rate limit respected.

What its answers, its silence and its checkpoint mean is decided in `planning.in_use`.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from ..aio.clock import Timing
from ..deviceplugin import podresources
from ..deviceplugin.podresources import CheckpointReader
from ..deviceplugin.requests import Requests
from ..hostfs.files import stamp
from ..model.device import Key
from ..planning import in_use
from ..planning.in_use import HoldersReading, Holdings, Knowledge

log = structlog.get_logger(__name__)

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class HoldersSource:
    """Where the knowledge of holders comes from at the moment, and since when (seconds since the epoch)."""

    name: str
    since: float


class PodHolders:
    """What is known of the kubelet's pods; `refresh` asks again. `is_down` keeps answers back, on demand.

    `generation` counts the kubelets that were seen; `listens` tells whether one has opened a stream, so that one is
    there that could be asked.
    """

    def __init__(
        self,
        socket: Path,
        checkpoint_dir: Path,
        requests: Requests,
        *,
        generation: Callable[[], int],
        listens: Callable[[], bool] = lambda: True,
        timing: Timing,
        is_down: Callable[[], bool] = lambda: False,
    ) -> None:
        self.knowledge: Knowledge = in_use.NOTHING
        self.source = HoldersSource("nothing yet", timing.clock.wall())
        self._socket = socket
        self._checkpoint = CheckpointReader(checkpoint_dir)
        self._requests = requests
        self._generation = generation
        self._listens = listens
        self._intervals, self._clock = timing
        self._is_down = is_down
        self._turn = asyncio.Lock()  # readings are taken in one after the other, as they were asked for
        self._blind_since = float("inf")
        self._told: tuple[bool | None, str] = (None, "")

    @property
    def readable(self) -> bool:
        return self.knowledge.silent_since is None and self.knowledge.heard

    @property
    def holders(self) -> Mapping[Key, str] | None:
        """The pods by name; None while the kubelet does not tell."""
        return self.knowledge.holders if self.readable else None

    @property
    def trouble(self) -> str:
        """What keeps the checkpoint from being used, or the empty string."""
        return self._checkpoint.trouble

    def recall(self, held: AbstractSet[Key]) -> None:
        """Take it that these are held, as an earlier process knew, until the kubelet is believed to leave them out."""
        self.knowledge = replace(self.knowledge, doubted=self.knowledge.doubted | held)

    async def refresh(self) -> None:
        """Ask the kubelet."""
        async with self._turn:
            await self._refresh()

    async def _refresh(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                reading = await self._ask()
            except podresources.RateLimited:
                await self._clock.sleep(self._intervals.retry_rate_limited)
                continue
            allocated = self._requests.allocated_at
            self.knowledge = in_use.update(self.knowledge, reading, allocated, self._intervals)
            if reading.answer is not None:
                self._blind_since = float("inf")
            elif self._listens():
                self._blind_since = min(self._blind_since, reading.at)
            self._tell(reading)
            return
        log.warning("pod resources not read; the kubelet's rate limit is exhausted", socket=str(self._socket))

    async def _ask(self) -> HoldersReading:
        """One question. An answer counts only if the socket is the same before and after: one kubelet gave it."""
        asked, socket = self._clock.now(), await asyncio.to_thread(stamp, self._socket)
        kubelet, within = (self._generation(), socket), self._intervals.pod_resources_answer
        if socket is None or self._is_down():
            answer = None
        else:
            answer = await podresources.holders(self._socket, within=within)
        checkpoint, socket = await asyncio.to_thread(lambda: (self._checkpoint.read(), stamp(self._socket)))
        if kubelet != (self._generation(), socket):
            answer = None
        return HoldersReading(asked, answer, checkpoint, kubelet)

    @property
    def named(self) -> Mapping[Key, str]:
        """The pods by name, of slots that the kubelet was asked for after their last Allocate."""
        allocated, never = self._requests.allocated_at, float("-inf")
        known = self.knowledge
        return {k: pod for k, pod in known.holders.items() if known.named.get(k, never) >= allocated.get(k, never)}

    def unnamed(self, claimed: Mapping[str, Collection[str]]) -> frozenset[Key]:
        """What was allocated, or is `claimed` of a driver by its published name, without a pod in the last answer."""
        uses = {(use.driver, use.device) for use in self.knowledge.claimed}
        prepared = {(driver, device) for driver, devices in claimed.items() for device in devices}
        return frozenset({*self._requests.allocated_at, *prepared - uses})

    def forget_settled(self) -> None:
        """Forget Allocates of which the last answer told what became."""
        settled = in_use.settled(self.knowledge, self._requests.allocated_at, self._intervals)
        self._requests.forget(settled)

    def _tell(self, reading: HoldersReading) -> None:
        known, trouble = self.readable, self._checkpoint.trouble
        name = _source(self.knowledge, reading)
        if name != self.source.name:
            self.source = HoldersSource(name, self._clock.wall())
        was_known, was_trouble = self._told
        self._told = known, trouble
        if known is not was_known:
            if known:
                log.info("pod resources are readable", socket=str(self._socket))
            else:
                log.warning("pod resources are not readable; no device is released", socket=str(self._socket))
        if trouble and trouble != was_trouble:
            log.warning("the kubelet's checkpoint is not used", reason=trouble)

    def snapshot(self) -> Holdings:
        """What is known now, with the requests in flight."""
        return Holdings(
            holders=self.knowledge.holders if self.knowledge.heard else None,
            read_at=self.knowledge.answered_at,
            in_flight=self._requests.in_flight,
            allocated=dict(self._requests.allocated_at),
            doubted=self.knowledge.doubted,
            blind_since=self._blind_since,
            complete=self._is_complete(),
            silent=self.knowledge.silent_since is not None,
            containers=self.knowledge.containers,
            claimed=self.knowledge.claimed,
        )

    def _is_complete(self) -> bool:
        known = self.knowledge
        if known.heard:
            return known.silent_since is None and not known.is_young(known.answered_at)
        return self._clock.now() - self._blind_since >= self._intervals.retire_blind


def _source(knowledge: Knowledge, reading: HoldersReading) -> str:
    """In words, what the knowledge of holders rests on; own Allocates that no answer settled always count."""
    if knowledge.silent_since is None:
        sources = ["pod resources"] if knowledge.heard else []
    else:
        sources = ["the last answer of pod resources"] if knowledge.heard else []
    if knowledge.doubted and reading.checkpoint is not None:
        sources.append("the kubelet's checkpoint")
    return " and ".join(sources) or "this process's own Allocates"
