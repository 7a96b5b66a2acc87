"""What is due: names, each once, in the order in which they came; some after a while, and then before the others."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import structlog

from ..aio.clock import Clock, Timing
from ..aio.tasks import Backoff
from ..errors import ApiServerError


class DueQueue:
    """Names that something is to be done for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: OrderedDict[str, None] = OrderedDict()
        self._later: dict[str, tuple[float, Callable[[], object]]] = {}
        self._any = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._due)

    def add(self, name: str) -> None:
        self._due.setdefault(name)
        self._any.set()

    def add_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.add(name)

    def add_later(self, name: str, seconds: float) -> None:
        """It is due after so many seconds, and comes first then; the earliest time counts."""
        at = self._clock.now() + seconds
        known = self._later.get(name)
        if known is not None:
            if known[0] <= at:
                return
            known[1]()
        self._later[name] = at, self._clock.call_at(at, lambda: self._fall_due(name))

    def _fall_due(self, name: str) -> None:
        self._later.pop(name, None)
        self.add(name)
        self._due.move_to_end(name, last=False)

    async def next(self) -> str:
        while not self._due:
            self._any.clear()
            await self._any.wait()
        name, _ = self._due.popitem(last=False)
        return name


log = structlog.get_logger(__name__)

_ROOM = 256  # outputs that write, before another node is decided


class Writer(Protocol):
    """What writes: an output of the agent's, or of the fleet's own."""

    name: str

    @property
    def has_news(self) -> bool:
        """Whether something may have to be written."""

    async def catch_up(self) -> None:
        """Write what differs. Raises ApiServerError."""


class Writers:
    """The tasks that write. `group` is where they live; `may` says whether anything may be written of a node now."""

    def __init__(self, group: asyncio.TaskGroup, *, may: Callable[[str], bool], timing: Timing) -> None:
        self._group = group
        self._may = may
        self._intervals, self._clock = timing
        self._backoff = Backoff(self._intervals.retry_step_first, self._intervals.retry_step_most)
        self._tasks: dict[Writer, asyncio.Task[None]] = {}
        self._nodes: dict[Writer, str] = {}
        self._counted: dict[Writer, Callable[[], object]] = {}
        self._failing: dict[Writer, tuple[str, Exception]] = {}
        self._fewer = asyncio.Event()
        self._stopped = False

    @property
    def failing(self) -> Mapping[Writer, tuple[str, Exception]]:
        """What could not be written at the last attempt: the node, and why."""
        return self._failing

    @property
    def at_work(self) -> Sequence[tuple[str, str, str]]:
        """Who writes: the node, what, and why the last attempt failed, if one did."""
        failing = dict(self._failing)
        return [
            (node, each.name, str(failing[each][1]) if each in failing else "") for each, node in [*self._nodes.items()]
        ]

    @property
    def busy(self) -> int:
        """How many outputs are at work, or pause before they try again."""
        return len(self._tasks)

    async def room(self) -> None:
        """Wait while very many are at work."""
        while len(self._counted) >= _ROOM:
            self._fewer.clear()
            await self._fewer.wait()

    def wake(self, node: str, output: Writer) -> None:
        """Let it write, if it has something to and does not yet."""
        if output.has_news and output not in self._tasks and not self._stopped and self._may(node):
            task = self._group.create_task(self._work(node, output), name=f"{output.name} of {node}")
            self._tasks[output], self._nodes[output] = task, node
            self._counted[output] = self._clock.call_later(self._intervals.long_write, lambda: self._discount(output))
            task.add_done_callback(lambda task: self._done(node, output, task))

    def stop(self) -> None:
        """Begin no more; what is at work ends with its group."""
        self._stopped = True

    def drop(self, output: Writer) -> None:
        """Its node is gone: what it has to write is of no use."""
        if task := self._tasks.get(output):
            task.cancel()

    def _discount(self, output: Writer) -> None:
        if cancel := self._counted.pop(output, None):
            cancel()
            self._fewer.set()

    def _done(self, node: str, output: Writer, task: asyncio.Task[None]) -> None:
        self._tasks.pop(output, None)
        self._nodes.pop(output, None)
        self._failing.pop(output, None)
        self._discount(output)
        if not task.cancelled() and task.exception() is None:
            self.wake(node, output)  # there may be news since the task looked last

    async def _work(self, node: str, output: Writer) -> None:
        structlog.contextvars.bind_contextvars(node=node)  # for what outputs log; each task has its own
        attempts = 0
        while output.has_news and self._may(node):  # a kubelet may have come to the node since the last time
            try:
                await output.catch_up()
            except Exception as failed:  # a defect that one node shows is no end of the others
                if not self._may(node):
                    return
                if not isinstance(failed, ApiServerError):
                    log.exception("could not be written", what=output.name, node=node)
                elif attempts == 0:
                    log.warning("could not be written", what=output.name, node=node, reason=str(failed))
                self._failing[output] = node, failed
                asked = failed.wait if isinstance(failed, ApiServerError) else 0.0
                await self._clock.sleep(max(self._backoff.pause(attempts), asked))
                attempts += 1
            else:
                attempts = 0
                self._failing.pop(output, None)
