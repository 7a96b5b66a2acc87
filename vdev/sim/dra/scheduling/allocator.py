"""Which devices claims get: first fit in the order of the slices, going back where that leads nowhere. Pure.

As the scheduler's allocator does it. Selectors come in as a function, since they need a library that may not be there.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from ...objects.pod_manifest import quantity
from .cel_selectors import SelectorError
from .consumption import consumed, requested_capacity, suffices
from .pools import DeviceId, Document, Offer, Pool

MOST_RESULTS = 32
Matches = Callable[[str, str, Document], bool]  # expression, driver, device


class UnschedulableError(Exception):
    """No allocation. The text is the scheduler's."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, or one alternative of it. `name` is `request` or `request/alternative`."""

    claim: int
    name: str
    document: Document
    device_class: Document

    @property
    def base(self) -> str:
        """The request's own name."""
        return self.name.partition("/")[0]

    @property
    def admin(self) -> bool:
        """Whether it looks at devices without occupying them."""
        return bool(self.document.get("adminAccess"))


@dataclass(frozen=True, slots=True)
class Grant:
    """One device for one request."""

    wanted: Wanted
    offer: Offer
    taken: Mapping[str, Decimal]


@dataclass(slots=True)
class InUse:
    """What is taken already: whole devices, capacity of shared ones, counters by driver, pool, set and name.

    `shared` are the devices of which somebody has a share, however small.
    """

    devices: set[DeviceId] = field(default_factory=set)
    shared: set[DeviceId] = field(default_factory=set)
    capacity: dict[tuple[DeviceId, str], Decimal] = field(default_factory=dict)
    counters: dict[tuple[str, str, str, str], Decimal] = field(default_factory=dict)

    def add(self, offer: Offer, taken: Mapping[str, Decimal], sign: int = 1, *, counts: bool = True) -> None:
        """Take a device, or with `sign` -1 give it back. `counts`: as the first or last user, its counters as well."""
        if offer.shared:
            for name, amount in taken.items():
                key = offer.id, name
                self.capacity[key] = self.capacity.get(key, Decimal(0)) + sign * amount
        elif sign > 0:
            self.devices.add(offer.id)
        else:
            self.devices.discard(offer.id)
        for use in offer.document.get("consumesCounters") or [] if counts else []:
            for name, value in use["counters"].items():
                which = offer.driver, offer.pool, use["counterSet"], name
                self.counters[which] = self.counters.get(which, Decimal(0)) + sign * quantity(value["value"], name)


def in_use(claims: Iterable[Document], pools: Iterable[Pool]) -> InUse:
    """What the allocations of claims take of these pools."""
    offers = {offer.id: offer for pool in pools for offer in pool.offers}
    used, seen = InUse(), set()
    for claim in claims:
        for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or []:
            id_ = result["driver"], result["pool"], result["device"]
            if result.get("adminAccess"):
                continue
            if id_ not in offers:
                used.devices.add(id_)  # gone from the slices, but not free
                continue
            taken = {name: quantity(value, name) for name, value in (result.get("consumedCapacity") or {}).items()}
            named = {(name if "/" in name else f"{id_[0]}/{name}"): amount for name, amount in taken.items()}
            used.add(offers[id_], named, counts=id_ not in seen)
            seen.add(id_)
            used.shared |= {id_} if offers[id_].shared else set()
    return used


