"""What vdev keeps on the host for containers: CDI names, stand-ins of virtual devices, directories of makers' tools.

    the plan needs it              it is made, and made again when somebody removes or changes it
    the plan does not, any more    it is kept while anything can name it, and removed after that

What the plan does not need can be named

- by an answer to the kubelet, while the kubelet is told of a plan that has it;
- by the runtime, which is given the same again when a container restarts, as long as a pod or a claim may hold it.

So it goes in the turn after the list that leaves it out: who holds what was observed after that list, so it tells of
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
from ..planning.plan import DesiredState
from .applier import Applier, Stage

Name = TypeVar("Name", bound=Hashable)
Wanted = TypeVar("Wanted")


class HostFiles(Applier, Generic[Name, Wanted]):
    """Keeps on the host what the plan needs, each under a name. A kind of file is a subclass.

    `failed` says why something that the plan needs is not there as it should be.
    """

    stage = Stage.PREPARE
    directories: frozenset[Path] = frozenset()
    again_at: float | None = None  # to try again what could not be made, or to see whether what is left may go

    def __init__(self, watched: Collection[Path], timing: Timing) -> None:
        self.failed: Mapping[Name, str] = {}
        self._intervals, self._clock = timing
        self._watched = frozenset(watched)
        self._wanted: Mapping[Name, Wanted] = {}  # by the last plan
        self._left: frozenset[Name] = frozenset()  # what is there besides
        self._writing = threading.Lock()  # held by the thread that changes something

    @abstractmethod
    def wanted(self, plan: DesiredState) -> Mapping[Name, Wanted]:
        """What must be there before the kubelet is told of this plan."""

    @abstractmethod
    def present(self, wanted: Mapping[Name, Wanted]) -> Collection[Name]:
        """What is there, by whichever process. Blocks. Raises HostError where nothing can be made."""

    @abstractmethod
    def named(self, plan: DesiredState) -> Collection[Name]:
        """What answers to the kubelet may still name: that is in the lists and pools of the last turn."""

    @abstractmethod
    def held(self, left: Collection[Name], plan: DesiredState) -> Collection[Name]:
        """What a pod or a claim may have of what is left over. Asked only where it is known what pods hold."""

    @abstractmethod
    def make(
        self, plan: DesiredState, wanted: Mapping[Name, Wanted], kept: frozenset[Name], gone: frozenset[Name]
    ) -> Mapping[Name, str]:
        """Make what is not there as it should be, leave what is `kept`, and remove what is to be `gone`; blocks.

        Returns why something could not be made. Raises HostError where nothing could.
        """

    async def made(self, plan: DesiredState) -> None:
        """Do on the loop what follows from `make`."""

    async def apply(self, plan: DesiredState) -> None:
        """Make what the plan needs and remove what nothing can name; what fails is reported by `failed`."""
        now = self._clock.now()
        remove_at = await asyncio.to_thread(self._work, plan, now)
        times = (self.retry_at(now), remove_at)
        self.again_at = min((each for each in times if each is not None), default=None)
        self.directories = self._watched if self._wanted or self._left else frozenset()
        await self.made(plan)

    def _work(self, plan: DesiredState, now: float) -> float | None:
        """Compare what is wanted with what is there, and make it so; when something left over may go, or None."""
        with self._writing:
            wanted = self.wanted(plan)
            try:
                left = frozenset(self.present(wanted)) - wanted.keys()
                unheld = (
                    left.difference(self.held(left, plan)) if left and plan.observed.in_use.complete else frozenset()
                )
                gone = unheld.difference(self.named(plan))
                self.failed = self.make(plan, wanted, left - gone, gone)
            except HostError as failed:
                self._left, self.failed = self._left - wanted.keys(), dict.fromkeys(wanted, str(failed))
                unheld = gone = frozenset()
            else:
                self._left = left - gone
            self._wanted = wanted
        if unheld != gone:
            return now  # the list that is about to be sent leaves it out
        return now + self._intervals.retire_settle if self._left and not plan.observed.in_use.complete else None

    def retry_at(self, now: float) -> float | None:
        """When to try again after `make`, or None."""
        return now + self._intervals.retry_host_files if self.failed else None
