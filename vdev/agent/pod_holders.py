"""Asks the kubelet which pods hold which devices. What its answers mean is decided in `planning.in_use`."""

import asyncio
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from ..deviceplugin import podresources
from ..deviceplugin.podresources import CheckpointReader
from ..hostfs.files import stamp
from ..model.device import Key
from ..planning import in_use
from ..planning.in_use import HoldersReading, InUse

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)


class PodHolders:
    """The devices that the kubelet's pods are known to hold, and those of requests in flight; `refresh` asks again.

    A fault rule may suppress the kubelet's answers.
    """

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._intervals, self._clock = agent.options.timing
        self.known: InUse = in_use.UNKNOWN
        self.source, self.source_since = "nothing yet", self._clock.wall()  # of `known`; seconds since the epoch
        self._socket = agent.options.pod_resources_socket
        self.checkpoint = CheckpointReader(agent.link.directory)
        self._in_flight: dict[object, Sequence[Key]] = {}  # the devices in each unfinished RPC
        self.asked = asyncio.Event()  # set when the kubelet is to be asked
        self._will_ask = False  # `ask` is scheduled, after the pause for admissions
        self._asking = asyncio.Lock()  # answers are used in the order of the requests
        self._logged: tuple[bool | None, str] = (None, "")

    @property
    def in_use(self) -> InUse:
        return replace(self.known, in_flight=frozenset(itertools.chain(*self._in_flight.values())))

    @property
    def readable(self) -> bool:
        """Whether the kubelet answered the last request."""
        return self.known.answers_since is not None

    @property
    def holders(self) -> Mapping[Key, str] | None:
        """The pods by name; None while the kubelet does not answer."""
        return self.known.pods if self.readable else None

    @property
    def named(self) -> Mapping[Key, str]:
        """The pods by name, of the devices that the kubelet was asked for after their last Allocate."""
        awaited = self.known.awaited
        return {key: pod for key, pod in self.known.pods.items() if key not in awaited}

    def recall(self, held: Collection[Key]) -> None:
        """Treat these devices of an earlier process as held, until a trusted answer leaves them out."""
        self.known = self.known.with_recorded(held, self._clock.now())

    @contextmanager
    def in_request(self, keys: Sequence[Key]) -> Iterator[None]:
        """Keep these devices in their lists while an Allocate or GetPreferredAllocation with them is unfinished."""
        call = object()
        self._in_flight[call] = keys
        try:
            yield
        finally:
            del self._in_flight[call]

    def note_allocated(self, keys: Collection[Key]) -> None:
        """Record that a pod may hold these devices from now on."""
        self.known = self.known.with_allocated(keys, self._clock.now())
        self.ask_soon()

    def ask_soon(self) -> None:
        """Ask once the kubelet has admitted the pods of the current calls, for all at once."""
        if not self._will_ask:
            self._will_ask = True
            self._clock.call_later(self._intervals.admission, self.ask)

    def ask(self) -> None:
        self._will_ask = False
        self.asked.set()

    def unnamed(self, claimed: Mapping[str, Collection[str]]) -> frozenset[Key]:
        """The devices without a known pod that were allocated, or that claims have (`claimed`, by driver)."""
        of_claims = {(driver, device) for driver, devices in claimed.items() for device in devices}
        return self.known.awaited | of_claims.difference((use.driver, use.device) for use in self.known.claims)

    async def refresh(self) -> None:
        """Ask the kubelet, and pass the answer on to the actions of devices."""
        async with self._asking:
            if reading := await self._ask():
                self.known = in_use.update(self.known, reading, self._intervals)
                self._log(reading)
        if self.readable and not self._agent.handovers.is_idle:
            await self._agent.handovers.read()

    async def _ask(self) -> HoldersReading | None:
        """Ask once. An answer counts only if the socket is the same before and after, so that one kubelet gave it.

        Returns None if the kubelet's rate limit refuses the call and an earlier answer still counts.
        """
        asked_at, socket = self._clock.now(), await asyncio.to_thread(stamp, self._socket)
        kubelet = (self._agent.link.generation, socket)
        answer = None
        if socket is not None and not self._agent.faults.engine.pod_resources_down:
            try:
                answer = await podresources.holders(self._socket, within=self._intervals.pod_resources_answer)
            except podresources.RateLimited:
                self.ask_soon()
                if self.readable:
                    return None
        checkpoint = await asyncio.to_thread(self.checkpoint.read)
        socket = await asyncio.to_thread(stamp, self._socket)
        if kubelet != (self._agent.link.generation, socket):
            answer = None
        holders, claims = answer or (None, ())
        is_served = any(service.servicer.streams for service in self._agent.lists.services.values())
        return HoldersReading(asked_at, holders, claims, checkpoint, kubelet, is_served)

    def _log(self, reading: HoldersReading) -> None:
        """Log what is new: whether the kubelet answers, and why its checkpoint cannot be used."""
        readable, trouble = self.readable, self.checkpoint.trouble
        was_readable, was_trouble = self._logged
        self._logged = readable, trouble
        if readable is not was_readable:
            if readable:
                log.info("pod resources are readable", socket=str(self._socket))
            else:
                log.warning("pod resources are not readable; no device is released", socket=str(self._socket))
        if trouble and trouble != was_trouble:
            log.warning("the kubelet's checkpoint is not used", reason=trouble)
        sources = []
        if readable:
            sources.append("pod resources")
        elif self.known.answered_at > float("-inf"):
            sources.append("the last answer of pod resources")
        if not self.known.unlisted.isdisjoint(reading.on_disk):
            sources.append("the kubelet's checkpoint")
        # This process's Allocates always count until an answer names their pods.
        name = " and ".join(sources) or "this process's own Allocates"
        if name != self.source:
            self.source, self.source_since = name, self._clock.wall()
