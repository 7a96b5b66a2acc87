"""What a node is told of its devices while it is new: autoscalers see nodes that are Ready before their devices."""

from dataclasses import replace

from ..decide import NO_POOLS, Plan
from ..spec import AT_ONCE, Delays


def delayed(plan: Plan, delays: Delays, age: float | None) -> Plan:
    """The plan without what comes later on a node that has been Ready for `age` seconds; None: it is not Ready yet."""
    if delays == AT_ONCE:
        return plan
    return replace(
        plan,
        labels={} if is_early(delays.labels, age) else plan.labels,
        capacity={} if is_early(delays.devices, age) else plan.capacity,
        conditions=() if is_early(delays.devices, age) else plan.conditions,
        pools=NO_POOLS if is_early(delays.slices, age) else plan.pools,
    )


def next_age(delays: Delays, age: float | None) -> float | None:
    """The age at which more is told; None where nothing is left, or as long as the node is not Ready."""
    if age is None:
        return None
    return min((each for each in (delays.labels, delays.devices, delays.slices) if each > age), default=None)


def is_early(delay: float, age: float | None) -> bool:
    """Whether it is too early for something with this delay."""
    return delay > 0 and (age is None or age < delay)
