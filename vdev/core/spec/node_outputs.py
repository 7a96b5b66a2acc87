"""What the node says about itself through the API server."""

from dataclasses import dataclass
from enum import StrEnum


class LabelOutput(StrEnum):
    """Where the node's labels go: nowhere, to the Node object, or to a file for Node Feature Discovery."""

    OFF = "off"
    NODE = "node"
    NFD = "nfd"


class TrueWhen(StrEnum):
    """When a condition is True: while all devices of its entry are healthy, or while one of them is not."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionSpec:
    """A condition of the Node that follows the health of an entry's devices.

    `reason` and `message` are for when a device is unhealthy; "" = made from what is wrong with it.
    """

    type: str
    true_when: TrueWhen = TrueWhen.HEALTHY
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What the plugin says about its node beside the device plugin API; nothing, unless it is asked for.

    `timestamp`: NVIDIA's labels tell when they were first made.
    """

    labels: LabelOutput = LabelOutput.OFF
    timestamp: bool = True
    events: bool = False
    conditions: bool = False
    status: bool = False


SAYS_NOTHING = NodeSpec()
