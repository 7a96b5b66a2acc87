"""Which devices claims get: first fit in the order of the slices, with backtracking. Pure.

The order is that of the allocator of Kubernetes 1.36. A function evaluates selectors, since that needs a library that
may not be installed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..api.kinds import Document
from .allocations import Grant, Request, allocation
from .cel_selectors import SelectorError
from .pools import DeviceId, Pool, PoolDevice, Usage, consumed

MOST_RESULTS = 32  # devices of a claim (resource.k8s.io/v1, AllocationResultsMaxSize)
Matches = Callable[[str, str, Document], bool]  # expression, driver, device


class UnschedulableError(Exception):
    """Why a pod gets no devices on this node."""

    @property
    def message(self) -> str:
        """The text of the pod's condition and Event."""
        return f"0/1 nodes are available: {self}."


class Allocator:
    """Allocates claims on one node.

    `classes` are DeviceClasses by name. `claims` are all claims; it gives nobody what they use.
    """

    def __init__(
        self, pools: Sequence[Pool], classes: Mapping[str, Document], claims: Iterable[Document], *, matches: Matches
    ) -> None:
        self._classes = classes
        self._matches = matches
        self._unusable = [pool for pool in pools if pool.problem]
        self._devices = [device for pool in pools if not pool.problem for device in pool.devices]
        self._usage = Usage(pools, claims)
        self._requests: list[list[Request]] = []  # the alternatives of each request
        self._candidates: dict[Request, list[PoolDevice]] = {}
        self._counts: dict[Request, int] = {}
        self._selected: dict[tuple[Request, DeviceId], bool] = {}
        # What the search has chosen so far.
        self._chosen: list[Request] = []
        self._grants: list[Grant] = []

    def allocate(self, claims: Sequence[Document], node: str) -> list[dict[str, Any]]:
        """The `status.allocation` of each claim; all or none. Raises UnschedulableError."""
        for claim in claims:
            alternatives = self._read(claim)
            self._requests += alternatives
            if (least := sum(map(self._fewest, alternatives))) > MOST_RESULTS:
                text = f"asks for {least} devices, at most {MOST_RESULTS} are allowed"
                raise UnschedulableError(f"claim {_key(claim)} {text}")
        if not self._choose_request(0):
            wrong = (f"; pool {each.name} of {each.driver}: {each.problem}" for each in self._unusable)
            raise UnschedulableError(f"cannot allocate all claims{''.join(wrong)}")
        return [
            allocation(
                [each for each in self._chosen if each.claim is claim],
                [each for each in self._grants if each.request.claim is claim],
                claim,
                node,
            )
            for claim in claims
        ]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _read(self, claim: Document) -> list[list[Request]]:
        """The alternatives of each request. Raises UnschedulableError if a class does not exist."""
        found = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            alternatives = [(f"{request['name']}/{each['name']}", each) for each in request.get("firstAvailable") or ()]
            alternatives = alternatives or [(request["name"], request["exactly"])]
            found.append([self._request(claim, name, document) for name, document in alternatives])
        return found

    def _request(self, claim: Document, name: str, document: Document) -> Request:
        device_class = self._classes.get(document["deviceClassName"])
        if device_class is None:
            raise UnschedulableError(f"request {name}: device class {document['deviceClassName']} does not exist")
        request = Request(claim, name, document, device_class)
        if request.is_all:
            self._candidates[request] = self._all_devices(request)
            self._counts[request] = len(self._candidates[request])
        else:
            self._candidates[request] = self._devices
            self._counts[request] = int(document.get("count", 1))
        return request

    def _all_devices(self, request: Request) -> list[PoolDevice]:
        """The devices of a request for all. Raises UnschedulableError if some of them may be unknown."""
        if self._unusable:
            pool = self._unusable[0]
            why = f"asks for all devices, but pool {pool.name} of {pool.driver} is not usable: {pool.problem}"
            raise UnschedulableError(f"claim {_key(request.claim)}, request {request.name} {why}")
        return [
            device
            for device in self._devices
            if self._selects(request, device) and self._capacity(request, device) is not None
        ]

    def _fewest(self, alternatives: Sequence[Request]) -> int:
        """The smallest number of devices that satisfies a request."""
        return min(self._counts[each] for each in alternatives)

    # --- the search ---------------------------------------------------------------------------------------------------

    def _choose_request(self, number: int) -> bool:
        """Choose the first alternative of a request with which the requests after it get devices, too."""
        if number == len(self._requests):
            return True
        for request in self._requests[number]:
            # Without this check the search would try every choice of too many devices, which takes forever.
            if not self._counts[request] or self._total(request, number) > MOST_RESULTS:
                continue
            self._chosen.append(request)
            if self._choose_devices(request, number, self._counts[request], 0):
                return True
            self._chosen.pop()
        return False

    def _total(self, request: Request, number: int) -> int:
        """The smallest number of devices of a claim if this alternative is chosen."""
        before = sum(self._counts[each] for each in self._chosen if each.claim is request.claim)
        after = sum(self._fewest(each) for each in self._requests[number + 1 :] if each[0].claim is request.claim)
        return before + self._counts[request] + after

    def _choose_devices(self, request: Request, number: int, missing: int, start: int) -> bool:
        """Choose the missing devices of a request among its candidates from `start` on, then go on."""
        if not missing:
            return self._choose_request(number + 1)
        candidates = self._candidates[request]
        # A device is followed by at least as many candidates as are missing after it.
        for index in range(start, len(candidates) - missing + 1):
            if (grant := self._grant(request, candidates[index])) is None:
                continue
            self._take(grant)
            if self._choose_devices(request, number, missing - 1, index + 1):
                return True
            self._give_back(grant)
        return False

    def _take(self, grant: Grant) -> None:
        self._grants.append(grant)
        if not grant.request.is_admin:
            self._usage.add(grant.device, grant.taken, share=grant.device.shared)

    def _give_back(self, grant: Grant) -> None:
        self._grants.remove(grant)
        if not grant.request.is_admin:
            self._usage.remove(grant.device, grant.taken, share=grant.device.shared)

    # --- one device for one request -----------------------------------------------------------------------------------

    def _grant(self, request: Request, device: PoolDevice) -> Grant | None:
        """The device for the request, None if the request cannot have it."""
        if not request.is_admin and not self._usage.is_free(device):
            return None
        same_claim = [each for each in self._grants if each.request.claim is request.claim]
        if not device.shared and any(each.device is device for each in same_claim):
            return None
        if not self._selects(request, device) or not _is_tolerated(request, device):
            return None
        taken = self._capacity(request, device)
        if taken is None:
            return None
        grant = Grant(request, device, taken if device.shared else {})
        return grant if _satisfies_constraints([*same_claim, grant]) else None

    def _capacity(self, request: Request, device: PoolDevice) -> dict[str, str] | None:
        """The capacity that a request takes of a device; None if that does not fit."""
        taken = consumed(device.capacity, request.document)
        if taken is None or request.is_admin or self._usage.has_capacity(device, taken):
            return taken
        return None

    def _selects(self, request: Request, device: PoolDevice) -> bool:
        key = request, device.id
        if key not in self._selected:
            self._selected[key] = self._evaluate(request, device)
        return self._selected[key]

    def _evaluate(self, request: Request, device: PoolDevice) -> bool:
        """Raises UnschedulableError if a selector fails: then the scheduler tries no other device."""
        class_name = request.device_class["metadata"]["name"]
        for owner, document in (
            (f"class {class_name}", request.device_class.get("spec") or {}),
            (f"claim {_key(request.claim)}", request.document),
        ):
            for number, selector in enumerate(document.get("selectors") or []):
                try:
                    if not self._matches(selector["cel"]["expression"], device.driver, device.document):
                        return False
                except SelectorError as error:
                    raise UnschedulableError(f"{owner}: selector #{number}: {error}") from error
        return True


def _satisfies_constraints(grants: Sequence[Grant]) -> bool:
    """Whether the last device of a claim agrees with those that were chosen before it."""
    last = grants[-1]
    for constraint in (last.request.claim["spec"].get("devices") or {}).get("constraints") or []:
        names = set(constraint.get("requests") or [])
        if names and not names & last.request.names:
            continue
        attribute = constraint.get("matchAttribute") or constraint["distinctAttribute"]
        values = [each.device.attribute(attribute) for each in grants if not names or names & each.request.names]
        if None in values:
            return False
        different = len(set(values))
        if different != (1 if "matchAttribute" in constraint else len(values)):
            return False
    return True


def _key(claim: Document) -> str:
    return f"{claim['metadata'].get('namespace', 'default')}/{claim['metadata']['name']}"


def _is_tolerated(request: Request, device: PoolDevice) -> bool:
    tolerations = request.document.get("tolerations") or []
    return all(
        taint["effect"] == "None" or any(_tolerates(each, taint) for each in tolerations)
        for taint in device.document.get("taints") or []
    )


def _tolerates(toleration: Document, taint: Document) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")
