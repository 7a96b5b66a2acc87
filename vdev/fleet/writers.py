"""The tasks that write to the API server: one for each applier of a node that has something to write."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import structlog

from ..aio.clock import Timing
from ..aio.tasks import Backoff
from ..errors import ApiServerError

log = structlog.get_logger(__name__)


class Writer(Protocol):
    """Something that writes: an applier, or the fleet's notes on pods."""

    name: str

    @property
    def has_news(self) -> bool:
        """Whether something may have to be written."""

    async def catch_up(self) -> None:
        """Write what differs. Raises ApiServerError."""


@dataclass(slots=True)
class _Job:
    """A task that writes, or waits to try again; and why the last attempt failed, if it did."""

    node: str
    task: asyncio.Task[None] | None = None
    failed: str = ""


class Writers:
    """The tasks; `may` says whether anything may be written about a node now."""

    def __init__(self, *, may: Callable[[str], bool], timing: Timing) -> None:
        self._group: asyncio.TaskGroup | None = None  # None: nothing is written yet, or any more
        self._may = may
        self._clock = timing.clock
        self._backoff = Backoff(timing.intervals.retry_step_first, timing.intervals.retry_step_most)
        self._jobs: dict[Writer, _Job] = {}

    @property
    def at_work(self) -> Sequence[tuple[str, str, str]]:
        """The tasks: the node, the applier, and why the last attempt failed, if it did."""
        return [(job.node, applier.name, job.failed) for applier, job in tuple(self._jobs.items())]

    def wake(self, node: str, applier: Writer) -> None:
        """Start a task for an applier that has something to write and no task yet."""
        if self._group is not None and applier.has_news and applier not in self._jobs and self._may(node):
            job = self._jobs[applier] = _Job(node)
            job.task = self._group.create_task(self._work(job, applier), name=f"{applier.name} of {node}")
            job.task.add_done_callback(lambda task: self._done(node, applier, task))

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run tasks in this group from now on."""
        self._group = group

    def stop(self) -> None:
        """Start no more tasks."""
        self._group = None

    def drop(self, applier: Writer) -> None:
        """Cancel the task of an applier whose node is gone."""
        if (job := self._jobs.get(applier)) and job.task:
            job.task.cancel()

    def _done(self, node: str, applier: Writer, task: asyncio.Task[None]) -> None:
        self._jobs.pop(applier, None)
        if not task.cancelled() and task.exception() is None:
            self.wake(node, applier)  # something may have changed since the task looked last

    async def _work(self, job: _Job, applier: Writer) -> None:
        structlog.contextvars.bind_contextvars(node=job.node)  # for the log lines of appliers
        attempts = 0
        while applier.has_news and self._may(job.node):  # a kubelet may have registered since the last time
            try:
                await applier.catch_up()
            except Exception as failed:  # a defect that shows on one node must not stop the others
                if not self._may(job.node):
                    return
                if not isinstance(failed, ApiServerError):
                    log.exception("could not be written", what=applier.name, node=job.node)
                elif attempts == 0:
                    log.warning("could not be written", what=applier.name, node=job.node, reason=str(failed))
                job.failed = str(failed)
                asked = failed.wait if isinstance(failed, ApiServerError) else 0.0
                await self._clock.sleep(max(self._backoff.pause(attempts), asked))
                attempts += 1
            else:
                attempts, job.failed = 0, ""
