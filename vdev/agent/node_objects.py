"""The Node object of this agent, from one watch, and everything that the agent writes about it.

The watch needs the verbs list and watch on nodes; a role can name the one node. No request is sent before something
needs the Node.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..api_server import NO_SERVER
from ..errors import ApiServerError
from ..kube.api import Api
from ..kube.connection import Connection
from ..kube.errors import Unconfigured, Unreachable
from ..kube.informer import Informer
from ..kube.objects import NODES, metadata_of
from ..node.api_applier import NodeAccess, injected
from ..node.event_applier import NodeEvents
from ..node.label_applier import FeaturesFile, NodeLabels
from ..node.status_applier import NodeStatus
from .applier import Applier

if TYPE_CHECKING:
    from .agent import Agent

Document = Mapping[str, Any]


class NodeObject:
    """The Node of this name. `trouble` is why it is unknown or may be outdated.

    `on_heard` is called when `trouble` ends.
    """

    def __init__(
        self,
        node: str,
        api: Api,
        *,
        on_heard: Callable[[], None] = lambda: None,
    ) -> None:
        self._node = node
        self._api = api
        self._on_heard = on_heard
        self._users: list[Callable[[], None]] = []
        self._wanted = asyncio.Event()
        self._reported: tuple[Document | None, str, bool] = None, "", False  # what subscribers know
        self._informer = Informer(
            api,
            NODES,
            fields={"metadata.name": node},
            keep=lambda document: document,
            on_change=lambda *_: self._report(),
            on_look=self._report,
        )

    @property
    def document(self) -> Document | None:
        """The last known Node; None if there is none."""
        return self._informer.get(self._node)

    @property
    def trouble(self) -> ApiServerError | None:
        if self._informer.trouble is not None or self.document is not None or not self._informer.is_listed:
            return self._informer.trouble
        hint = "set --node-name (env NODE_NAME) to the Node's name, in a pod spec.nodeName"
        return Unconfigured(f"the cluster has no node {self._node!r}; {hint}")

    @property
    def is_known(self) -> bool:
        """Whether the API server has delivered the Node or said that there is none, or no server is known."""
        return self._informer.is_listed or self._api.connection.server is None

    @property
    def labels(self) -> Mapping[str, str]:
        return metadata_of(self.document).get("labels") or {}

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Watch the Node from now on, and call `on_change` at each change."""
        self._users.append(on_change)
        self._wanted.set()

    async def answered(self) -> None:
        """Wait until the API server has answered, or none is known."""
        await self._informer.looked.wait()
        if isinstance(self._informer.trouble, Unreachable):
            await self._informer.answered.wait()

    def note(self, document: Document) -> None:
        """Take the Node from the answer to a write: the watch delivers it later, after older states."""
        self._informer.wrote(document)

    async def seen(self) -> Document:
        """Return the last known Node; waits for the first attempt. Raises ApiServerError if it is unknown."""
        self._wanted.set()
        await self._informer.looked.wait()
        if (document := self.document) is not None:
            return document
        raise self.trouble or Unconfigured(NO_SERVER)

    async def run(self) -> None:
        """Watch the Node as soon as something needs it."""
        await self._wanted.wait()
        await self._informer.run()

    def _report(self) -> None:
        _, trouble_before, _ = before = self._reported
        self._reported = self.document, str(self.trouble or ""), self.is_known
        if before == self._reported:
            return
        for notify in self._users:
            notify()
        if trouble_before and self.trouble is None:
            self._on_heard()


class NodeApi:
    """The Node of one agent: `object` is its state in the API server, and `access` is for writes."""

    def __init__(self, agent: "Agent") -> None:
        options = agent.options
        node, timing, server = options.node_name, options.timing, options.api_server
        fault = functools.partial(injected, agent.faults.engine.on_api)
        self.api: Api = Api(Connection(server, timing), fault=fault)
        self.object: NodeObject = NodeObject(node, self.api, on_heard=agent.retrier.retry_now)
        self.access: NodeAccess = NodeAccess(node=node, api=self.api, view=self.object, timing=timing)
        self._labels = NodeLabels(self.access)
        self._features = FeaturesFile(options.features_dir)
        self._status = NodeStatus(self.access)
        self.events = NodeEvents(self.access, agent.situation)
        self.appliers: tuple[Applier, ...] = (self._labels, self._features, self._status, self.events)
        self._server = server.where if server else ""

    @property
    def writers(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Operations to repeat, each in a separate task.

        Their names differ from those of the appliers, because an applier succeeds as soon as it has queued a write.
        """
        return {
            "writing the node's labels": self._labels.work,
            "writing the node's status": self._status.work,
            "writing events": self.events.work,
        }

    def document(self) -> dict[str, Any]:
        """The part of the status about it; keys are stable and documented."""
        trouble, labels, status = self.object.trouble, self._labels.document(), self._status.document()
        # If there is no server, and only the choice of a file by label uses the Node, that is not a problem.
        is_asked_for = self.api.connection.server or labels["wanted"] or status["capacity"] or status["conditions"]
        return {
            "apiServer": self._server,
            "problem": str(trouble) if trouble and is_asked_for else "",
            "labels": labels,
            "features": {"file": str(self._features.path) if self._features.directories else None},
            "status": status,
            "events": {"written": self.events.written, "dropped": self.events.dropped},
        }
