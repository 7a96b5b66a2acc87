"""Device pools for the allocator: their devices, problems, and usage by claims. Pure.

A pool consists of the slices of its newest generation. A claim uses a whole device, or a share if the device allows
multiple allocations. A share consumes the requested capacity, rounded by the device's policy.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from ...model.quantity import written
from ..api.kinds import Document
from ..lint import Finding, error, twice
from ..objects.pod_manifest import quantity

DeviceId: TypeAlias = tuple[str, str, str]  # driver, pool, device
CounterId: TypeAlias = tuple[str, str, str, str]  # driver, pool, counter set, counter


@dataclass(frozen=True, slots=True, eq=False)
class PoolDevice:
    driver: str
    pool: str
    document: Document  # its entry in the slice
    here: bool  # whether this node can use it; devices of other nodes may consume the same counters

    @property
    def name(self) -> str:
        return str(self.document["name"])

    @property
    def id(self) -> DeviceId:
        return self.driver, self.pool, self.name

    @property
    def shared(self) -> bool:
        """Whether several claims can use shares of the device."""
        return bool(self.document.get("allowMultipleAllocations"))

    @property
    def capacity(self) -> Mapping[str, Document]:
        return self.document.get("capacity") or {}

    def attribute(self, name: str) -> Any:
        """Return type and value of an attribute by its full name (`domain/name`), or None if it is missing."""
        attributes = self.document.get("attributes") or {}
        domain, _, bare = name.rpartition("/")
        found = attributes.get(name) or (attributes.get(bare) if domain == self.driver else None)
        return None if found is None else next(iter(found.items()))

    def counters(self) -> Iterator[tuple[CounterId, Fraction]]:
        """Yield the amount that the device consumes of each counter."""
        for use in self.document.get("consumesCounters") or ():
            for name, value in (use.get("counters") or {}).items():
                yield (self.driver, self.pool, use["counterSet"], name), quantity(value["value"], name)


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A pool at its newest generation. The scheduler ignores older slices."""

    driver: str
    name: str
    specs: Sequence[Document]  # the specs of its slices
    outdated: int  # the number of slices of older generations
    devices: Sequence[PoolDevice]

    @property
    def counter_sets(self) -> list[Document]:
        return [each for spec in self.specs for each in spec.get("sharedCounters") or ()]

    def counters(self) -> dict[CounterId, Fraction]:
        return {
            (self.driver, self.name, each["name"], name): quantity(value["value"], name)
            for each in self.counter_sets
            for name, value in each["counters"].items()
        }

    def findings(self) -> Iterator[Finding]:
        """Yield mistakes in the slices that the API server cannot find. Counters are checked if no slice is missing."""
        counts, where = {_count(spec) for spec in self.specs}, f"pool {self.name}:"
        if len(counts) > 1:
            text = f"resourceSliceCount is {sorted(counts)} within generation {_generation(self.specs[0])}"
            yield error("pool-count", self.driver, f"{where} {text}")
        for name in twice(each.name for each in self.devices):
            yield error("duplicate-device", self.driver, f"{where} device {name} is there more than once")
        for name in twice(each["name"] for each in self.counter_sets):
            yield error("duplicate-counter-set", self.driver, f"{where} counter set {name} is there more than once")
        if len(self.specs) != max(counts):
            return
        defined = self.counters()
        for device in self.devices:
            for counter, amount in device.counters():
                which = f"{where} device {device.name}: counter {'/'.join(counter[2:])}"
                if counter not in defined:
                    yield error("counter-undefined", self.driver, f"{which} is defined nowhere")
                elif amount > defined[counter]:
                    text = f"{which} is smaller than the amount that this device consumes"
                    yield error("counter-too-small", self.driver, text)

    @property
    def problem(self) -> str:
        """The reason why the scheduler does not use the pool; empty if it does."""
        if len(self.specs) != _count(self.specs[0]):
            return f"pool {self.name}: slices are missing, or there are too many"
        return next((each.message for each in self.findings() if each.code != "counter-too-small"), "")


def check_pools(slices: Iterable[Document]) -> Iterator[Finding]:
    for pool in _pools(slices):
        yield from pool.findings()


def check_complete(slices: Iterable[Document]) -> Iterator[Finding]:
    """Find pools with slices of an older generation, or with too few or too many slices.

    This is normal while a driver publishes, and a mistake if it lasts.
    """
    for pool in _pools(slices):
        generation, expected = _generation(pool.specs[0]), _count(pool.specs[0])
        if len(pool.specs) != expected:
            text = f"{len(pool.specs)} slices of generation {generation}, but resourceSliceCount is {expected}"
            yield error("pool-incomplete", pool.driver, f"pool {pool.name}: {text}")
        if pool.outdated:
            text = f"{pool.outdated} slices are older than generation {generation} and must be deleted"
            yield error("pool-outdated", pool.driver, f"pool {pool.name}: {text}")


def gather(slices: Iterable[Document], node: str) -> list[Pool]:
    """Return the pools that a node can use, in the allocator's order."""
    return [pool for pool in _pools(slices, node) if any(_reaches(spec, node) for spec in pool.specs)]


