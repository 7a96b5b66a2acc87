"""The section `fleet`: nodes without a kubelet. A controller writes their devices to the API server."""

import functools
import itertools
import re
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator

from . import names
from .scalars import AsWritten, Constraint, Duration, Flag, Word, matching, not_empty
from .section import Section, refuse

_KWOK = {"kwok.x-k8s.io/node": "fake"}


MAX_NODES = 20_000
"""Maximum number of nodes from a file. More is a typo; a cluster has at most 5 000 (kubernetes.io, large clusters)."""

_RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}")
PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


class NodeName(NamedTuple):
    """A node's name, and the number from each range in it."""

    name: str
    numbers: tuple[str, ...]

    @property
    def values(self) -> dict[str, str]:
        """The values of placeholders: {name}, and {1} for the number of the first range."""
        return {"name": self.name} | {str(place): number for place, number in enumerate(self.numbers, 1)}


@functools.lru_cache(maxsize=64)
def node_names(source: str) -> tuple[NodeName, ...]:
    """Expand the ranges in a name such as gpu-{0..99}. Refuses other braces."""
    hint = "such as gpu-{0..99}, or rack{01..20}-gpu{0..7}"
    pieces = _RANGE.split(source)
    literals = pieces[::3]
    if any("{" in each or "}" in each for each in literals):
        refuse(f"{source!r} has braces without a range; write a range as in gpu-{{0..99}}", hint)
    written = []
    total = 1
    for first, last in zip(pieces[1::3], pieces[2::3], strict=True):
        numbers = range(int(first), int(last) + 1)
        if not numbers:
            refuse(f"the range {{{first}..{last}}} ends before it begins", hint)
        total *= len(numbers)
        if total > MAX_NODES:
            refuse(f"{source} makes {total} nodes; a file makes {MAX_NODES} at most", "is the range mistyped?")
        written.append([str(each).zfill(len(first) if first.startswith("0") else 1) for each in numbers])
    names = []
    for numbers_of_one in itertools.product(*written):
        pairs = zip(literals, (*numbers_of_one, ""), strict=True)
        names.append(NodeName("".join(itertools.chain.from_iterable(pairs)), numbers_of_one))
    return tuple(names)


def filled(text: str, values: Mapping[str, str]) -> str:
    """Replace the placeholders in the value of a label or annotation."""
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def _names(value: str) -> str:
    node_names(value)
    return value


NodeNames = Annotated[Word, AfterValidator(_names)]
"""A name, or a name with ranges of numbers for many nodes."""

FleetLabelKey = Annotated[Word, Constraint(names.qualified_name_problem)]
"""The key of a label, an annotation or a taint, including those that belong to Kubernetes."""

FleetLabelValue = Annotated[AsWritten, Constraint(names.value_problem)]

_QUANTITY = matching(r"[0-9]{1,100}(\.[0-9]{1,100})?([mkMGTPE]|[KMGTPE]i)?", "a quantity such as 96, 500m or 1Ti")


class NodeTaint(Section):
    """A taint of the nodes that affects pods without a matching toleration."""

    key: FleetLabelKey
    """Key that a pod's toleration must match."""
    value: FleetLabelValue = ""
    """Value that a toleration with operator Equal must match."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    """Effect on pods that do not tolerate it."""


class FleetNodes(Section):
    """Nodes that vdev creates (name), or existing nodes (selector)."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["name"]}, {"required": ["selector"]}]}}

    name: NodeNames | None = None
    """Name of the nodes to create. {0..99} expands to numbers, and {000..099} to numbers with three digits."""
    selector: (
        Annotated[dict[FleetLabelKey, FleetLabelValue], not_empty("the selector is empty", "name a label")] | None
    ) = None
    """Labels that existing nodes must have."""
    labels: dict[FleetLabelKey, AsWritten] = {}
    """Labels of the nodes to create. In a value, {1} is the number from the name's first range, {2} from the second,
    and {name} is the name."""
    annotations: dict[FleetLabelKey, AsWritten] | None = None
    """Annotations of the nodes to create. Default: kwok.x-k8s.io/node: fake, which marks nodes for KWOK."""
    taints: tuple[NodeTaint, ...] = ()
    """Taints of the nodes to create."""
    capacity: dict[FleetLabelKey, Annotated[AsWritten, _QUANTITY]] = {}
    """Other capacity of the nodes to create: cpu, memory, pods, ephemeral-storage. Default: KWOK's."""
    labels_after: Duration = 0.0
    """Time after a node is Ready until its labels appear."""
    devices_after: Duration = 0.0
    """Time after a node is Ready until its devices appear: capacity and allocatable, conditions, and slices."""
    slices_after: Duration | None = None
    """Time after a node is Ready until its ResourceSlices appear. Default: devicesAfter."""

    @property
    def names(self) -> tuple[NodeName, ...]:
        return node_names(self.name) if self.name else ()

    @property
    def noted(self) -> Mapping[str, str]:
        """The annotations of the nodes to create."""
        return _KWOK if self.annotations is None else self.annotations

    def includes(self, labels: Mapping[str, str]) -> bool:
        """Whether the selector matches an existing node with these labels."""
        return self.selector is not None and self.selector.items() <= labels.items()


class Fleet(Section):
    """Nodes without a kubelet, whose devices `vdev fleet` writes to the API server. `vdev run` ignores this section."""

    nodes: tuple[FleetNodes, ...]
    """The nodes. If several items match a node, the first one applies. []: no nodes; existing ones are removed."""
    reject_pods: Flag = False
    """Whether pods fail as on a kubelet if two schedulers give them the same devices."""

    @property
    def made(self) -> tuple[FleetNodes, ...]:
        return tuple(each for each in self.nodes if each.name)


NO_FLEET = Fleet(nodes=())
