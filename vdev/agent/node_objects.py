"""This agent's own Node, as the API server has it: watched for as long as somebody uses it, or read now and then.

One watch serves everybody. It needs the verbs list and watch on nodes (a role can name the one node); with get
alone the Node is read at a slow pace. Nothing is asked before somebody subscribes.
"""

import asyncio
import contextlib
import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import structlog

from .. import kube
from ..aio.clock import Timing
from ..errors import ApiServerError
from ..kube import Api
from ..node.api_output import FaultRules, NodeAccess, injected
from ..node.event_output import NodeEvents
from ..node.events import Situation
from ..node.label_output import FeaturesFile, NodeLabels
from ..node.status_output import NodeStatus
from .applier import Output
from .options import Options

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]
_NAMES = 10  # of Nodes that a message names


class NodeObject:
    """The Node of this name. `trouble` says why what is known of it may be old; None while it is followed.

    `api` None: there is no API server. `on_heard` is called when the server tells of the Node again.
    """

    def __init__(
        self,
        node: str,
        api: kube.Api | None,
        *,
        timing: Timing,
        on_heard: Callable[[], None] = lambda: None,
    ) -> None:
        self.document: Document | None = None
        self.trouble: ApiServerError | None = None
        self._node = node
        self._api = api
        self._timing = timing
        self._intervals, self._clock = timing
        self._on_heard = on_heard
        self._users: list[Callable[[], None]] = []
        self._wanted = asyncio.Event()
        self._looked = asyncio.Event()

    @property
    def is_used(self) -> bool:
        return self._wanted.is_set()

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Follow the Node from now on, and tell of each change; as often as it is asked for, forever."""
        self._users.append(on_change)
        self._wanted.set()

    @property
    def has_server(self) -> bool:
        return self._api is not None

    @property
    def unanswered(self) -> bool:
        """The last reading got no answer, so that another one may tell."""
        return isinstance(self.trouble, kube.Unreachable | kube.Throttled)

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels; none where it is not known."""
        return kube.metadata_of(self.document).get("labels") or {}

    async def read(self) -> None:
        """Ask for it now, once, without following it."""
        if self._api is None:
            self._see(None, kube.Unconfigured(kube.NO_SERVER))
            return
        try:
            self._see(await self._api.get(kube.NODES, self._node, at_hand=True), None)
        except kube.Missing:
            self._see(None, await self._missing(self._api))
        except kube.Denied as denied:
            self._see(None, denied)
        except ApiServerError as failed:
            self._see(self.document, failed)

    def note(self, document: Document) -> None:
        """The Node as the server just answered to a write; a watch tells it later, and first what was before."""
        if not self._is_old(document):
            self._see(document, self.trouble)

    async def seen(self) -> Document:
        """The Node as it was seen last; waits for the first look. Raises ApiServerError where it cannot be had."""
        self._wanted.set()
        await self._looked.wait()
        if self.document is None:
            raise self.trouble or kube.Unconfigured(kube.NO_SERVER)
        return self.document

    async def run(self) -> None:
        """Follow the Node, from when somebody uses it on."""
        await self._wanted.wait()
        if self._api is None:
            self._see(None, kube.Unconfigured(kube.NO_SERVER))
            return
        watch = functools.partial(self._watch, self._api)
        await kube.for_ever(watch, self._refused, timing=self._timing)

    async def _refused(self, error: ApiServerError) -> None:
        if not isinstance(error, kube.Denied):
            self._see(self.document, error)
        elif not error.known:
            self._see(None, error)
        else:
            log.info("the node cannot be watched; it is read now and then", reason=str(error))
            await self._poll()

    async def _watch(self, api: kube.Api) -> None:
        async with api.follow(kube.NODES, fields=f"metadata.name={self._node}") as changes:
            async for change in changes:
                match change:
                    case kube.Listed(objects):
                        self._see(objects[0] if objects else None, None if objects else await self._missing(api))
                    case kube.Changed(found):
                        self._see(self.document if self._is_old(found) else found, None)
                    case kube.Removed():
                        self._see(None, await self._missing(api))
                    case kube.Lost(error):
                        self._see(self.document, error)
                    case _:
                        self._see(self.document, None)

    async def _poll(self) -> None:
        """Read it again and again, until that is refused as well, or it is time to see whether it may be watched."""
        end = self._clock.now() + self._intervals.watch_again
        while self._clock.now() < end:
            await self.read()
            if isinstance(self.trouble, kube.Denied):
                return
            await self._clock.sleep(self._intervals.look_at_label)

    def _is_old(self, document: Document) -> bool:
        """Whether as much or more is known of the same Node already."""
        return kube.is_known(document, kube.metadata_of(self.document))

    async def _missing(self, api: kube.Api) -> ApiServerError:
        """That the name is a wrong one, and what Nodes there are, if that may be asked."""
        names: tuple[str, ...] = ()
        with contextlib.suppress(ApiServerError):
            names = await api.names(kube.NODES, _NAMES + 1)
        more = " and others" if len(names) > _NAMES else ""
        others = f" (it has {', '.join(map(repr, names[:_NAMES]))}{more})" if names else ""
        hint = "set --node-name (env NODE_NAME) to the pod's spec.nodeName"
        return kube.Unconfigured(f"the cluster has no node {self._node!r}{others}; {hint}")

    def _see(self, document: Document | None, trouble: ApiServerError | None) -> None:
        changed = document != self.document or str(trouble or "") != str(self.trouble or "")
        is_heard_again = trouble is None and self.trouble is not None
        self.document, self.trouble = document, trouble
        self._looked.set()
        if changed:
            for tell in self._users:
                tell()
        if is_heard_again:
            self._on_heard()


