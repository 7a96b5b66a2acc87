"""Which devices claims get: first fit in the order of the slices, going back where that leads nowhere. Pure.

The order is that of the allocator of Kubernetes 1.36. Selectors come in as a function, since they need a library that
may not be there.
"""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from ..objects.pod_manifest import quantity
from .allocations import Grant, Wanted, allocation
from .cel_selectors import SelectorError
from .pools import DeviceId, Document, InUse, Offer, Pool, consumed, consumption

MOST_RESULTS = 32  # of a claim
Matches = Callable[[str, str, Document], bool]  # expression, driver, device


class UnschedulableError(Exception):
    """A pod gets no devices on this node, and why."""

    @property
    def message(self) -> str:
        """What the condition of the pod and its Event say."""
        return f"0/1 nodes are available: {self}."


class Allocator:
    """Allocates claims on one node. `classes` are DeviceClasses by name."""

    def __init__(
        self,
        pools: Sequence[Pool],
        classes: Mapping[str, Document],
        used: InUse,
        *,
        matches: Matches,
    ) -> None:
        self._pools = pools
        self._classes = classes
        self._used = used
        self._matches = matches
        self._claims: Sequence[Document] = ()
        self._rows: list[list[Wanted]] = []  # alternatives of each request
        self._every: dict[tuple[int, str], list[Offer]] = {}  # for requests of all devices
        self._selected: dict[tuple[int, str, DeviceId], bool] = {}
        self._sound = {(each.driver, each.name): each for each in pools if not each.problem}
        self._offers = [offer for pool in self._sound.values() for offer in pool.offers]
        self._left = {key: pool.counters_left(used) for key, pool in self._sound.items()}  # by allocated claims
        self._grants: list[Grant] = []
        self._chosen: list[Wanted] = []

    def allocate(self, claims: Sequence[Document], node: str) -> list[dict[str, Any]]:
        """What each claim is given, as its status says it; all or none. Raises UnschedulableError."""
        self._claims = claims
        for number, claim in enumerate(claims):
            rows = self._read(number, claim)
            self._rows += rows
            if (least := sum(map(self._least, rows))) > MOST_RESULTS:
                raise UnschedulableError(
                    f"claim {_key(claim)} asks for {least} devices, at most {MOST_RESULTS} are allowed"
                )
        if not self._enter(0):
            wrong = "".join(
                f"; pool {each.name} of {each.driver}: {each.problem}" for each in self._pools if each.problem
            )
            raise UnschedulableError(f"cannot allocate all claims{wrong}")
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
        """The alternatives of each request. Raises UnschedulableError for classes that are not there."""
        rows = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            alternatives = request.get("firstAvailable")
            if alternatives:
                row = [(f"{request['name']}/{each['name']}", each) for each in alternatives]
            else:
                row = [(request["name"], request["exactly"])]
            rows.append([Wanted(number, name, each, self._class(name, each)) for name, each in row])
        return rows

    def _class(self, name: str, request: Document) -> Document:
        found = self._classes.get(request["deviceClassName"])
        if found is None:
            raise UnschedulableError(f"request {name}: device class {request['deviceClassName']} does not exist")
        return found

    def _least(self, row: list[Wanted]) -> int:
        """The number of devices that a request takes at least."""
        return min(map(self._number, row))

    def _number(self, wanted: Wanted) -> int:
        if not wanted.is_all:
            return int(wanted.document.get("count", 1))
        key = wanted.claim, wanted.name
        if key not in self._every:
            if unsound := next((each for each in self._pools if each.problem), None):
                why = f"pool {unsound.name} of {unsound.driver} is not usable: {unsound.problem}"
                text = f"asks for all devices, but {why}"
                raise UnschedulableError(f"claim {_key(self._claims[wanted.claim])}, request {wanted.own} {text}")
            self._every[key] = [
                each for each in self._offers if self._selects(wanted, each) and self._fits(wanted, each) is not None
            ]
        return len(self._every[key])

    # --- the search -------------------------------------------------------------------------------------------------

    def _enter(self, row: int) -> bool:
        """Go on with a request: its first alternative with which everything after it works out, too."""
        if row == len(self._rows):
            return True
        for wanted in self._rows[row]:
            # An alternative with too many devices is passed over at once: to try each choice of them takes forever.
            if self._number_with(wanted, row) > MOST_RESULTS:
                continue
            self._chosen.append(wanted)
            if self._devices(wanted, row, 0, 0):
                return True
            self._chosen.pop()
        return False

    def _number_with(self, wanted: Wanted, row: int) -> int:
        """How many devices the claim has at least, if this alternative is chosen."""
        before = sum(self._number(each) for each in self._chosen if each.claim == wanted.claim)
        after = sum(self._least(each) for each in self._rows[row + 1 :] if each[0].claim == wanted.claim)
        return before + self._number(wanted) + after

    def _devices(self, wanted: Wanted, row: int, number: int, start: int) -> bool:
        """Choose one device after the other; `number` are chosen, the next is not before `start`."""
        count = self._number(wanted)
        if not count:
            return False
        if number == count:
            return self._enter(row + 1)
        candidates = [self._every[wanted.claim, wanted.name][number]] if wanted.is_all else self._offers[start:]
        for index, offer in enumerate(candidates, start + 1):
            if (grant := self._grant(wanted, offer)) is None:
                continue
            self._grants.append(grant)
            if self._devices(wanted, row, number + 1, index):
                return True
            self._grants.pop()
        return False

    def _grant(self, wanted: Wanted, offer: Offer) -> Grant | None:
        """The device for the request, if it can have it."""
        if self._is_held(wanted, offer) or not self._selects(wanted, offer) or not _tolerated(wanted, offer):
            return None
        taken = self._fits(wanted, offer)
        if taken is None or not self._counted(wanted, offer):
            return None
        grant = Grant(wanted, offer, taken if offer.shared else {})
        return grant if self._agrees(grant) else None

    def _is_held(self, wanted: Wanted, offer: Offer) -> bool:
        """Whether somebody has the device whole. With admin access a claim may have each once."""
        whole = [each for each in self._grants if each.offer is offer and not offer.shared]
        if wanted.is_admin:
            return any(each.wanted.claim == wanted.claim for each in whole)
        return offer.id in self._used.devices or bool(whole)

    def _counted(self, wanted: Wanted, offer: Offer) -> bool:
        """Whether the counters of its pool suffice. All shares of a device consume them once."""
        needed = consumption(offer.document)
        granted = {each.offer.id: each.offer for each in self._grants if not each.wanted.is_admin}
        if not needed or wanted.is_admin or offer.id in granted or offer.id in self._used.shared:
            return True
        left = dict(self._left[offer.driver, offer.pool])
        for each in (each for each in granted.values() if (each.driver, each.pool) == (offer.driver, offer.pool)):
            for which, amount in consumption(each.document).items():
                left[which] -= amount
        return all(amount <= left[which] for which, amount in needed.items())

    def _fits(self, wanted: Wanted, offer: Offer) -> dict[str, str] | None:
        """What is taken of its capacity; None if there is not so much left."""
        taken = consumed(offer.capacity, wanted.document)
        if taken is None or wanted.is_admin:
            return taken
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
        """Raises UnschedulableError where a selector fails: the scheduler tries no other device then."""
        rows = [(f"class {wanted.device_class['metadata']['name']}", (wanted.device_class.get("spec") or {}))]
        rows.append((f"claim {_key(self._claims[wanted.claim])}", wanted.document))
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
