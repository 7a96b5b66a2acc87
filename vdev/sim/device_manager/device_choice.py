"""Chooses the devices of a container, in the kubelet's order.

First come reusable devices of init containers, then devices on the requested NUMA nodes, then those that the plugin
prefers. The rest is random, because it depends on the order of a Go map in the real kubelet.
"""

import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass

from .device_table import DeviceTable

Prefer = Callable[[set[str], set[str]], Awaitable[set[str]]]


class AdmissionError(Exception):
    """The device manager rejects a container. The text is the kubelet's, without the prefix of the pod status."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container's request for one resource."""

    pod: str  # its UID
    container: str
    resource: str
    count: int
    affinity: frozenset[int] | None = None  # the NUMA nodes to align with; None for any


async def select(
    table: DeviceTable, request: ContainerRequest, *, reusable: Iterable[str], rng: random.Random, prefer: Prefer
) -> set[str]:
    """Choose devices and mark them as allocated; returns none if the container needs none. Raises AdmissionError.

    `prefer` calls the plugin with the available ids and the ids that it must include, and returns the preferred ids.
    """
    resource = request.resource
    needed = _needed(table, request)
    taken: set[str] = set()

    def take(ids: Collection[str]) -> bool:
        """Take random ids until there are enough; returns whether there are."""
        for id_ in rng.sample(sorted(ids), len(ids)):
            if len(taken) == needed:
                break
            if id_ not in taken:
                table.mark_allocated(resource, id_)
                taken.add(id_)
        return len(taken) == needed

    if needed == 0 or take(set(reusable)):
        return taken
    available = table.healthy[resource] - table.allocated.get(resource, set())
    missing = needed - len(taken)
    if len(available) < missing:
        raise AdmissionError(
            f"requested number of devices unavailable for {resource}. Requested: {missing}, Available: {len(available)}"
        )
    aligned, unaligned, anywhere = _by_affinity(table, request, available)
    if missing < len(aligned):
        enough = take(await prefer(aligned | taken, taken) & aligned) or take(aligned)
    else:
        enough = (
            take(aligned)
            or take(await prefer(available | taken, taken) & available)
            or take(unaligned)
            or take(anywhere)
        )
    if not enough:
        raise AdmissionError(
            f"unexpectedly allocated less resources than required. Requested: {request.count}, Got: {len(taken)}"
        )
    return taken


def _needed(table: DeviceTable, request: ContainerRequest) -> int:
    """How many devices the container still needs. As in the kubelet, it can be rejected even if it needs none."""
    resource = request.resource
    before = table.held(request.pod, request.container, resource)
    check_unchanged(request, before)
    if resource not in table.healthy:
        raise AdmissionError(f"cannot allocate unregistered device {resource}")
    if not table.healthy[resource]:
        raise AdmissionError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
    if not table.healthy[resource].issuperset(before or ()):
        raise AdmissionError(
            f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        )
    return request.count - len(before or ())


def check_unchanged(request: ContainerRequest, before: frozenset[str] | None) -> None:
    """Raise AdmissionError if the container held another number of devices `before`."""
    if before is not None and len(before) != request.count:
        raise AdmissionError(
            f'pod "{request.pod}" container "{request.container}" changed request for resource "{request.resource}" '
            f"from {len(before)} to {request.count}"
        )


def _by_affinity(
    table: DeviceTable, request: ContainerRequest, available: set[str]
) -> tuple[set[str], set[str], set[str]]:
    """Split devices into those on the requested NUMA nodes, on other nodes, and on none.

    Without affinity, all count as on none.
    """
    if request.affinity is None or not table.has_topology(request.resource):
        return set(), set(), set(available)
    listed = table.devices[request.resource]
    aligned = {id_ for id_ in available if request.affinity.intersection(listed[id_].numa)}
    anywhere = {id_ for id_ in available if not listed[id_].numa}
    return aligned, available - aligned - anywhere, anywhere
