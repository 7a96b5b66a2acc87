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
    """What writes: an applier of the agent's, or of the fleet's own."""

    name: str

    @property
    def has_news(self) -> bool:
        """Whether something may have to be written."""

    async def catch_up(self) -> None:
        """Write what differs. Raises ApiServerError."""


@dataclass(slots=True)
class _Job:
    """A task at work, or in the pause before it tries again; and why the last attempt failed, if it did."""

    node: str
    task: asyncio.Task[None] | None = None
    failed: str = ""


class Writers:
    """The tasks that write. `group` is where they live; `may` says whether anything may be written of a node now."""

    def __init__(self, group: asyncio.TaskGroup, *, may: Callable[[str], bool], timing: Timing) -> None:
        self._group = group
        self._may = may
        self._clock = timing.clock
        self._backoff = Backoff(timing.intervals.retry_step_first, timing.intervals.retry_step_most)
        self._jobs: dict[Writer, _Job] = {}
        self._stopped = False

    @property
    def at_work(self) -> Sequence[tuple[str, str, str]]:
        """Who writes: the node, what, and why the last attempt failed, if it did."""
        return [(job.node, applier.name, job.failed) for applier, job in tuple(self._jobs.items())]

    def wake(self, node: str, applier: Writer) -> None:
        """Let it write, if it has something to and does not yet."""
        if applier.has_news and applier not in self._jobs and not self._stopped and self._may(node):
            job = self._jobs[applier] = _Job(node)
            job.task = self._group.create_task(self._work(job, applier), name=f"{applier.name} of {node}")
            job.task.add_done_callback(lambda task: self._done(node, applier, task))

    def stop(self) -> None:
        """Begin no more; what is at work ends with its group."""
        self._stopped = True

    def drop(self, applier: Writer) -> None:
        """Its node is gone: what it has to write is of no use."""
        if (job := self._jobs.get(applier)) and job.task:
            job.task.cancel()

    def _done(self, node: str, applier: Writer, task: asyncio.Task[None]) -> None:
        self._jobs.pop(applier, None)
        if not task.cancelled() and task.exception() is None:
            self.wake(node, applier)  # there may be news since the task looked last

    async def _work(self, job: _Job, applier: Writer) -> None:
        structlog.contextvars.bind_contextvars(node=job.node)  # for what appliers log; each task has its own
        attempts = 0
        while applier.has_news and self._may(job.node):  # a kubelet may have come to the node since the last time
            try:
                await applier.catch_up()
            except Exception as failed:  # a defect that one node shows is no end of the others
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
