"""What plugins report about devices, and what the node shows of resources. Frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"


@dataclass(frozen=True, slots=True)
class Device:
    """One entry of a device list. Any health other than `Healthy` means unhealthy."""

    id: str
    health: str
    numa: tuple[int, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether the kubelet would allocate it."""
        return self.health == HEALTHY


@dataclass(frozen=True, slots=True)
class Capacity:
    """What goes to the node status: counts per resource, and the resources dropped since the last time."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: frozenset[str] = frozenset()
