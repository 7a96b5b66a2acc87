"""The kubelet's last check of a pod: whether the node, as its status says, has enough of every resource.

It runs after Allocate, so a plugin may be asked for a pod that is rejected here. Pure; the texts are the kubelet's.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

_NATIVE = ("pods", "cpu", "memory")


def shortage(
    requested: Mapping[str, Decimal],
    others: Iterable[Mapping[str, Decimal]],
    *,
    allocatable: Mapping[str, Decimal],
    held: Mapping[str, int],
) -> tuple[str, str] | None:
    """Reason and message of the first resource that is short, or None.

    `held` counts allocated devices: the kubelet raises allocatable to at least that, so that a pod that has its devices
    passes with its plugin gone. A resource that the node does not show at all is not checked.
    """
    rows = list(others)
    pods = {"pods": Decimal(1)}
    for resource in (*_NATIVE, *sorted(requested.keys() - set(_NATIVE))):
        wanted = {**requested, **pods}.get(resource, Decimal(0))
        if resource not in allocatable or not wanted:
            continue
        capacity = max(allocatable[resource], Decimal(held.get(resource, 0)))
        used = sum(({**row, **pods}.get(resource, Decimal(0)) for row in rows), Decimal(0))
        if wanted + used > capacity:
            scale = 1000 if resource == "cpu" else 1
            text = (
                f"Node didn't have enough resource: {resource}, requested: {_whole(wanted * scale)}, "
                f"used: {_whole(used * scale)}, capacity: {_whole(capacity * scale)}"
            )
            return f"OutOf{resource}", text
    return None


def _whole(amount: Decimal) -> int:
    return int(amount.to_integral_value())
