"""The ResourceSlices of this agent's node, as the API server has them: those of all drivers, watched.

What was written from here counts at once, so that a watch that lags behind brings no second slice for the same devices.
"""

import asyncio
import functools
from collections.abc import Callable, Mapping
from typing import Any

from ... import kube
from ...aio.timing import Timing
from ...errors import ApiServerError

Document = Mapping[str, Any]


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
