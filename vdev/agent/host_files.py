"""What vdev keeps on the host for containers: CDI names, stand-ins of virtual devices, directories of makers' tools.

    the plan needs it              it is made, and made again when somebody removes or changes it
    the plan does not, any more    it is kept while anything can name it, and removed after that

What the plan does not need can be named

- by an answer to the kubelet, until the kubelet is told of a plan without it (`listed`);
- by the runtime, which is given the same again when a container restarts, as long as a pod or a claim may hold it.

So it goes in the first `settle` after `listed` that knows it to be held by nobody: the plan of that `settle` knows of
each answer that was given before. What earlier processes left goes the same way.
"""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from ..aio.clock import Timing
from ..errors import HostError
from ..planning.plan import Plan
from .applier import Output, Stage

Name = TypeVar("Name", bound=Hashable)
Wanted = TypeVar("Wanted")
_Done = tuple[Mapping[Name, Wanted], frozenset[Name], Mapping[Name, str]]
"""What is wanted, what is left besides, and why something wanted is not there."""


class HostFiles(Output, Generic[Name, Wanted]):
    """Keeps on the host what the plan needs, each under a name. A kind of file is a subclass.

    `failed` says why something that the plan needs is not there as it should be.
    """

    stage = Stage.PREPARE

    def __init__(self, watched: Collection[Path], timing: Timing) -> None:
        self.failed: Mapping[Name, str] = {}
        self._intervals, self._clock = timing
        self._watched = frozenset(watched)
        self._settled: Plan | None = None
        self._wanted: Mapping[Name, Wanted] = {}  # by that plan
        self._left: frozenset[Name] = frozenset()  # what is there besides
        self._unlisted: frozenset[Name] = frozenset()  # of this, what no answer to the kubelet has any more
        self._look = True  # whether to look at what is really there
        self._retry_at: float | None = None
        self._remove_at: float | None = None
        self._writing = threading.Lock()  # held by the thread that changes something

    @abstractmethod
    def wanted(self, plan: Plan) -> Mapping[Name, Wanted]:
        """What must be there before the kubelet is told of this plan. A difference leads to `make`."""

    @abstractmethod
    def present(self, wanted: Mapping[Name, Wanted]) -> Collection[Name]:
        """What is there, by whichever process. Blocks. Raises HostError where nothing can be made."""

    @abstractmethod
    def held(self, left: Collection[Name], plan: Plan) -> Collection[Name]:
        """What a pod or a claim may have of what is left over. Asked only where it is known what pods hold."""

    @abstractmethod
    def make(
        self, plan: Plan, wanted: Mapping[Name, Wanted], kept: frozenset[Name], gone: frozenset[Name]
    ) -> Mapping[Name, str]:
        """Make what is not there as it should be, leave what is `kept`, and remove what is to be `gone`; blocks.

        Returns why something could not be made. Raises HostError where nothing could.
        """

    async def made(self, plan: Plan) -> None:
        """Do on the loop what follows from `make`."""

    @property
    def directories(self) -> frozenset[Path]:
        return self._watched if self._wanted or self._left else frozenset()

    @property
    def again_at(self) -> float | None:
        """When to try again what could not be made, or to look again whether what is left may go."""
        return min((each for each in (self._retry_at, self._remove_at) if each is not None), default=None)

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        del changed
        self._look = True
        return True

    async def settle(self, plan: Plan) -> None:
        """Make what the plan needs and remove what nothing can name; what fails is reported by `failed`."""
        now = self._clock.now()
        look = self._look or (self._retry_at is not None and now >= self._retry_at)
        self._look = False
        try:
            done = await asyncio.to_thread(self._work, plan, look=look)
            if done is not None:
                self._wanted, self._left, self.failed = done
                self._retry_at = self.retry_at(now)
                await self.made(plan)
        except BaseException:
            self._look = True
            raise
        self._settled = plan
        unsure = self._left and not plan.holdings.complete
        self._remove_at = now + self._intervals.retire_settle if unsure else None

    def listed(self, plan: Plan) -> None:
        """From now on answers name what this plan needs and nothing else, so what was left over may go."""
        before = self._unlisted
        self._unlisted = self._left if plan is self._settled else frozenset()
        if self._unlisted != before and self._free(self._left, plan):
            self._remove_at = self._clock.now()

    def _work(self, plan: Plan, *, look: bool) -> _Done[Name, Wanted] | None:
        """Compare what is wanted, and what is there, with what was so before; None where nothing is to be done."""
        with self._writing:
            wanted = self.wanted(plan)
            if not look and wanted == self._wanted and not self._free(self._left, plan):
                return None
            try:
                left = frozenset(self.present(wanted)) - wanted.keys()
                gone = self._free(left, plan)
                return wanted, left - gone, self.make(plan, wanted, left - gone, gone)
            except HostError as failed:
                return wanted, self._left - wanted.keys(), dict.fromkeys(wanted, str(failed))

    def retry_at(self, now: float) -> float | None:
        """When to try again after `make`, or None."""
        return now + self._intervals.retry_host_files if self.failed else None

    def _free(self, left: frozenset[Name], plan: Plan) -> frozenset[Name]:
        """What nothing can name."""
        unlisted = left & self._unlisted
        if not unlisted or not plan.holdings.complete:
            return frozenset()
        return unlisted.difference(self.held(unlisted, plan))
