"""The nodes without a kubelet whose devices a controller makes exist in the API server."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..faults.rules import NO_RULES, Faults
from .device import EMPTY
from .entry import DEFAULT_FLAGS, SAYS_NOTHING, EntrySpec, Flags, NodeSpec
from .names import NameRange
from .telemetry import Telemetry


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a Node."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """How long after a node is Ready each thing is told of it, in seconds."""

    labels: float = 0.0
    devices: float = 0.0
    slices: float = 0.0


AT_ONCE = Delays()


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeNodes:
    """Nodes to make. `capacity` has what is no device: cpu, memory, pods and more, as quantities.

    Values of labels and annotations may name the numbers of the name, see `name_range.filled`.
    """

    names: NameRange
    labels: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    annotations: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    taints: tuple[NodeTaint, ...] = ()
    capacity: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    delays: Delays = AT_ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenNodes:
    """Nodes that exist, by labels that they must have."""

    labels: Mapping[str, str]
    delays: Delays = AT_ONCE

    def includes(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is one of them."""
        return self.labels.items() <= labels.items()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """Which nodes. Of several that include a node the first counts.

    `reject_pods`: pods that a kubelet would refuse fail as there. `given`: a file says so, even if there are none.
    """

    made: tuple[MadeNodes, ...] = ()
    chosen: tuple[ChosenNodes, ...] = ()
    reject_pods: bool = False
    given: bool = True


NO_FLEET = FleetSpec(given=False)
"""No file says anything of nodes without a kubelet."""


class SharingKind(StrEnum):
    """NVIDIA's two kinds of sharing."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResource:
    """One item of `sharing.*.resources`.

    `devices` is None for all, a count (lowest indices first), or references: `"3"`, `"0:1"`, or ids. If the item is
    `for_nvidia`'s plugin, which shares every device whatever `devices` says, one that does not fit the node is ignored.
    """

    name: str
    replicas: int
    rename: str = ""
    devices: int | tuple[str, ...] | None = None
    for_nvidia: bool = False
    where: str = field(default="", compare=False)  # a moved line is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSpec:
    """The `timeSlicing` or `mps` block."""

    kind: SharingKind
    resources: tuple[SharedResource, ...]
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """One item of `resources.gpus` or `resources.mig`: a whole-string pattern where `*` is any run of characters.

    If the patterns are `for_nvidia`'s plugin, which ignores them, a device that matches none keeps its name.
    """

    pattern: str
    name: str
    for_nvidia: bool = False
    where: str = field(default="", compare=False)  # a moved line is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Everything the configuration says."""

    entries: tuple[EntrySpec, ...] = ()
    flags: Flags = DEFAULT_FLAGS
    sharing: SharingSpec | None = None
    gpu_patterns: tuple[NamePattern, ...] = ()
    mig_patterns: tuple[NamePattern, ...] = ()
    faults: Faults = NO_RULES
    node: NodeSpec = SAYS_NOTHING
    telemetry: Telemetry | None = None  # None: nothing is measured
    fleet: FleetSpec = NO_FLEET

    def on_node(self, node: str) -> tuple[EntrySpec, ...]:
        """The entries that concern that node."""
        return tuple(entry for entry in self.entries if entry.is_on(node))
