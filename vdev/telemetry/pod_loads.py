"""The loads that the pods of a node ask for by annotations, followed at the API server.

An annotation that cannot be parsed is a problem, and the pattern of the pod's devices stays.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..kube import PODS, Api, Informer, key_of
from ..model.problem import Problem, warning
from ..model.telemetry import Range
from .simulation import parse_load

_ANNOTATIONS = ("vdev.dev/load", "run.ai/simulated-gpu-utilization")  # the first one that a pod has counts
_MOST_SHOWN = 40  # characters of an annotation
_MOST_PROBLEMS = 10


class PodLoads:
    """The loads of the pods on one node. `on_change` is called when loads or problems change.

    `api` is None if no API server is configured.
    """

    def __init__(self, node: str, api: Api | None, *, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._pods: Informer[Range | Problem] = Informer(
            api, PODS, fields=f"spec.nodeName={node}", keep=annotated_load, on_change=self._changed, on_look=on_change
        )

    async def run(self) -> None:
        await self._pods.run()

    @property
    def by_pod(self) -> Mapping[str, Range]:
        """The loads by `namespace/name`."""
        return {name: each for name, each in self._pods.objects.items() if isinstance(each, Range)}

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [each for each in self._pods.objects.values() if isinstance(each, Problem)][:_MOST_PROBLEMS]
        if self._pods.trouble is not None:
            message = f"the annotations of pods are not known, so devices keep their patterns: {self._pods.trouble}"
            hint = "let vdev list and watch pods, or set telemetry.podAnnotations to false"
            found.append(warning("telemetry.podAnnotations", message, hint))
        return tuple(found)

    def _changed(self, old: Range | Problem | None, new: Range | Problem | None) -> None:
        if old != new:
            self._on_change()


def annotated_load(pod: Mapping[str, Any]) -> Range | Problem | None:
    """The load in a pod's annotation, or the problem with it; None without an annotation."""
    annotations = pod["metadata"].get("annotations") or {}
    for name in _ANNOTATIONS:
        text = annotations.get(name)
        if text is not None:
            try:
                return parse_load(str(text))
            except ValueError as wrong:
                shown = str(text)[:_MOST_SHOWN] + "…" * (len(str(text)) > _MOST_SHOWN)
                message = f"its annotation {name} is {shown!r}: {wrong}; the pattern of its devices stays"
                return warning(f"pod {key_of(pod)}", message, "write percent, such as 75 or 60-90")
    return None