class Allocator:
    """Allocates claims on one node. `classes` are DeviceClasses by name, `admin` the namespaces that may look."""

    def __init__(
        self,
        pools: Sequence[Pool],
        classes: Mapping[str, Document],
        used: InUse,
        *,
        matches: Matches,
        admin: Callable[[str], bool] = lambda _namespace: False,
    ) -> None:
        self._pools = pools
        self._classes = classes
        self._used = used
        self._matches = matches
        self._admin = admin
        self._chosen: list[Grant] = []
        self._claims: Sequence[Document] = ()
        self._order: list[list[Wanted]] = []
        self._selected: dict[tuple[int, str, DeviceId], bool] = {}
        self._shares: dict[DeviceId, int] = {}

    def allocate(self, claims: Sequence[Document], node: str) -> list[dict[str, Any]]:
        """The `status.allocation` of each claim, all or none. Raises UnschedulableError."""
        self._claims = claims
        self._order = [wanted for number, claim in enumerate(claims) for wanted in self._requests(number, claim)]
        if not self._solve(0):
            if broken := [pool for pool in self._pools if pool.problem]:
                names = ", ".join(f"{pool.driver}/{pool.name}: {pool.problem}" for pool in broken)
                raise UnschedulableError(
                    f"cannot allocate all claims: invalid resource pools were encountered ({names})"
                )
            raise UnschedulableError("cannot allocate all claims")
        return [self._allocation(number, claim, node) for number, claim in enumerate(claims)]

    # --- what is asked for ------------------------------------------------------------------------------------------

    def _requests(self, number: int, claim: Document) -> Iterator[list[Wanted]]:
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            alternatives = request.get("firstAvailable")
            if alternatives:
                rows = [(f"{request['name']}/{each['name']}", each) for each in alternatives]
            else:
                rows = [(request["name"], request["exactly"])]
            yield [Wanted(number, name, each, self._class(name, each, claim)) for name, each in rows]

    def _class(self, name: str, request: Document, claim: Document) -> Document:
        found = self._classes.get(request["deviceClassName"])
        if found is None:
            raise UnschedulableError(f"request {name}: device class {request['deviceClassName']} does not exist")
        namespace = claim["metadata"].get("namespace", "default")
        if request.get("adminAccess") and not self._admin(namespace):
            raise UnschedulableError(
                f"claim {namespace}/{claim['metadata']['name']}, request {name}: admin access to devices requires the "
                "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
            )
        return found

    # --- the search -------------------------------------------------------------------------------------------------

    def _solve(self, number: int) -> bool:
        if number == len(self._order):
            return True
        return any(self._request(wanted, number) for wanted in self._order[number])

    def _request(self, wanted: Wanted, number: int) -> bool:
        if wanted.document.get("allocationMode", "ExactCount") == "All":
            return self._all(wanted, number)
        offers = [offer for pool in self._sound() for offer in pool.offers]
        return self._some(wanted, number, offers, int(wanted.document.get("count", 1)), 0)

    def _sound(self) -> Iterator[Pool]:
        return (pool for pool in self._pools if not pool.problem and not pool.incomplete)

    def _some(self, wanted: Wanted, number: int, offers: list[Offer], left: int, start: int) -> bool:
        if not left:
            return self._solve(number + 1)
        for index in range(start, len(offers)):
            if (grant := self._take(wanted, offers[index])) is not None:
                again = index if offers[index].shared else index + 1
                if self._some(wanted, number, offers, left - 1, again):
                    return True
                self._give_back(grant)
        return False

    def _all(self, wanted: Wanted, number: int) -> bool:
        for pool in self._pools:
            if pool.problem or pool.incomplete:
                why = "currently invalid" if pool.problem else "currently being updated"
                claim = self._claims[wanted.claim]["metadata"]
                key = f"{claim.get('namespace', 'default')}/{claim['name']}"
                text = f"asks for all devices, but resource pool {pool.driver}/{pool.name} is {why}"
                raise UnschedulableError(f"claim {key}, request {wanted.name}: {text}")
        offers = [o for pool in self._pools for o in pool.offers if self._selects(wanted, o)]
        taken = []
        for offer in offers:
            if (grant := self._take(wanted, offer)) is None:
                break
            taken.append(grant)
        if offers and len(taken) == len(offers) and self._solve(number + 1):
            return True
        for grant in reversed(taken):
            self._give_back(grant)
        return False

    def _take(self, wanted: Wanted, offer: Offer) -> Grant | None:
        """Take a device if it fits; None if not."""
        full = sum(grant.wanted.claim == wanted.claim for grant in self._chosen) == MOST_RESULTS
        if full or not self._tolerated(wanted, offer) or not self._selects(wanted, offer):
            return None
        asked = requested_capacity(wanted.document, offer.driver)
        taken = consumed(offer, asked) if offer.shared else {} if suffices(offer, asked) else None
        if taken is None or not (wanted.admin or self._free(offer, taken)):
            return None
        grant = Grant(wanted, offer, taken)
        if not self._agrees(grant):
            return None
        self._chosen.append(grant)
        if not wanted.admin:
            self._used.add(offer, taken, counts=not self._counted(offer))
            self._shares[offer.id] = self._shares.get(offer.id, 0) + 1
        return grant

    def _give_back(self, grant: Grant) -> None:
        self._chosen.remove(grant)
        if not grant.wanted.admin:
            self._shares[grant.offer.id] -= 1
            self._used.add(grant.offer, grant.taken, -1, counts=not self._counted(grant.offer))

    def _counted(self, offer: Offer) -> bool:
        """Whether somebody has a share of the device already, so that its counters are consumed."""
        return offer.shared and (self._shares.get(offer.id, 0) > 0 or offer.id in self._used.shared)

    def _free(self, offer: Offer, taken: Mapping[str, Decimal]) -> bool:
        if offer.id in self._used.devices:
            return False
        for name, amount in taken.items():
            whole = quantity(offer.capacity()[name]["value"], name)
            if self._used.capacity.get((offer.id, name), Decimal(0)) + amount > whole:
                return False
        if self._counted(offer):
            return True
        pool = next(p for p in self._pools if (p.driver, p.name) == (offer.driver, offer.pool))
        for use in offer.document.get("consumesCounters") or []:
            for name, value in use["counters"].items():
                used = self._used.counters.get((offer.driver, offer.pool, use["counterSet"], name), Decimal(0))
                if used + quantity(value["value"], name) > pool.counters[use["counterSet"], name]:
                    return False
        return True

    def _tolerated(self, wanted: Wanted, offer: Offer) -> bool:
        return all(
            taint["effect"] == "None"
            or any(_tolerates(each, taint) for each in wanted.document.get("tolerations") or [])
            for taint in offer.document.get("taints") or []
        )

    def _selects(self, wanted: Wanted, offer: Offer) -> bool:
        key = wanted.claim, wanted.name, offer.id
        if key not in self._selected:
            self._selected[key] = self._evaluate(wanted, offer)
        return self._selected[key]

    def _evaluate(self, wanted: Wanted, offer: Offer) -> bool:
        claim = self._claims[wanted.claim]["metadata"]
        rows = [(f"class {wanted.device_class['metadata']['name']}", (wanted.device_class.get("spec") or {}))]
        rows.append((f"claim {claim.get('namespace', 'default')}/{claim['name']}", wanted.document))
        for where, document in rows:
            for number, selector in enumerate(document.get("selectors") or []):
                try:
                    if not self._matches(selector["cel"]["expression"], offer.driver, offer.document):
                        return False
                except SelectorError as error:
                    raise UnschedulableError(f"{where}: selector #{number}: {error}") from error
        return True

    def _agrees(self, grant: Grant) -> bool:
        """Whether a device agrees with those chosen before, by the constraints of its claim."""
        claim = self._claims[grant.wanted.claim]
        for constraint in (claim["spec"].get("devices") or {}).get("constraints") or []:
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            covered = set(constraint.get("requests") or [])
            values = [
                each.offer.attribute(name)
                for each in [*self._chosen, grant]
                if each.wanted.claim == grant.wanted.claim
                and (not covered or covered & {each.wanted.name, each.wanted.base})
            ]
            if covered and not covered & {grant.wanted.name, grant.wanted.base}:
                continue
            if None in values:
                return False
            if "matchAttribute" in constraint and any(value != values[0] for value in values):
                return False
            if "matchAttribute" not in constraint and len(set(values)) != len(values):
                return False
        return True

    # --- the answer -------------------------------------------------------------------------------------------------

    def _allocation(self, number: int, claim: Document, node: str) -> dict[str, Any]:
        grants = [grant for grant in self._chosen if grant.wanted.claim == number]
        config = [
            {"source": "FromClass", "requests": [name], **each}
            for name, device_class in {grant.wanted.name: grant.wanted.device_class for grant in grants}.items()
            for each in (device_class.get("spec") or {}).get("config") or []
        ]
        chosen = {name for grant in grants for name in (grant.wanted.name, grant.wanted.base)}
        config += [
            {"source": "FromClaim", **each}
            for each in (claim["spec"].get("devices") or {}).get("config") or []
            if not each.get("requests") or chosen & set(each["requests"])
        ]
        selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        devices: dict[str, Any] = {"results": [_result(grant) for grant in grants]}
        if config:
            devices["config"] = config
        return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [selector]}}


def _result(grant: Grant) -> dict[str, Any]:
    offer, wanted = grant.offer, grant.wanted
    result: dict[str, Any] = {"request": wanted.name, "driver": offer.driver, "pool": offer.pool, "device": offer.name}
    if wanted.admin:
        result["adminAccess"] = True
    if tolerations := wanted.document.get("tolerations"):
        result["tolerations"] = list(tolerations)
    if offer.shared:
        result["shareID"] = str(uuid.uuid4())
        result["consumedCapacity"] = {
            name.removeprefix(f"{offer.driver}/"): format(amount.normalize(), "f")
            for name, amount in grant.taken.items()
        }
    if offer.document.get("bindingConditions"):
        result["bindingConditions"] = list(offer.document["bindingConditions"])
    return result


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
