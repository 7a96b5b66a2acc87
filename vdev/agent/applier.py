"""What follows from a plan: an `Applier` makes its part of it true, and knows nothing of the others.

A new one is a class with a name and `apply`, in the list that `Agent` makes. When it is called, that a failure is
tried again, and that it shows in log, status and metrics is the reconciler's business.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import IntEnum
from pathlib import Path

from ..model.device import Health
from ..model.problem import Problem
from ..planning.plan import DesiredState

NOTHING: Mapping[str, Health] = {}


class Stage(IntEnum):
    """When an applier is applied; those of one stage are applied in the order of their list.

    PREPARE is for what must be there before the kubelet is told, because a runtime or the next process will look for
    it; LIST tells the kubelet; FOLLOW is for everything that only says what is so.
    """

    PREPARE = 1
    LIST = 2
    FOLLOW = 3


class Applier(ABC):
    """One thing that is kept as the plan says."""

    name: str
    """A phrase that goes before "failed" in a problem, such as "writing CDI specifications"."""
    stage: Stage = Stage.FOLLOW

    @abstractmethod
    async def apply(self, plan: DesiredState) -> None:
        """Compare what is there with the plan, and make it so.

        What it raises is a problem, and it is called again after a pause.

        One of stage LIST awaits nothing, so that no request of the kubelet comes between the decision and the lists.
        """

    def unprepared(self, plan: DesiredState) -> Collection[str]:
        """The devices of the plan, by raw device id, that need this applier and for which it has done nothing yet.

        Asked of one of stage PREPARE whose `apply` fails: these devices are Unhealthy until it succeeds.
        """
        del plan
        return ()

    def look(self) -> None:  # noqa: B027 (`apply` is enough for most)
        """Something may have changed in one of `directories`; a turn follows, in which `apply` looks at it."""

    @property
    def undeliverable(self) -> Mapping[str, Health]:
        """The devices, by raw device id, that containers could not be given because of this applier, and why."""
        return NOTHING

    @property
    def toolless(self) -> frozenset[str]:
        """The devices, by raw device id, whose containers get no tools of its maker because of this applier."""
        return frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What a person should know, besides failures of `apply`."""
        return ()

    @property
    def directories(self) -> frozenset[Path]:
        """The directories whose changes are worth a turn; what it writes there itself is only one turn more."""
        return frozenset()

    @property
    def again_at(self) -> float | None:
        """The (monotonic) time at which to settle again though nothing happens, or None."""
        return None


class Beside(Applier):
    """A part of another applier's work that has a stage, and failures, of its own."""

    def __init__(self, name: str, stage: Stage, work: Callable[[DesiredState], Awaitable[object]]) -> None:
        self.name, self.stage = name, stage
        self._work = work

    async def apply(self, plan: DesiredState) -> None:
        await self._work(plan)
