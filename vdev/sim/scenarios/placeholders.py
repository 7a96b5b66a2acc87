"""Names that a scenario leaves open: `{resource}` and `{driver}` stand for whatever the plugin has registered."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..objects.node_devices import Capacity

RESOURCE: Final = "{resource}"
DRIVER: Final = "{driver}"
ALL: Final = "all"


def used(document: Any) -> set[str]:
    """The placeholders among the keys of a document, at any depth."""
    if isinstance(document, Mapping):
        found = {key for key in document if key in (RESOURCE, DRIVER)}
        return found.union(*map(used, document.values()))
    return set().union(*map(used, document)) if isinstance(document, list) else set()


def spread(document: Any, names: Mapping[str, Sequence[str]]) -> Any:
    """The document with each key that is a placeholder repeated for every name that it stands for."""
    if isinstance(document, Mapping):
        return {name: spread(value, names) for key, value in document.items() for name in names.get(str(key), (key,))}
    return [spread(each, names) for each in document] if isinstance(document, list) else document


def counted(manifest: Mapping[str, Any], node: Capacity) -> Mapping[str, Any]:
    """The Pod manifest with limits of `all` replaced by what the node shows as allocatable."""
    filled = copy.deepcopy(dict(manifest))
    spec = filled["spec"]
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        for limits in (container.get("resources") or {}).values():
            for resource, amount in limits.items() if isinstance(limits, dict) else ():
                if amount == ALL:
                    limits[resource] = node.allocatable.get(resource, 0)
    return filled
