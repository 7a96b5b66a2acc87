"""What the parts of a world have in common: its node, its time, its network, and what is told of it."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from ..config import KnownEntries
from ..sim import Kubelet, KubeletPanic
from .api.world_cluster import WorldCluster
from .drawn_events import has_claims
from .invariants import Excuses
from .machine.memory_calls import Answering
from .machine.memory_server import Network
from .machine.memory_transport import MemoryTransport
from .machine.stand_ins import FileEvents
from .machine.virtual_time import WorldLoop
from .node_model import NodeModel

_LATE, _SOON = 0.5, 0.002  # which part of messages is late; seconds that others take at most
_TOLD = 400  # lines of what happened that a failure shows at most


class WorldBase:
    """A node below `root`; whatever is drawn follows from the seed."""

    def __init__(self, seed: int, root: Path) -> None:
        self.seed = seed
        self.root = root
        self.dice = random.Random(f"world {seed}")
        self.loop = WorldLoop(random.Random(f"machine {seed}"))
        self.cluster = WorldCluster(self) if has_claims(seed) else None
        self.model = NodeModel(root, claims=self.cluster.model if self.cluster else None)
        self.read = KnownEntries()  # what agents of this node have read: a new one would work out the same
        self.excuses = Excuses()
        self.files = FileEvents()
        self.counts: Counter[str] = Counter()
        self.told: deque[str] = deque(maxlen=_TOLD)
        self.lag: dict[str, float] = {}  # by process: seconds that its messages take
        self.network = Network(self._delay, self.noted)
        self.failure: asyncio.Future[None] = self.loop.create_future()
        self.blind_since = 0.0  # when somebody removed the socket of PodResources
        self.kubelet: Kubelet
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def now(self) -> float:
        """Seconds since the machine's start."""
        return self.loop.time()

    def noted(self, call: Answering, what: str, message: bytes) -> None:
        """A message of a call is sent."""

    def transport(self, process: str) -> MemoryTransport:
        """What a process serves and calls with."""
        return MemoryTransport(self.network, process)

    def tell(self, line: str) -> None:
        """Remember what happened, for who reads of a failure."""
        self.told.append(f"{self.now:10.3f} {line}")

    def fail(self, broken: BaseException) -> None:
        """End the world with this."""
        if not self.failure.done():
            self.failure.set_exception(broken)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Let something go on beside the story."""

        async def guarded() -> None:
            try:
                await work
            except KubeletPanic:
                pass  # the journal has it
            except Exception as failed:
                self.fail(failed)

        task = self.loop.create_task(guarded())
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _delay(self, by: str) -> float:
        lag = self.lag.get(by, 0.0)
        return self.dice.random() * (lag if lag and self.dice.random() < _LATE else _SOON)