def _pools(slices: Iterable[Document], node: str = "") -> Iterator[Pool]:
    by_pool: defaultdict[tuple[str, str], list[Document]] = defaultdict(list)
    for each in sorted(slices, key=lambda document: str(document["metadata"].get("name", ""))):
        by_pool[each["spec"]["driver"], each["spec"]["pool"]["name"]].append(each["spec"])
    for (driver, name), specs in sorted(by_pool.items()):
        generation = max(map(_generation, specs))
        newest = [spec for spec in specs if _generation(spec) == generation]
        devices: list[PoolDevice] = []
        for spec in newest:
            here = _reaches(spec, node)
            devices += (PoolDevice(driver, name, each, here=here) for each in spec.get("devices") or ())
        yield Pool(driver, name, newest, len(specs) - len(newest), devices)


def _generation(spec: Document) -> int:
    return int(spec["pool"].get("generation", 0))


def _count(spec: Document) -> int:
    return int(spec["pool"]["resourceSliceCount"])


def _reaches(spec: Document, node: str) -> bool:
    """Whether a node can use the devices of a slice."""
    if spec.get("nodeName"):
        return bool(spec["nodeName"] == node)
    if spec.get("nodeSelector"):
        return _selects(spec["nodeSelector"], node)
    return bool(spec.get("allNodes"))


def _selects(selector: Document, node: str) -> bool:
    """Whether a node selector selects the node. The node's only label here is `kubernetes.io/hostname`."""

    def holds(rule: Document, values: Mapping[str, str]) -> bool:
        value, operator = values.get(rule["key"]), rule["operator"]
        found = value in (rule.get("values") or ()) if operator in ("In", "NotIn") else value is not None
        return found is (operator in ("In", "Exists"))  # Gt and Lt are not used for devices

    return any(
        all(holds(rule, {"kubernetes.io/hostname": node}) for rule in term.get("matchExpressions") or [])
        and all(holds(rule, {"metadata.name": node}) for rule in term.get("matchFields") or [])
        for term in selector.get("nodeSelectorTerms") or []
    )


class Usage:
    """Tracks the usage of devices and counters. It starts with the allocated claims."""

    def __init__(self, pools: Sequence[Pool], claims: Iterable[Document]) -> None:
        # The capacity that each user of a device consumes; None for a user of the whole device.
        self._users: defaultdict[DeviceId, list[Mapping[str, str] | None]] = defaultdict(list)
        self._counters_left = {key: amount for pool in pools for key, amount in pool.counters().items()}
        known = {device.id: device for pool in pools for device in pool.devices}
        for claim in claims:
            allocation = (claim.get("status") or {}).get("allocation") or {}
            for result in (allocation.get("devices") or {}).get("results") or ():
                device = known.get((result["driver"], result["pool"], result["device"]))
                if device is not None and not result.get("adminAccess"):
                    self.add(device, result.get("consumedCapacity") or {} if result.get("shareID") else None)

    def is_free(self, device: PoolDevice) -> bool:
        """Whether a request can get the device, or a share of it, beside its users and within the counters."""
        if users := self._users[device.id]:
            return device.shared and None not in users  # the shares of a device consume its counters only once
        return all(amount <= self._counters_left[counter] for counter, amount in device.counters())

    def shares(self, device: PoolDevice) -> list[Mapping[str, str]]:
        """Return the capacity that each share of a device consumes."""
        return [taken for taken in self._users[device.id] if taken]

    def add(self, device: PoolDevice, taken: Mapping[str, str] | None) -> None:
        if not self._users[device.id]:
            for counter, amount in device.counters():
                self._counters_left[counter] -= amount
        self._users[device.id].append(taken)

    def remove(self, device: PoolDevice) -> None:
        """Undo the last `add` of a device."""
        self._users[device.id].pop()
        if not self._users[device.id]:
            for counter, amount in device.counters():
                self._counters_left[counter] += amount


# --- how much a request takes -----------------------------------------------------------------------------------------


def consumed(
    capacities: Mapping[str, Document], request: Document, shares: Sequence[Mapping[str, str]]
) -> dict[str, str] | None:
    """Return the amount of each capacity that a request consumes beside other shares; None if it cannot have it.

    If a capacity is not requested, its default is consumed, or all of it without a policy. Requests use the device's
    name of a capacity.
    """
    requested: Mapping[str, str] = (request.get("capacity") or {}).get("requests") or {}
    if not requested.keys() <= capacities.keys():
        return None
    taken = {}
    for name, capacity in capacities.items():
        amount = _rounded(capacity, requested.get(name))
        used = sum((quantity(each.get(name, 0), name) for each in shares), Fraction(0))
        if amount is None or used + quantity(amount, name) > quantity(capacity["value"], name):
            return None
        taken[name] = amount
    return taken


def _rounded(capacity: Document, wanted: str | None) -> str | None:
    """Round a requested amount by the policy of a capacity; None if the policy does not allow it."""
    policy = capacity.get("requestPolicy") or {}
    if wanted is None:
        return str(policy["default"] if "default" in policy else capacity["value"])
    amount = quantity(wanted, "capacity")
    if values := policy.get("validValues"):
        return next((value for value in values if quantity(value, "validValues") >= amount), None)
    if span := policy.get("validRange"):
        return _in_range(span, wanted, amount)
    return wanted


def _in_range(span: Document, wanted: str, amount: Fraction) -> str | None:
    least = quantity(span["min"], "min")
    if amount < least:
        wanted, amount = span["min"], least
    elif step := quantity(span.get("step") or 0, "step"):
        amount = least + math.ceil((amount - least) / step) * step
        wanted = written(math.ceil(amount))
    return None if "max" in span and amount > quantity(span["max"], "max") else wanted
