"""The section `fleet`: nodes without a kubelet."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from ..model import names, template
from ..model.entry import TrueWhen
from ..model.names import NameRangeError, parse_names
from ..model.scalars import (
    AsWritten,
    ConditionType,
    Duration,
    Flag,
    Plain,
    Section,
    TemplateText,
    Text,
    Word,
    choice,
    described,
    matching,
    not_empty,
    refuse,
    without_problem,
)


def _names(value: str) -> str:
    try:
        parse_names(value)
    except NameRangeError as wrong:
        refuse(str(wrong), "such as gpu-{0..99}, or rack{01..20}-gpu{0..7}")
    return value


NodeNames = Annotated[Word, AfterValidator(_names)]
"""A name, or many by ranges of numbers."""

FleetLabelKey = Annotated[Word, without_problem(names.plain_key_problem)]
"""The key of a label, an annotation or a taint; also of those that belong to Kubernetes."""

FleetLabelValue = Annotated[AsWritten, without_problem(names.value_problem)]

_EFFECTS = matching("NoSchedule|PreferNoSchedule|NoExecute", "NoSchedule, PreferNoSchedule or NoExecute")
_QUANTITY = matching(r"[0-9]{1,100}(\.[0-9]{1,100})?([mkMGTPE]|[KMGTPE]i)?", "a quantity such as 96, 500m or 1Ti")


class NodeTaint(Section):
    """A taint of the nodes."""

    key: FleetLabelKey
    """Key of the taint."""
    value: FleetLabelValue = ""
    """Value of the taint."""
    effect: Annotated[Word, _EFFECTS]
    """What it does to pods that do not tolerate it."""


class FleetNodes(Section):
    """Nodes that vdev makes, by name; or nodes that exist, by selector."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": ["name"]}, {"required": ["selector"]}]}}

    name: NodeNames | None = None
    """Name of the nodes to make; {0..99} stands for numbers, and {000..099} for numbers of three digits."""
    selector: (
        Annotated[dict[FleetLabelKey, FleetLabelValue], not_empty("the selector is empty", "name a label")] | None
    ) = None
    """Labels that existing nodes must have."""
    labels: dict[FleetLabelKey, AsWritten] = {}
    """Labels of the nodes to make. {1} in a value is the number of the name's first range, {2} that of the second, and
    {name} the name."""
    annotations: dict[FleetLabelKey, AsWritten] | None = None
    """Annotations of the nodes to make. Default: kwok.x-k8s.io/node: fake, by which KWOK knows its nodes."""
    taints: list[NodeTaint] = []
    """Taints of the nodes to make."""
    capacity: dict[FleetLabelKey, Annotated[AsWritten, _QUANTITY]] = {}
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


NFD = "nfd"


def _labels(value: object) -> object:
    if isinstance(value, bool) or (type(value) is str and value == NFD):
        return value
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    hint = "take the quotes off" if isinstance(value, str) and value.lower() in ("true", "false") else ""
    return refuse(f"expected true, false or {NFD}, got {described(value)}", hint)


Labels = Annotated[
    bool | Literal["nfd"],
    BeforeValidator(_labels),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"const": NFD}]}),
]
"""Whether and how labels are written."""


class Node(Section):
    """What the plugin says about its node beside the device plugin API. Each needs permissions of its own."""

    labels: Labels = False
    """Whether the node gets the labels that the makers' own labellers write, and those of the entries. true: on the
    Node object; nfd: through a file for Node Feature Discovery, which needs no access to the API server."""
    events: Flag = False
    """Whether what happens to devices becomes Events of the Node."""
    conditions: Flag = False
    """Whether the conditions of the entries are written into the Node's status."""
    status: Flag = False
    """Whether extended resources are written into the Node's status, for a node on which no device plugin is to run."""


def _literals_problem(value: str) -> str:
    return names.literals_problem(template.parse(value).literals)


LabelKey = Annotated[Word, without_problem(names.key_problem)]
"""The key of a label, as Kubernetes takes it."""

LabelValue = Annotated[TemplateText, without_problem(_literals_problem)]
"""The value of a label, with placeholders."""


class Condition(Section):
    """A condition of the Node that follows the health of the entry's devices."""

    type: ConditionType
    """Type of the condition, such as GpuHealthy."""
    true_when: Annotated[TrueWhen, choice(TrueWhen)] = TrueWhen.HEALTHY
    """When the condition is True: while all devices are healthy, or while one is unhealthy."""
    reason: Annotated[Word, without_problem(names.condition_reason_problem)] | None = None
    """Reason to give while a device is unhealthy, one word such as GpuLost. Default: made from the device's own."""
    message: Text | None = None
    """Message to give while a device is unhealthy. Default: which devices, and why."""
