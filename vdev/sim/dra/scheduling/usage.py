"""What is taken of devices: by claims that are allocated, and by those that an attempt is about to allocate. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from ...objects.pod_manifest import quantity
from .pools import Counter, DeviceId, Document, Offer, Pool, consumption


@dataclass(slots=True)
class InUse:
    """What is allocated: whole devices, capacity of shared ones, and of which there are shares, however small."""

    devices: set[DeviceId] = field(default_factory=set)
    shared: set[DeviceId] = field(default_factory=set)
    capacity: dict[tuple[DeviceId, str], Decimal] = field(default_factory=dict)

    def has(self, offer: Offer) -> bool:
        """Whether somebody has the device, or a share of it."""
        return offer.id in self.devices or offer.id in self.shared


def in_use(claims: Iterable[Document]) -> InUse:
    """What the allocations of claims take."""
    used = InUse()
    for claim in claims:
        devices = ((claim.get("status") or {}).get("allocation") or {}).get("devices") or {}
        for result in devices.get("results") or []:
            id_ = result["driver"], result["pool"], result["device"]
            if result.get("adminAccess"):
                continue
            if not result.get("shareID"):
                used.devices.add(id_)
                continue
            used.shared.add(id_)
            for name, value in (result.get("consumedCapacity") or {}).items():
                used.capacity[id_, name] = used.capacity.get((id_, name), Decimal(0)) + quantity(value, name)
    return used


class Counters:
    """The counters of pools during one attempt, as Kubernetes 1.36 counts them.

    It knows pools by their name alone, whichever driver's they are: of two with one name the first that is asked for
    stands for both.
    """

    def __init__(self, used: InUse) -> None:
        self._used = used
        self._available: dict[str, dict[Counter, Decimal]] = {}
        self._consumed: dict[str, dict[Counter, Decimal]] = {}

    def consume(self, pool: Pool, offer: Offer) -> bool:
        """Take what the device consumes, if there is enough."""
        if pool.name not in self._available:
            self._available[pool.name] = self._left(pool)
        self._add(offer, 1)
        consumed = self._consumed[pool.name]
        if all(left >= consumed.get(which, 0) for which, left in self._available[pool.name].items()):
            return True
        self._add(offer, -1)
        return False

    def give_back(self, offer: Offer) -> None:
        """The device is not taken after all."""
        self._add(offer, -1)

    def _left(self, pool: Pool) -> dict[Counter, Decimal]:
        left = dict(pool.counters)
        for offer in filter(self._used.has, pool.everywhere):
            for which, amount in consumption(offer.document).items():
                if which in left:
                    left[which] -= amount
        return left

    def _add(self, offer: Offer, sign: int) -> None:
        consumed = self._consumed.setdefault(offer.pool, {})
        for which, amount in consumption(offer.document).items():
            consumed[which] = consumed.get(which, Decimal(0)) + sign * amount
