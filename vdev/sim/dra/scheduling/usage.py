"""What is taken of devices: by claims that are allocated, and by those that an attempt is about to allocate. Pure.

Of a shared one a request takes as much as it asks for, rounded by the device's request policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal

from ...objects.amounts import canonical
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


def consumed(capacities: Mapping[str, Document], request: Document) -> dict[str, str] | None:
    """What is taken of each capacity of a device, as Kubernetes writes it; None if the request does not fit a policy.

    A capacity that is not requested is taken by its default, without a policy as a whole. Requests name it as the
    device does.
    """
    requested: Mapping[str, str] = (request.get("capacity") or {}).get("requests") or {}
    if not requested.keys() <= capacities.keys():
        return None
    taken = {}
    for name, capacity in capacities.items():
        amount = _rounded(capacity, requested.get(name))
        if amount is None or quantity(amount, name) > quantity(capacity["value"], name):
            return None
        taken[name] = amount
    return taken


def _rounded(capacity: Document, wanted: str | None) -> str | None:
    policy = capacity.get("requestPolicy") or {}
    if wanted is None:
        return _written(policy["default"] if "default" in policy else capacity["value"])
    amount = quantity(wanted, "capacity")
    if values := policy.get("validValues"):
        return next((_written(value) for value in values if quantity(value, "validValues") >= amount), None)
    if span := policy.get("validRange"):
        return _in_range(span, wanted, amount)
    return _written(wanted)


def _in_range(span: Document, wanted: str, amount: Decimal) -> str | None:
    least = quantity(span["min"], "min")
    if amount < least:
        wanted, amount = span["min"], least
    elif "step" in span:
        step = quantity(span["step"], "step")
        amount = least + ((amount - least) / step).to_integral_value(ROUND_CEILING) * step
        wanted = f"{amount / 1024:f}Ki"  # with a binary suffix, whatever it was asked for with
    return None if "max" in span and amount > quantity(span["max"], "max") else _written(wanted)


def _written(amount: str) -> str:
    return str(canonical(amount))
