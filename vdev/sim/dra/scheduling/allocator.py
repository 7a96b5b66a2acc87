"""Which devices claims get: first fit in the order of the slices, going back where that leads nowhere. Pure.

As the allocator of Kubernetes 1.36 does it, with what it overlooks: a pod that waits there waits here. (Source:
dynamic-resource-allocation/structured/internal/incubating.) Selectors come in as a function, since they need a library
that may not be there.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ...objects.pod_manifest import quantity
from .allocations import Grant, Wanted, allocation
from .cel_selectors import SelectorError
from .pools import DeviceId, Document, Offer, Pool
from .unschedulable import NowhereError, SchedulerError, UnschedulableError
from .usage import Counters, InUse, consumed

MOST_RESULTS = 32
Matches = Callable[[str, str, Document], bool]  # expression, driver, device


class _TooManyError(Exception):
    """The claim would have more devices than one may have: other devices are no help, fewer may be."""


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
        self._claims: Sequence[Document] = ()
        self._rows: list[list[Wanted]] = []  # alternatives of each request
        self._every: dict[tuple[int, str], list[Offer]] = {}  # for requests of all devices
        self._selected: dict[tuple[int, str, DeviceId], bool] = {}
        self._sound = [each for each in pools if not each.problem and not each.incomplete]
        self._offers = [offer for pool in self._sound for offer in pool.offers]
        self._pool_of = {(pool.driver, pool.name): pool for pool in self._sound}
        self._counters = Counters(used)
        self._grants: list[Grant] = []
        self._chosen: list[Wanted] = []

    def allocate(self, claims: Sequence[Document], node: str) -> list[dict[str, Any]]:
        """What each claim is given, as its status says it; all or none. Raises UnschedulableError."""
        self._claims = claims
        for number, claim in enumerate(claims):
            self._rows += self._read(number, claim)
        for number, claim in enumerate(claims):
            self._check(number, claim)
        if not self._enter(0):
            if any(pool.problem for pool in self._pools):
                raise UnschedulableError("invalid resource pools were encountered")
            raise UnschedulableError("cannot allocate all claims")
        return [
            allocation(
                claim,
                [each for each in self._chosen if each.claim == number],
                [each for each in self._grants if each.wanted.claim == number],
                node,
            )
            for number, claim in enumerate(claims)
        ]

    # --- what is asked for ------------------------------------------------------------------------------------------

    def _read(self, number: int, claim: Document) -> list[list[Wanted]]:
        """The alternatives of each request. Raises NowhereError for classes that are not there."""
        rows = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            alternatives = request.get("firstAvailable")
            if alternatives:
                row = [(f"{request['name']}/{each['name']}", each) for each in alternatives]
            else:
                row = [(request["name"], request["exactly"])]
            rows.append([Wanted(number, name, each, self._class(name, each, claim)) for name, each in row])
        return rows

    def _class(self, name: str, request: Document, claim: Document) -> Document:
        found = self._classes.get(request["deviceClassName"])
        if found is None:
            raise NowhereError(f"request {name}: device class {request['deviceClassName']} does not exist")
        namespace = claim["metadata"].get("namespace", "default")
        if request.get("adminAccess") and not self._admin(namespace):
            raise UnschedulableError(
                f"claim {_key(claim)}, request {name}: admin access to devices requires the "
                "`resource.kubernetes.io/admin-access: true` label on the containing namespace"
            )
        return found

    def _check(self, number: int, claim: Document) -> None:
        """Find all devices where all are asked for, and count. Raises SchedulerError."""
        rows = [row for row in self._rows if row[0].claim == number]
        least = sum(min(self._number(wanted) for wanted in row) for row in rows)
        if least > MOST_RESULTS:
            raise SchedulerError(
                f"claim {_key(claim)}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
            )

    def _number(self, wanted: Wanted) -> int:
        if not wanted.is_all:
            return int(wanted.document.get("count", 1))
        for pool in self._pools:
            if pool.incomplete or pool.problem:
                why = "currently being updated" if pool.incomplete else "currently invalid"
                text = f"asks for all devices, but resource pool {pool.driver}/{pool.name} is {why}"
                raise SchedulerError(f"claim {_key(self._claims[wanted.claim])}, request {wanted.own}: {text}")
        every = [each for each in self._offers if self._selects(wanted, each) and self._fits(wanted, each) is not None]
        self._every[wanted.claim, wanted.name] = every
        return len(every)

    # --- the search -------------------------------------------------------------------------------------------------

    def _enter(self, row: int) -> bool:
        """Go on with a request. That a claim has too many devices is no matter of those before it."""
        if row == len(self._rows):
            return True
        if row and self._rows[row][0].claim == self._rows[row - 1][0].claim:
            return self._alternatives(row)
        try:
            return self._alternatives(row)
        except _TooManyError:
            return False

    def _alternatives(self, row: int) -> bool:
        too_many = 0
        for wanted in self._rows[row]:
            self._chosen.append(wanted)
            try:
                if self._devices(wanted, row, 0, 0):
                    return True
            except _TooManyError:
                too_many += 1
            self._chosen.pop()
        if too_many == len(self._rows[row]):
            raise _TooManyError
        return False

    def _devices(self, wanted: Wanted, row: int, number: int, start: int) -> bool:
        """Choose one device after the other; `number` are chosen, the next is not before `start`."""
        every = self._every.get((wanted.claim, wanted.name), [])
        count = len(every) if wanted.is_all else int(wanted.document.get("count", 1))
        if not count:
            return False
        if number == count:
            return self._enter(row + 1)
        if sum(each.wanted.claim == wanted.claim for each in self._grants) + count - number > MOST_RESULTS:
            raise _TooManyError
        candidates = [every[number]] if wanted.is_all else self._offers[start:]
        for index, offer in enumerate(candidates, start + 1):
            if (grant := self._take(wanted, offer)) is None:
                continue
            done = False
            try:
                done = self._devices(wanted, row, number + 1, index)
            finally:
                if not done:
                    self._give_back(grant)
            if done:
                return True
        return False

    def _take(self, wanted: Wanted, offer: Offer) -> Grant | None:
        """Take a device if it fits; None if not.

        Counters come before taints and constraints, and what was counted for a device that these refuse stays counted.
        """
        if self._is_held(wanted, offer) or not self._selects(wanted, offer):
            return None
        taken = self._fits(wanted, offer)
        if taken is None or not self._counted(offer) or not _tolerated(wanted, offer):
            return None
        grant = Grant(wanted, offer, taken if offer.shared else {})
        if not self._agrees(grant):
            if wanted.is_all:
                raise SchedulerError(
                    f"claim {_key(self._claims[wanted.claim])}, request {wanted.own}: cannot add device "
                    f"{'/'.join(offer.id)} because a claim constraint would not be satisfied"
                )
            return None
        self._grants.append(grant)
        return grant

    def _give_back(self, grant: Grant) -> None:
        self._grants.remove(grant)
        if not grant.offer.shared and grant.offer.document.get("consumesCounters"):
            self._counters.give_back(grant.offer)

    def _is_held(self, wanted: Wanted, offer: Offer) -> bool:
        """Whether somebody has the device whole. Who only looks may look at each once in a claim."""
        if wanted.is_admin:
            return any(each.offer is offer and each.wanted.claim == wanted.claim for each in self._whole())
        return offer.id in self._used.devices or any(each.offer is offer for each in self._whole())

    def _whole(self) -> list[Grant]:
        return [each for each in self._grants if not each.offer.shared]

    def _counted(self, offer: Offer) -> bool:
        """Whether there are counters for it, which are consumed then; the first share has done so for all."""
        if not offer.document.get("consumesCounters"):
            return True
        is_shared = offer.id in self._used.shared or any(each.offer is offer for each in self._grants)
        return (offer.shared and is_shared) or self._counters.consume(self._pool_of[offer.driver, offer.pool], offer)

    def _fits(self, wanted: Wanted, offer: Offer) -> dict[str, str] | None:
        """What is taken of its capacity; None if there is not so much left, also for who only looks."""
        taken = consumed(offer.capacity, wanted.document)
        if taken is None:
            return None
        given = [each.taken for each in self._grants if each.offer is offer]
        for name, amount in taken.items():
            before = self._used.capacity.get((offer.id, name), Decimal(0))
            now = sum((quantity(each[name], name) for each in given if each), before)
            if now + quantity(amount, name) > quantity(offer.capacity[name]["value"], name):
                return None
        return taken

    def _selects(self, wanted: Wanted, offer: Offer) -> bool:
        key = wanted.claim, wanted.name, offer.id
        if key not in self._selected:
            self._selected[key] = self._evaluate(wanted, offer)
        return self._selected[key]

    def _evaluate(self, wanted: Wanted, offer: Offer) -> bool:
        """Raises SchedulerError."""
        rows = [(f"class {wanted.device_class['metadata']['name']}", (wanted.device_class.get("spec") or {}))]
        rows.append((f"claim {_key(self._claims[wanted.claim])}", wanted.document))
        for where, document in rows:
            for number, selector in enumerate(document.get("selectors") or []):
                try:
                    if not self._matches(selector["cel"]["expression"], offer.driver, offer.document):
                        return False
                except SelectorError as error:
                    raise SchedulerError(f"{where}: selector #{number}: {error}") from error
        return True

    def _agrees(self, grant: Grant) -> bool:
        """Whether a device agrees with those chosen before, by the constraints of its claim."""
        claim = self._claims[grant.wanted.claim]
        for constraint in (claim["spec"].get("devices") or {}).get("constraints") or []:
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            covered = set(constraint.get("requests") or [])
            values = [
                each.offer.attribute(name)
                for each in [*self._grants, grant]
                if each.wanted.claim == grant.wanted.claim and (not covered or covered & each.wanted.names)
            ]
            if covered and not covered & grant.wanted.names:
                continue
            if None in values:
                return False
            if "matchAttribute" in constraint and any(value != values[0] for value in values):
                return False
            if "matchAttribute" not in constraint and len(set(values)) != len(values):
                return False
        return True


def _key(claim: Document) -> str:
    return f"{claim['metadata'].get('namespace', 'default')}/{claim['metadata']['name']}"


def _tolerated(wanted: Wanted, offer: Offer) -> bool:
    return all(
        taint["effect"] == "None" or any(_tolerates(each, taint) for each in wanted.document.get("tolerations") or [])
        for taint in offer.document.get("taints") or []
    )


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
