"""This agent's own Node, as the API server has it: watched for as long as somebody uses it, or read now and then.

One watch serves everybody. It needs the verbs list and watch on nodes (a role can name the one node); with get
alone the Node is read at a slow pace. Nothing is asked before somebody subscribes.
"""

import asyncio
import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from ... import kube
from ...aio.timing import Timing
from ...errors import ApiServerError

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
