"""Outputs that write to the API server: each in a task of its own, so that nothing else waits for that server.

    settle(plan) ─► what is wanted ─┐
    the Node changed ───────────────┴─► news ─► work: write what differs ─┬─ done ──► wait for news
                                                                          └─ failed ► a problem, a pause, again

A device that flaps writes a burst of changes, then the latest twice a second: an API server serves thousands of nodes.
What that answers to an apply is the Node from then on, however late a watch or the next look tells it.

`work` is an operation that the agent repeats (see `agent/retry.py`), so a failure is logged and tried again.
"""

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ..agent.applier import Applier
from ..aio.clock import Timing
from ..aio.tasks import Backoff, TokenBucket
from ..errors import ApiServerError
from ..faults.effects import ApiFaults
from ..kube import NO_SERVER, NODES, Api, ApiCall, InjectedAnswer, Unconfigured

_BURST = 10  # writes of one kind at once, as when a node is drained and cut anew


class TargetNode(Protocol):
    """This agent's own Node, as the API server has it; `document` None: not known, or not there."""

    @property
    def document(self) -> Mapping[str, Any] | None:
        """The object as it was seen last."""

    async def seen(self) -> Mapping[str, Any]:
        """The object as it was seen last; waits for the first look. Raises ApiServerError where it cannot be had."""

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Follow the Node from now on, and be told when it is another one."""

    def note(self, document: Mapping[str, Any]) -> None:
        """This is the Node, as the server just answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAccess:
    """How to reach the Node of this name: `view` is what is seen of it; `api` None: there is no API server.

    `on_news` is called when an output has something to write, for callers without a task of their own that waits.
    `events` is how often Events may be written, where several nodes share that.
    `level` is that of the log for what is written: of one among thousands of nodes nobody wants to read it.
    `may_have_kubelet`: a kubelet on the node may compute what is allocatable of its capacity.
    `takes_back`: what an earlier process wrote goes also where nothing of that kind is asked for any more.
    """

    node: str
    api: Api | None
    view: TargetNode
    timing: Timing
    on_news: Callable[[], None] = lambda: None
    events: TokenBucket | None = None
    level: int = logging.INFO
    takes_back: bool = False
    may_have_kubelet: bool = True


FaultRules = Callable[[str, str], tuple[str, ApiFaults] | None]
"""Which fault rule concerns a request, by verb and resource as RBAC names them, and how it fails."""


def injected(rules: FaultRules, call: ApiCall) -> InjectedAnswer | None:
    """What a fault rule answers to the request in the server's place."""
    found = rules(call.verb, call.resource)
    if found is None:
        return None
    rule, failure = found
    return InjectedAnswer(status=failure.status or 0, message=f"the fault rule {rule!r} says so", after=failure.after)


class ApiApplier(Applier):
    """One kind of thing that is written about a node."""

    def __init__(self, access: NodeAccess) -> None:
        self._node = access.node
        self._given = access.api
        self._view = access.view
        self._tell = access.on_news
        self._level = access.level
        self._takes_back = access.takes_back
        self._intervals = access.timing.intervals
        self._clock = access.timing.clock
        self._news = asyncio.Event()  # something may have to be written
        self._wants_anew = asyncio.Event()  # something else is wanted than when a pause began
        self._follows = False
        self._repair = Backoff(access.timing.intervals.repair_node, access.timing.intervals.repair_node_most)
        self._tokens = TokenBucket(access.timing.clock, burst=_BURST, every=access.timing.intervals.write_node)
        self._repairs = 0
        self._repaired_at = float("-inf")

    @property
    def _api(self) -> Api:
        """The API server. Raises ApiServerError where none is known."""
        if self._given is None:
            raise Unconfigured(NO_SERVER)
        return self._given

    def _note(self) -> None:
        """There is something to compare with what the server has."""
        if not self._follows:
            self._follows = True
            self._view.subscribe(self._see_node)
        self._wants_anew.set()
        self._stir()

    def _see_node(self) -> None:
        """The Node is another one than before."""
        self._stir()

    def _stir(self) -> None:
        """There is news; while some is left of before, the task that writes it looks again anyway."""
        if not self._news.is_set():
            self._news.set()
            self._tell()

    @property
    def has_news(self) -> bool:
        """Whether something may have to be written."""
        return self._news.is_set()

    async def work(self) -> None:
        """Wait for news, and write what differs. Raises ApiServerError; the news is kept then."""
        await self._news.wait()
        await self.catch_up()

    async def catch_up(self) -> None:
        """Write what differs. Raises ApiServerError; the news is kept then."""
        document = await self._view.seen()
        self._news.clear()
        try:
            if self._is_undone(document):
                await self._pause_before_repair()
            await self._tokens.wait()
            await self._write(await self._view.seen())
        except (AttributeError, LookupError, TypeError, ValueError) as odd:
            self._news.set()
            raise ApiServerError(f"the Node {self._node} has a form that Kubernetes does not have: {odd!r}") from odd
        except BaseException:
            self._news.set()
            raise

    async def _apply(self, document: Mapping[str, Any], wanted: Mapping[str, Any], *, status: bool = False) -> None:
        """Apply what is wanted to this very Node: one of the same name that was made since is another one."""
        uid = (document.get("metadata") or {}).get("uid")
        metadata = {**wanted.get("metadata", {}), **({"uid": uid} if uid else {})}
        whole = {**wanted, "metadata": metadata}
        self._tokens.take()
        subresource = "status" if status else ""
        self._view.note(await self._api.apply(NODES, self._node, whole, force=status, subresource=subresource))

    def _is_undone(self, document: Mapping[str, Any]) -> bool:
        """Whether somebody undid what was written."""
        del document
        return False

    @abstractmethod
    async def _write(self, document: Mapping[str, Any]) -> None:
        """Compare what is wanted with the Node as the server has it, and write what differs."""

    async def _pause_before_repair(self) -> None:
        """Wait longer each time that somebody else undoes what was written, so that two controllers do not race.

        It ends as soon as something else is wanted.
        """
        now = self._clock.now()
        if now - self._repaired_at > self._intervals.repair_node_most:
            self._repairs = 0
        self._repaired_at, self._repairs = now, self._repairs + 1
        if self._repairs > 1:
            self._wants_anew.clear()
            with contextlib.suppress(TimeoutError):
                async with self._clock.timeout(self._repair.pause(self._repairs - 2)):
                    await self._wants_anew.wait()
