"""Pools of devices as the allocator sees them, and what is taken of their devices. Pure.

A pool is made of the slices of its newest generation. Of a shared device a request takes as much as it asks for,
rounded by the device's request policy.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, TypeAlias

from ..objects.amounts import canonical
from ..objects.pod_manifest import quantity
from . import slice_lint

Document: TypeAlias = Mapping[str, Any]
DeviceId: TypeAlias = tuple[str, str, str]  # driver, pool, device
Counter: TypeAlias = tuple[str, str]  # counter set and counter


@dataclass(frozen=True, slots=True)
class Offer:
    """One device of a pool. `document` is its entry in the slice, `place` what says on which nodes it is."""

    driver: str
    pool: str
    name: str
    document: Document
    place: Document

    @property
    def id(self) -> DeviceId:
        """Driver, pool and device name."""
        return self.driver, self.pool, self.name

    @property
    def shared(self) -> bool:
        """Whether it can be in several claims."""
        return bool(self.document.get("allowMultipleAllocations"))

    def attribute(self, name: str) -> Any:
        """The value of an attribute by its full name (`domain/name`), with its type; None if there is none."""
        attributes = self.document.get("attributes") or {}
        domain, _, bare = name.rpartition("/")
        found = attributes.get(name) or (attributes.get(bare) if domain == self.driver else None)
        return None if found is None else next(iter(found.items()))

    @property
    def capacity(self) -> Mapping[str, Document]:
        """Capacities by name."""
        return self.document.get("capacity") or {}


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


@dataclass(slots=True)
class Pool:
    """One pool at its newest generation. `problem` says why nothing is allocated from it, empty if all is well.

    `offers` are the devices that the node can have, `everywhere` those of all nodes.
    """

    driver: str
    name: str
    problem: str
    offers: list[Offer] = field(default_factory=list)
    everywhere: list[Offer] = field(default_factory=list)
    counters: dict[Counter, Decimal] = field(default_factory=dict)

    def counters_left(self, used: InUse) -> dict[Counter, Decimal]:
        """What devices in use leave of the counters, wherever these devices are."""
        left = dict(self.counters)
        for offer in filter(used.has, self.everywhere):
            for which, amount in consumption(offer.document).items():
                left[which] -= amount
        return left


def gather(slices: Iterable[Document], node: str, labels: Mapping[str, str]) -> list[Pool]:
    """The pools that a node can use, in the order in which the allocator tries them."""
    pools = []
    by_name = sorted(slices, key=lambda document: str(document["metadata"].get("name", "")))
    for (driver, name), members in slice_lint.by_pool(by_name).items():
        specs = slice_lint.newest(members)
        if any(_concerns(spec, node, labels) for spec in specs):
            pool = Pool(driver, name, slice_lint.unusable(specs))
            _fill(pool, specs, node, labels)
            pools.append(pool)
    return pools


def _concerns(spec: Document, node: str, labels: Mapping[str, str]) -> bool:
    if spec.get("perDeviceNodeSelection"):
        return any(_reaches(device, node, labels) for device in spec.get("devices") or [])
    return _reaches(spec, node, labels)


def _reaches(spec: Document, node: str, labels: Mapping[str, str]) -> bool:
    """Whether the devices of a slice, or one of its devices that says so itself, can be used on a node."""
    if spec.get("nodeName"):
        return bool(spec["nodeName"] == node)
    if spec.get("nodeSelector"):
        return _selects(spec["nodeSelector"], node, labels)
    return bool(spec.get("allNodes"))


def _selects(selector: Document, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a node selector selects the node."""

    def holds(rule: Document, values: Mapping[str, str]) -> bool:
        value, wanted = values.get(rule["key"]), rule.get("values") or []
        match rule["operator"]:
            case "In":
                return value in wanted
            case "NotIn":
                return value not in wanted
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case _:
                return False  # Gt and Lt are not used for devices

    return any(
        all(holds(rule, labels) for rule in term.get("matchExpressions") or [])
        and all(holds(rule, {"metadata.name": node}) for rule in term.get("matchFields") or [])
        for term in selector.get("nodeSelectorTerms") or []
    )


def _fill(pool: Pool, specs: Iterable[Document], node: str, labels: Mapping[str, str]) -> None:
    """Put devices and counters of the slices together."""
    for spec in specs:
        for counters in spec.get("sharedCounters") or []:
            for counter, value in (counters.get("counters") or {}).items():
                pool.counters[counters["name"], counter] = quantity(value["value"], counter)
        for device in spec.get("devices") or []:
            place = device if spec.get("perDeviceNodeSelection") else spec
            offer = Offer(pool.driver, pool.name, device["name"], device, place)
            pool.everywhere.append(offer)
            if _reaches(place, node, labels):
                pool.offers.append(offer)


def consumption(device: Document) -> Mapping[Counter, Decimal]:
    """What a device consumes of counters, by set and name."""
    return {
        (use["counterSet"], name): quantity(value["value"], name)
        for use in device.get("consumesCounters") or []
        for name, value in (use.get("counters") or {}).items()
    }


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
