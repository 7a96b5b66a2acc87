"""What the pods of this node say of the load that they are, by annotations: followed at the API server.

A text that says no load is a problem, and the pattern of the devices stays.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from ..aio.clock import Timing
from ..errors import ApiServerError
from ..kube import NO_SERVER, PODS, Api, Changed, Listed, Lost, Removed, Unconfigured, for_ever
from ..model.problem import Problem, warning
from ..model.telemetry import Range
from .simulation import ANNOTATIONS, WishError, wish

_MOST_SHOWN = 40  # characters of an annotation
_MOST_PROBLEMS = 10
_NO_WISHES: Mapping[str, Range] = {}


class PodWishes:
    """The load that each pod of the node of this name asks for, by `namespace/name`; `on_change` is called when that
    is another one. `api` None: there is no API server.
    """

    def __init__(self, node: str, api: Api | None, *, on_change: Callable[[], None], timing: Timing) -> None:
        self.wishes: Mapping[str, Range] = _NO_WISHES
        self._wrong: Mapping[str, Problem] = {}
        self._trouble: ApiServerError | None = None
        self._node = node
        self._api = api
        self._on_change = on_change
        self._timing = timing

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [*self._wrong.values()][:_MOST_PROBLEMS]
        if self._trouble is not None:
            message = f"the annotations of pods are not known, so devices keep their patterns: {self._trouble}"
            hint = "let vdev list and watch pods, or set telemetry.podAnnotations to false"
            found.append(warning("telemetry.podAnnotations", message, hint))
        return tuple(found)

    async def run(self) -> None:
        if self._api is None:
            self._troubled(Unconfigured(NO_SERVER))
            return
        await for_ever(functools.partial(self._watch, self._api), self._refused, timing=self._timing)

    async def _refused(self, error: ApiServerError) -> None:
        """A permission is missing."""
        self._troubled(error)

    async def _watch(self, api: Api) -> None:
        async with api.follow(PODS, fields=f"spec.nodeName={self._node}") as changes:
            async for change in changes:
                match change:
                    case Listed(objects):
                        self._take({}, objects)
                    case Changed(found):
                        self._take(self._known, [found])
                    case Removed(found):
                        self._take({name: each for name, each in self._known.items() if name != name_of(found)}, [])
                    case Lost(error):
                        self._troubled(error)
                    case _:
                        self._troubled(None)

    @property
    def _known(self) -> dict[str, Range | Problem]:
        return {**self.wishes, **self._wrong}

    def _take(self, known: Mapping[str, Range | Problem], objects: Any) -> None:
        """Keep what is known, and what these objects say."""
        found = {**known}
        for each in objects:
            said = said_by(each)
            found.pop(name_of(each), None)
            if said is not None:
                found[name_of(each)] = said
        before = self.wishes, self._wrong, self._trouble
        self.wishes = {name: each for name, each in found.items() if isinstance(each, Range)}
        self._wrong = {name: each for name, each in found.items() if isinstance(each, Problem)}
        self._trouble = None
        if (self.wishes, self._wrong, None) != before:
            self._on_change()

    def _troubled(self, trouble: ApiServerError | None) -> None:
        before, self._trouble = self._trouble, trouble
        if str(before) != str(trouble):
            self._on_change()


def name_of(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace') or 'default'}/{metadata['name']}"


def said_by(document: Mapping[str, Any]) -> Range | Problem | None:
    """The load that a pod says it is, or what is wrong with its text; None where it says nothing."""
    annotations = document["metadata"].get("annotations") or {}
    for name in ANNOTATIONS:
        text = annotations.get(name)
        if text is not None:
            try:
                return wish(str(text))
            except WishError as wrong:
                shown = str(text)[:_MOST_SHOWN] + "…" * (len(str(text)) > _MOST_SHOWN)
                message = f"its annotation {name} is {shown!r}: {wrong}; the pattern of its devices stays"
                return warning(f"pod {name_of(document)}", message, "write percent, such as 75 or 60-90")
    return None
