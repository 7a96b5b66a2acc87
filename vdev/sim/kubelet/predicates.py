"""Whether the node, as its status says, has enough for a pod: as the scheduler asks, and as the kubelet does at last.

The kubelet asks after Allocate, so a plugin may be asked for a pod that is rejected here. Pure; the texts are theirs.
"""

from collections.abc import Collection, Iterable, Mapping
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


def lacking(
    requested: Mapping[str, Decimal],
    others: Iterable[Mapping[str, Decimal]],
    *,
    free: Mapping[str, int],
    served: Collection[str],
) -> list[str]:
    """The extended resources of which too little is left beside other pods, but for those that somebody else serves."""
    left = {resource: Decimal(count) for resource, count in free.items()}
    for row in others:
        for resource, amount in row.items():
            left[resource] = left.get(resource, Decimal(0)) - amount
    wanted = {r: amount for r, amount in requested.items() if "/" in r and amount and r not in served}
    return sorted(resource for resource, amount in wanted.items() if amount > left.get(resource, Decimal(0)))


def unschedulable(short: Iterable[str]) -> str:
    """What the scheduler says of a pod for which the node has too little of these resources."""
    return f"0/1 nodes are available: {', '.join(f'1 Insufficient {resource}' for resource in short)}."


def _whole(amount: Decimal) -> int:
    return int(amount.to_integral_value())
