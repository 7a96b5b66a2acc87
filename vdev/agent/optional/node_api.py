"""The node's side of the API server, from when something asks for it: a plan, or labels that choose a file or a layout.

    NodeApi ─┬─ outputs   do nothing until a plan says something of the node; then they are those of `node_side`
             └─ view      the Node as the API server has it

Before that nothing of it is imported, no server is known and nothing is followed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.decide import Plan
from ...core.node.situation import Situation
from ...errors import ApiServerError
from ..options import Options
from ..outputs.base import Output
from .late import Late

if TYPE_CHECKING:
    from ..outputs.node.api_output import ApiOutput, FaultRules
    from .node_side import NodeSide

_LABELS, _STATUS, _EVENTS = "noting the node's labels", "noting the node's status", "noting events"
_FEATURES = "writing the features file"


class NodeApi:
    """Everything that one agent has to do with its Node.

    `situation` is what the agent knows of itself beside the plan, `faults` answers in the server's place;
    `hurry` ends the pauses of what failed while the server was not heard.
    """

    def __init__(
        self, options: Options, situation: Callable[[], Situation], faults: "FaultRules", hurry: Callable[[], None]
    ) -> None:
        self.view = NodeView(self)
        self.side: NodeSide | None = None
        self.outputs: tuple[Output, ...] = tuple(_Later(name, self) for name in (_LABELS, _FEATURES, _STATUS, _EVENTS))
        self._options = options
        self._situation = situation
        self._faults = faults
        self._hurry = hurry
        self._users: list[Callable[[], None]] = []
        self._asked, self._begun = asyncio.Event(), asyncio.Event()

    async def begin(self) -> "NodeSide":
        """Import and make it, unless that is done."""
        if self.side is None:
            make = await asyncio.to_thread(_imported)
        if self.side is None:
            self.side = make(self._options, self._situation, self._faults, self._hurry)
            for user in self._users:
                self.side.object.subscribe(user)
            self._asked.set()
            self._begun.set()
        return self.side

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Begin, follow the Node from then on, and tell of each change."""
        if self.side is not None:
            self.side.object.subscribe(on_change)
        else:
            self._users.append(on_change)
            self._asked.set()

    async def follow(self) -> None:
        """Follow the Node, from when somebody uses it on."""
        await self._asked.wait()
        await (await self.begin()).object.run()

    @property
    def turns(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Steps to repeat, in tasks of their own.

        None has an output's name: what an output notes succeeds at every turn, which says nothing of what is written.
        """
        return {
            "writing the node's labels": lambda: self._work(lambda side: side.labels),
            "writing the node's status": lambda: self._work(lambda side: side.status),
            "writing events": lambda: self._work(lambda side: side.events),
        }

    async def _work(self, writer: "Callable[[NodeSide], ApiOutput]") -> None:
        await self._begun.wait()
        await writer(await self.begin()).work()

    def break_watches(self) -> None:
        """End the open watches: a fault rule that concerns them begins."""
        if self.side is not None:
            self.side.break_watches()

    async def aclose(self) -> None:
        """End the connection."""
        if self.side is not None:
            await self.side.aclose()

    def document(self) -> dict[str, Any]:
        """The part of the status about it; keys are stable and documented."""
        server = self._options.api_server
        return {"apiServer": server.where if server else "", **(self.side.document() if self.side else _unbegun())}


class NodeView:
    """This agent's own Node, as the API server has it."""

    def __init__(self, node_api: NodeApi) -> None:
        self._api = node_api

    @property
    def document(self) -> Mapping[str, Any] | None:
        """The object as it was seen last; None where it was not seen, or is gone."""
        return self._api.side.object.document if self._api.side else None

    @property
    def trouble(self) -> ApiServerError | None:
        """Why what is known of it may be old, or is not known."""
        return self._api.side.object.trouble if self._api.side else None

    @property
    def unanswered(self) -> bool:
        """The last reading got no answer, so that another one may tell."""
        return self._api.side is not None and self._api.side.object.unanswered

    @property
    def has_server(self) -> bool:
        """Whether there is an API server to ask."""
        return self._api.side is not None and self._api.side.object.has_server

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels; none where it is not known."""
        return self._api.side.object.labels if self._api.side else {}

    async def read(self) -> None:
        """Ask for it now, once, without following it."""
        await (await self._api.begin()).object.read()

    async def seen(self) -> Mapping[str, Any]:
        """The object as it was seen last; waits for the first look. Raises ApiServerError where it cannot be had."""
        return await (await self._api.begin()).object.seen()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Follow the Node from now on, and be told when it is another one."""
        self._api.subscribe(on_change)


class _Later(Late[Output]):
    """The output of this name, from the first plan on that says anything of the node."""

    def __init__(self, name: str, node_api: NodeApi) -> None:
        super().__init__()
        self.name = name
        self._node_api = node_api

    async def settle(self, plan: Plan) -> None:
        """As the output does, once there is something for it."""
        if self.made is None and (self._node_api.side is not None or plan.tells_of_node):
            side = await self._node_api.begin()
            self._begin(next(each for each in side.outputs if each.name == self.name))
        if self.made is not None:
            await self.made.settle(plan)


def _imported() -> "type[NodeSide]":
    """What makes it, imported: it brings the client of the API server."""
    from .node_side import NodeSide

    return NodeSide


def _unbegun() -> dict[str, Any]:
    """What the status says of it while nothing asks for it: as `NodeSide.document`."""
    return {
        "problem": "",
        "labels": {"wanted": {}, "written": {}, "keptBy": {}},
        "features": {"file": None},
        "status": {
            "capacity": {},
            "allocatable": {},
            "conditions": [],
            "written": False,
            "kubeletDecidesAllocatable": False,
        },
        "events": {"written": 0, "dropped": 0},
    }
