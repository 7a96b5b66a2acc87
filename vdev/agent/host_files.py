"""The files that vdev keeps on the host for containers: CDI names, placeholders of virtual devices, tool directories.

A file that the plan needs is made, and made again if something removes or changes it. A file that the plan no longer
needs is kept while anything can name it:

- an answer to the kubelet, while the kubelet has a list with the device;
- the runtime, which gets the same answer again when a container restarts, while a pod or a claim may hold the device.

So it is removed in a reconciliation after the list that leaves the device out: the holders are read after that list,
so they include each answer that was given before. Files of earlier processes are removed in the same way.
"""

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Collection, Hashable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from ..aio.clock import Timing
from ..errors import HostError
from ..model.device import Health
from ..planning.plan import DesiredState
from .applier import Applier, Stage
from .retry import problem_of, reason_in_words

log = structlog.get_logger(__name__)

Name = TypeVar("Name", bound=Hashable)
Wanted = TypeVar("Wanted")


class HostFiles(Applier, Generic[Name, Wanted]):
    """Keeps the named files that the plan needs on the host. Each kind of file is a subclass."""

    stage = Stage.PREPARE

    def __init__(self, watched: Collection[Path], timing: Timing) -> None:
        self.failed: Mapping[Name, str] = {}  # why something that the plan needs is missing or wrong
        self._intervals, self._clock = timing
        self._watched = frozenset(watched)
        self._wanted: Mapping[Name, Wanted] = {}  # by the last plan
        self._left: frozenset[Name] | None = None  # files that exist and are not wanted; None: not known yet
        self._writing = threading.Lock()  # held by the thread that changes something

    @abstractmethod
    def wanted(self, plan: DesiredState) -> Mapping[Name, Wanted]:
        """Return the files that must exist before the kubelet gets the lists of this plan."""

    @abstractmethod
    def present(self, wanted: Mapping[Name, Wanted]) -> Collection[Name]:
        """Return the files that exist, of any process. Blocks. Raises HostError or OSError if none can be made."""

    @abstractmethod
    def in_use(self, left: Collection[Name], plan: DesiredState) -> Collection[Name]:
        """Return those of the leftover files that a pod, a claim, or an answer to the kubelet may name.

        Answers are given for the lists and pools of the last plan. Called only if all holders are known.
        """

    @abstractmethod
    def make(
        self, plan: DesiredState, wanted: Mapping[Name, Wanted], kept: frozenset[Name], gone: frozenset[Name]
    ) -> Mapping[Name, str]:
        """Make or repair the wanted files, leave the `kept` ones, and remove the `gone` ones. Blocks.

        Returns why a file could not be made or removed. Raises HostError or OSError if no file could.
        """

    def withheld(self, plan: DesiredState) -> Mapping[str, str]:
        """Why devices cannot be given to containers because of what `failed`, by raw id."""
        del plan
        return {}

    async def apply(self, plan: DesiredState) -> None:
        try:
            await asyncio.to_thread(self._work, plan)
        except Exception as failed:
            # A bug in vdev. Files from earlier calls exist; others may be missing.
            reason = problem_of(self.name, failed).message
            made, self._wanted = self._wanted, self.wanted(plan)
            missing = (name for name, each in self._wanted.items() if name in self.failed or made.get(name) != each)
            self.failed = {name: self.failed.get(name, reason) for name in missing}
            raise
        finally:
            why = self.withheld(plan) if self.failed else {}
            self.undeliverable = {raw: Health(healthy=False, reason=reason) for raw, reason in why.items()}
        self.retry_at = self._clock.now() + self._intervals.retry_host_files if self.failed or self._left else None
        self.directories = self._watched if self._wanted or self._left else frozenset()

    def _work(self, plan: DesiredState) -> None:
        """Compare what is wanted with what exists, and change it."""
        with self._writing:
            wanted = self.wanted(plan)
            if self._left is not None and not (wanted or self._wanted or self._left):
                return
            try:
                left = frozenset(self.present(wanted)) - wanted.keys()
                kept = left
                if left and plan.observed.in_use.is_complete:
                    kept = left.intersection(self.in_use(left, plan))
                gone = left - kept
                failed = self.make(plan, wanted, kept, gone)
                # Includes files that could not be removed.
                self._left = frozenset(self.present(wanted)) - wanted.keys() if gone else kept
            except (HostError, OSError) as cause:
                failed = dict.fromkeys(wanted, reason_in_words(cause))
            for reason in sorted(set(failed.values()) - set(self.failed.values())):
                count = sum(each == reason for each in failed.values())
                log.error("files for containers not made", step=self.name, reason=reason, count=count)
            self._wanted, self.failed = wanted, failed
