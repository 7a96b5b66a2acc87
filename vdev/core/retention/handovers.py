"""Who got a device and who gave it back, from successive readings of who holds what.

A holder is a pod, and what it holds is a device, not a slot: a pod with two replicas of one device holds it once, and a
shared device has several holders, each of whom comes and goes alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ..model.device import Key, base_id


class Owner(NamedTuple):
    """That a pod (`namespace/name`) holds a device of a resource."""

    resource: str
    device: str
    pod: str


@dataclass(frozen=True, slots=True)
class Handover:
    """A device that a pod got (`gained`) or gave back."""

    owner: Owner
    gained: bool


def handovers(
    before: Mapping[Key, str] | None, after: Mapping[Key, str], granted: Collection[Key] = ()
) -> tuple[Handover, ...]:
    """What changed hands between two readings, releases first; both map (resource, slot id) to a pod.

    `granted` are the slots of Allocates since the first reading. They tell of a pod that was replaced by one of the
    same name. With `before` None nothing is known of the time before this process: who holds a device already has had
    it for all we know, unless it was granted here.
    """
    if before is None:
        before = {key: pod for key, pod in after.items() if key not in granted}
    old, new = _owners(before), _owners(after)
    again = {_owner(key, after[key]) for key in granted if key in after and before.get(key) == after[key]}
    released = sorted(owner for owner in old if owner not in new or owner in again)
    gained = sorted(owner for owner in new if owner not in old or owner in again)
    return (*(Handover(each, gained=False) for each in released), *(Handover(each, gained=True) for each in gained))


def _owners(holders: Mapping[Key, str]) -> frozenset[Owner]:
    return frozenset(_owner(key, pod) for key, pod in holders.items())


def _owner(key: Key, pod: str) -> Owner:
    return Owner(key[0], base_id(key[1]), pod)