class NodeSlices:
    """The slices of the node of this name, by their own name. `on_change` is called when they are others.

    `trouble` says why what is known may be old; None while they are followed. `api` None: there is no API server.
    """

    def __init__(self, node: str, api: kube.Api | None, *, on_change: Callable[[], None], timing: Timing) -> None:
        self.trouble: ApiServerError | None = None
        self._found: dict[str, Document] = {}
        self._untold: set[str] = set()  # what was written from here, and no watch told of yet
        self._node = node
        self._api = api
        self._on_change = on_change
        self._timing = timing
        self._listed = False
        self._looked = asyncio.Event()

    async def seen(self) -> Mapping[str, Document]:
        """All of them; waits for the first look. Raises ApiServerError where they were never seen."""
        await self._looked.wait()
        if not self._listed:
            raise self.trouble or kube.Unconfigured(kube.NO_SERVER)
        return dict(self._found)

    def wrote(self, document: Document) -> None:
        """This is what the server answered to a write."""
        self._found[_name(document)] = document
        self._untold.add(_name(document))

    def removed(self, name: str) -> None:
        self._found.pop(name, None)

    async def run(self) -> None:
        if self._api is None:
            self._look(kube.Unconfigured(kube.NO_SERVER))
            return
        watch = functools.partial(self._watch, self._api)
        await kube.for_ever(watch, self._refused, timing=self._timing)

    async def _refused(self, error: ApiServerError) -> None:
        """A permission is missing, or the server has no such kind."""
        self._look(error)

    async def _watch(self, api: kube.Api) -> None:
        async with api.follow(kube.RESOURCE_SLICES, fields=f"spec.nodeName={self._node}") as changes:
            async for change in changes:
                match change:
                    case kube.Listed(objects, version):
                        # Only what no watch told of yet: a server with another store counts from the beginning.
                        known = {name: self._found[name] for name in self._untold & self._found.keys()}
                        newer = {name: each for name, each in known.items() if kube.is_since(each["metadata"], version)}
                        self._found = {_name(each): each for each in objects} | newer
                        self._untold = set(newer)
                        self._listed = True
                        self._look(None)
                    case kube.Changed(found):
                        old = self._found.get(_name(found))
                        if old is None or not kube.is_since(old["metadata"], kube.version_of(found["metadata"])):
                            self._found[_name(found)] = found
                            self._untold.discard(_name(found))
                            self._look(None)
                    case kube.Removed(found):
                        self._found.pop(_name(found), None)
                        self._look(None)
                    case kube.Lost(error):
                        self._look(error)
                    case _:
                        self._look(None)

    def _look(self, trouble: ApiServerError | None) -> None:
        self.trouble = trouble
        self._looked.set()
        self._on_change()


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


_LIMIT = 16 * 2**20  # bytes of an answer: all is about one node, and in memory it is five times as much


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
    def outputs(self) -> tuple[Output, ...]:
        return (self._labels, self._features, self._status, self._events)

    @property
    def turns(self) -> Mapping[str, Callable[[], Awaitable[object]]]:
        """Steps to repeat, in tasks of their own.

        None has an output's name: what an output notes succeeds at every turn, which says nothing of what is written.
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
            "events": {"written": self._events.said, "dropped": self._events.dropped},
        }
