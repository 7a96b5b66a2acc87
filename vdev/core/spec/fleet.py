"""The nodes without a kubelet whose devices a controller makes exist in the API server."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..model.device import EMPTY
from ..model.syntax.name_range import NameRange


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
