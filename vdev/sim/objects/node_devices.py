"""Devices as plugins list them, and resources as the node status shows them."""

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
    """The number of devices by resource."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: frozenset[str] = frozenset()  # resources whose plugin's grace period is over
