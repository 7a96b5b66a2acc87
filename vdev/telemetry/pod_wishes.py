"""What the pods of this node say of the load that they are, by annotations: followed at the API server.

A text that says no load is a problem, and the pattern of the devices stays.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..kube import PODS, Api, Informer, key_of
from ..model.problem import Problem, warning
from ..model.telemetry import Range
from .simulation import ANNOTATIONS, wish

_MOST_SHOWN = 40  # characters of an annotation
_MOST_PROBLEMS = 10


class PodWishes:
    """The load that each pod of the node of this name asks for, by `namespace/name`; `on_change` is called when that
    is another one. `api` None: there is no API server.
    """

    def __init__(self, node: str, api: Api | None, *, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._pods: Informer[Range | Problem] = Informer(
            api, PODS, fields=f"spec.nodeName={node}", keep=said_by, on_change=self._see, on_look=on_change
        )

    async def run(self) -> None:
        await self._pods.run()

    @property
    def wishes(self) -> Mapping[str, Range]:
        return {name: each for name, each in self._pods.objects.items() if isinstance(each, Range)}

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [each for each in self._pods.objects.values() if isinstance(each, Problem)][:_MOST_PROBLEMS]
        if self._pods.trouble is not None:
            message = f"the annotations of pods are not known, so devices keep their patterns: {self._pods.trouble}"
            hint = "let vdev list and watch pods, or set telemetry.podAnnotations to false"
            found.append(warning("telemetry.podAnnotations", message, hint))
        return tuple(found)

    def _see(self, old: Range | Problem | None, new: Range | Problem | None) -> None:
        if old != new:
            self._on_change()


def said_by(document: Mapping[str, Any]) -> Range | Problem | None:
    """The load that a pod says it is, or what is wrong with its text; None where it says nothing."""
    annotations = document["metadata"].get("annotations") or {}
    for name in ANNOTATIONS:
        text = annotations.get(name)
        if text is not None:
            try:
                return wish(str(text))
            except ValueError as wrong:
                shown = str(text)[:_MOST_SHOWN] + "…" * (len(str(text)) > _MOST_SHOWN)
                message = f"its annotation {name} is {shown!r}: {wrong}; the pattern of its devices stays"
                return warning(f"pod {key_of(document)}", message, "write percent, such as 75 or 60-90")
    return None
