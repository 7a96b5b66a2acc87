"""The section `fleet`: nodes without a kubelet."""

from typing import Annotated

from pydantic import AfterValidator

from ...core.model.syntax import label_syntax
from ...core.model.syntax.name_range import NameRangeError, parse_names
from .scalars import AsWritten, Duration, Flag, Word, matching, not_empty, without_problem
from .section import Section, refuse


def _names(value: str) -> str:
    try:
        parse_names(value)
    except NameRangeError as wrong:
        refuse(str(wrong), "such as gpu-{0..99}, or rack{01..20}-gpu{0..7}")
    return value


NodeNames = Annotated[Word, AfterValidator(_names)]
"""A name, or many by ranges of numbers."""

LabelKey = Annotated[Word, without_problem(label_syntax.plain_key_problem)]
"""The key of a label, an annotation or a taint; also of those that belong to Kubernetes."""

LabelValue = Annotated[AsWritten, without_problem(label_syntax.value_problem)]

_EFFECTS = matching("NoSchedule|PreferNoSchedule|NoExecute", "NoSchedule, PreferNoSchedule or NoExecute")
_QUANTITY = matching(r"[0-9]{1,100}(\.[0-9]{1,100})?([mkMGTPE]|[KMGTPE]i)?", "a quantity such as 96, 500m or 1Ti")


class NodeTaint(Section):
    """A taint of the nodes."""

    key: LabelKey
    """Key of the taint."""
    value: LabelValue = ""
    """Value of the taint."""
    effect: Annotated[Word, _EFFECTS]
    """What it does to pods that do not tolerate it."""


class FleetNodes(Section):
    """Nodes that vdev makes, by name; or nodes that exist, by selector."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["name"]}, {"required": ["selector"]}]}}

    name: NodeNames | None = None
    """Name of the nodes to make; {0..99} stands for numbers, and {000..099} for numbers of three digits."""
    selector: Annotated[dict[LabelKey, LabelValue], not_empty("the selector is empty", "name a label")] | None = None
    """Labels that existing nodes must have."""
    labels: dict[LabelKey, AsWritten] = {}
    """Labels of the nodes to make. {1} in a value is the number of the name's first range, {2} that of the second, and
    {name} the name."""
    annotations: dict[LabelKey, AsWritten] | None = None
    """Annotations of the nodes to make. Default: kwok.x-k8s.io/node: fake, by which KWOK knows its nodes."""
    taints: list[NodeTaint] = []
    """Taints of the nodes to make."""
    capacity: dict[LabelKey, Annotated[AsWritten, _QUANTITY]] = {}
    """What the nodes to make have beside devices: cpu, memory, pods, ephemeral-storage. Default: what KWOK gives."""
    labels_after: Duration = 0.0
    """How long after a node is Ready its labels come."""
    devices_after: Duration = 0.0
    """How long after a node is Ready its devices come: capacity and allocatable, conditions, and slices."""
    slices_after: Duration | None = None
    """How long after a node is Ready its ResourceSlices come. Default: devicesAfter."""


class Fleet(Section):
    """Nodes without a kubelet, whose devices `vdev fleet` makes exist in the API server; `vdev run` ignores it."""

    nodes: list[FleetNodes]
    """Which nodes; of several items that mean a node the first counts. []: none, and those that there were go."""
    reject_pods: Flag = False
    """Whether pods that a kubelet would refuse, because two schedulers gave the same devices away, fail as there."""
