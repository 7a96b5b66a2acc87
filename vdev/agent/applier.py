"""Appliers: each one applies one part of the desired state, independently of the others.

A new one is a class with a name and `apply`, in the list in `agent/agent.py`. The reconciler calls it after each plan,
tries again if it fails, and shows the failure in log, status and metrics. It is also called if the plan has nothing for
it: then it removes what an earlier configuration left, and does nothing if nothing is left.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path

from ..model.device import Health
from ..model.problem import Problem
from ..planning.plan import DesiredState

NOTHING: Mapping[str, Health] = {}


class Stage(IntEnum):
    """When an applier is called; appliers of one stage are called in the order of their list.

    PREPARE: before the kubelet gets the lists, for files that a container runtime or the next process reads.
    FOLLOW: after that, for everything else.
    """

    PREPARE = 1
    FOLLOW = 2


class Applier(ABC):
    name: str
    """A unique phrase that goes before "failed" in a problem, such as "writing CDI specifications"."""
    stage: Stage = Stage.FOLLOW
    undeliverable: Mapping[str, Health] = NOTHING
    """The devices, by raw device id, that cannot be given to containers because of this applier, and why."""
    retry_at: float | None = None
    """The (monotonic) time of the next reconciliation even if nothing happens, or None."""
    directories: frozenset[Path] = frozenset()
    """The directories whose changes cause a reconciliation."""

    @abstractmethod
    async def apply(self, plan: DesiredState) -> None:
        """Compare what exists with the desired state, and change the difference.

        An exception is a problem in the status, and the next call comes after a pause. Do not write unchanged files in
        `directories`: each write there causes a reconciliation.
        """

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems for the status, in addition to exceptions of `apply`."""
        return ()
