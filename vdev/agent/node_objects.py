"""This agent's own Node, as the API server has it: watched for as long as somebody uses it, or read now and then.

One watch serves everybody. It needs the verbs list and watch on nodes (a role can name the one node); with get
alone the Node is read at a slow pace. Nothing is asked before somebody subscribes.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from .. import kube
from ..aio.clock import Timing
from ..errors import ApiServerError
from ..kube import Api
from ..node.api_applier import FaultRules, NodeAccess, injected
from ..node.event_applier import NodeEvents
from ..node.events import Situation
from ..node.label_applier import FeaturesFile, NodeLabels
from ..node.status_applier import NodeStatus
from .applier import Applier
from .options import Options

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]

_LIMIT = 16 * 2**20  # bytes of an answer: all is about one node, and in memory it is several times as much


class NodeObject:
    """The Node of this name. `trouble` says why what is known of it may be old, or that there is none.

    `api` None: there is no API server. `on_heard` is called when there is no trouble any more.
    """

    def __init__(
        self,
        node: str,
        api: kube.Api | None,
        *,
        timing: Timing,
        on_heard: Callable[[], None] = lambda: None,
    ) -> None:
        self._node = node
        self._api = api
        self._intervals, self._clock = timing
        self._on_heard = on_heard
        self._users: list[Callable[[], None]] = []
        self._wanted = asyncio.Event()
        self._told: tuple[Document | None, str] = None, ""  # the Node and the trouble that users know
        self._informer = kube.Informer(
            api,
            kube.NODES,
            fields=f"metadata.name={node}",
            keep=kube.whole,
            on_change=lambda *_: self._tell(),
            on_look=self._tell,
            on_denied=self._poll,
        )

    @property
    def is_used(self) -> bool:
        return self._wanted.is_set()

    @property
    def has_server(self) -> bool:
        return self._api is not None

    @property
    def document(self) -> Document | None:
        """The Node as it was seen last; None where there is none, or it may not be read any more."""
        return None if isinstance(self._informer.trouble, kube.Denied) else self._informer.get(self._node)

    @property
    def trouble(self) -> ApiServerError | None:
        if self._informer.trouble is not None or self.document is not None or not self._informer.is_listed:
            return self._informer.trouble
        hint = "set --node-name (env NODE_NAME) to the pod's spec.nodeName"
        return kube.Unconfigured(f"the cluster has no node {self._node!r}; {hint}")

    @property
    def unanswered(self) -> bool:
        """The last reading got no answer, so that another one may tell."""
        return isinstance(self.trouble, kube.Unreachable | kube.Throttled)

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels; none where it is not known."""
        return kube.metadata_of(self.document).get("labels") or {}

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Follow the Node from now on, and tell of each change; as often as it is asked for, forever."""
        self._users.append(on_change)
        self._wanted.set()

    async def read(self) -> None:
        """Ask for it now, once, without following it."""
        await self._informer.read(self._node)

    def note(self, document: Document) -> None:
        """The Node as the server just answered to a write; a watch tells it later, and first what was before."""
        self._informer.wrote(document)

    async def seen(self) -> Document:
        """The Node as it was seen last; waits for the first look. Raises ApiServerError where it cannot be had."""
        self._wanted.set()
        await self._informer.looked()
        if (document := self.document) is not None:
            return document
        raise self.trouble or kube.Unconfigured(kube.NO_SERVER)

    async def run(self) -> None:
        """Follow the Node, from when somebody uses it on."""
        await self._wanted.wait()
        await self._informer.run()

    async def _poll(self, denied: kube.Denied) -> None:
        """Read it again and again, until that is refused as well, or it is time to see whether it may be watched."""
        log.info("the node cannot be watched; it is read now and then", reason=str(denied))
        end = self._clock.now() + self._intervals.watch_again
        while self._clock.now() < end:
            await self.read()
            if isinstance(self._informer.trouble, kube.Denied):
                return
            await self._clock.sleep(self._intervals.look_at_label)

    def _tell(self) -> None:
        (_, trouble_before), now = self._told, (self.document, str(self.trouble or ""))
        if now == self._told:
            return
        self._told = now
        for tell in self._users:
            tell()
        if trouble_before and self.trouble is None:
            self._on_heard()


class NodeApi:
    """Everything that one agent has to do with its Node.

    `object` is the Node as the API server has it, and `access` the way to it.

    `situation` is what the agent knows of itself beside the plan, `faults` answers in the server's place;
    `hurry` ends the pauses of what failed while the server was not heard.
    """

    def __init__(
        self, options: Options, situation: Callable[[], Situation], faults: FaultRules, hurry: Callable[[], None]
    ) -> None:
        node, timing, server = options.node, options.timing, options.api_server
        fault = functools.partial(injected, faults)
        self.api = Api(server, timing=timing, fault=fault, limit=_LIMIT) if server else None
        self.object = NodeObject(node, self.api, timing=timing, on_heard=hurry)
        self.access = access = NodeAccess(node=node, api=self.api, view=self.object, timing=timing)
        self._labels = NodeLabels(access)
        self._features = FeaturesFile(options.features_dir)
        self._status = NodeStatus(access)
        self._events = NodeEvents(access, situation)
        self._server = server.where if server else ""

    @property
    def appliers(self) -> tuple[Applier, ...]:
        return (self._labels, self._features, self._status, self._events)

    @property
    def turns(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Operations to repeat, in tasks of their own.

        None has an applier's name: what an applier notes succeeds at every turn, which says nothing of what is written.
        """
        return {
            "writing the node's labels": self._labels.work,
            "writing the node's status": self._status.work,
            "writing events": self._events.work,
        }

    def break_watches(self) -> None:
        """End the open watches: a fault rule that concerns them begins."""
        if self.api is not None:
            self.api.break_watches()

    async def aclose(self) -> None:
        if self.api is not None:
            await self.api.aclose()

    def document(self) -> dict[str, Any]:
        """The part of the status about it; keys are stable and documented."""
        trouble, labels, status = self.object.trouble, self._labels.document(), self._status.document()
        # Without a server only the choice of a file by label may have looked for the Node, which does without.
        is_asked_for = self.object.has_server or labels["wanted"] or status["capacity"] or status["conditions"]
        return {
            "apiServer": self._server,
            "problem": str(trouble) if trouble and self.object.is_used and is_asked_for else "",
            "labels": labels,
            "features": {"file": str(self._features.path) if self._features.directories else None},
            "status": status,
            "events": {"written": self._events.written, "dropped": self._events.dropped},
        }
