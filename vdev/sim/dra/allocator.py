"""Allocates devices to claims: first fit in the order of the slices, with backtracking. Pure.

The order is that of the allocator of Kubernetes 1.36. Selectors are evaluated by a function argument, because they
need a library that may not be installed.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..api.kinds import Document
from .cel_selectors import SelectorError
from .pools import DeviceId, Pool, PoolDevice, Usage, consumed

MOST_RESULTS = 32  # devices of a claim (resource.k8s.io/v1, AllocationResultsMaxSize)
Matches = Callable[[str, str, Document], bool]  # expression, driver, device


class UnschedulableError(Exception):
    """A pod's claims cannot be allocated on this node. The text is the reason."""


@dataclass(slots=True, eq=False)
class _Request:
    """One request of a claim, or one alternative of its `firstAvailable`."""

    claim: Document
    name: str  # `request`, or `request/alternative`
    document: Document
    device_class: Document
    candidates: Sequence[PoolDevice]
    count: int
    selected: dict[DeviceId, bool] = field(default_factory=dict)
    """Cached results of the selectors, by device."""

    @property
    def is_admin(self) -> bool:
        """Whether the request has admin access, so that it does not occupy devices."""
        return bool(self.document.get("adminAccess"))

    @property
    def names(self) -> set[str]:
        """The names by which constraints and configuration refer to the request."""
        return {self.name, self.name.partition("/")[0]}


@dataclass(frozen=True, slots=True, eq=False)
class _Grant:
    """A device that a request gets, and the capacity that it consumes; None for a whole device."""

    request: _Request
    device: PoolDevice
    taken: Mapping[str, str] | None


class Allocator:
    """Allocates claims on one node.

    `classes` are DeviceClasses by name. `claims` are all existing claims; their devices are in use.
    """

    def __init__(
        self, pools: Sequence[Pool], classes: Mapping[str, Document], claims: Iterable[Document], *, matches: Matches
    ) -> None:
        self._classes = classes
        self._matches = matches
        self._unusable = [pool for pool in pools if pool.problem]
        sound = [pool for pool in pools if not pool.problem]
        self._devices = [device for pool in sound for device in pool.devices if device.here]
        self._usage = Usage(sound, claims)
        self._grants: list[_Grant] = []  # the devices chosen so far

    def allocate(self, claims: Sequence[Document]) -> list[dict[str, Any]]:
        """Return the `status.allocation` of each claim, all or nothing. Raises UnschedulableError."""
        wanted = [alternatives for claim in claims for alternatives in self._read(claim)]
        if not self._choose_request(wanted):
            wrong = (f"; {each.driver}, {each.problem}" for each in self._unusable)
            raise UnschedulableError(f"cannot allocate all claims{''.join(wrong)}")
        return [_allocation(claim, self._of(claim)) for claim in claims]

    # --- requests -----------------------------------------------------------------------------------------------------

    def _read(self, claim: Document) -> list[list[_Request]]:
        """Return the alternatives of each request. Raises UnschedulableError if a class does not exist."""
        found = []
        for request in (claim["spec"].get("devices") or {}).get("requests") or []:
            alternatives = [(f"{request['name']}/{each['name']}", each) for each in request.get("firstAvailable") or ()]
            alternatives = alternatives or [(request["name"], request["exactly"])]
            found.append([self._request(claim, name, document) for name, document in alternatives])
        return found

    def _request(self, claim: Document, name: str, document: Document) -> _Request:
        device_class = self._classes.get(document["deviceClassName"])
        if device_class is None:
            raise UnschedulableError(f"request {name}: device class {document['deviceClassName']} does not exist")
        request = _Request(claim, name, document, device_class, self._devices, int(document.get("count") or 1))
        if document.get("allocationMode") == "All":
            if self._unusable:
                why = f"asks for all devices, but {self._unusable[0].driver}, {self._unusable[0].problem}"
                raise UnschedulableError(f"claim {_key(claim)}, request {name} {why}")
            request.candidates = [
                each
                for each in self._devices
                if self._selects(request, each) and self._capacity(request, each) is not None
            ]
            request.count = len(request.candidates)
        return request

    def _selects(self, request: _Request, device: PoolDevice) -> bool:
        """Whether the selectors of a request and its class select a device.

        Raises UnschedulableError if a selector fails, because the scheduler then tries no other device.
        """
        if device.id in request.selected:
            return request.selected[device.id]
        found = True
        for owner, document in (
            (f"class {request.device_class['metadata']['name']}", request.device_class.get("spec") or {}),
            (f"claim {_key(request.claim)}", request.document),
        ):
            for number, selector in enumerate(document.get("selectors") or []):
                try:
                    found = found and self._matches(selector["cel"]["expression"], device.driver, device.document)
                except SelectorError as error:
                    raise UnschedulableError(f"{owner}: selector #{number}: {error}") from error
        request.selected[device.id] = found
        return found

    # --- the search ---------------------------------------------------------------------------------------------------

    def _choose_request(self, wanted: Sequence[Sequence[_Request]]) -> bool:
        """Choose the first alternative of each request with which all requests get devices."""
        if not wanted:
            return True
        alternatives, *others = wanted
        for request in alternatives:
            missing = sum(_fewest(each) for each in others if each[0].claim is request.claim)
            # Without this check, the search tries all combinations of too many devices.
            has_room = len(self._of(request.claim)) + request.count + missing <= MOST_RESULTS
            if request.count and has_room and self._choose_devices(request, request.count, 0, others):
                return True
        return False

    def _of(self, claim: Document) -> list[_Grant]:
        """Return the devices chosen for a claim so far."""
        return [each for each in self._grants if each.request.claim is claim]

    def _choose_devices(
        self, request: _Request, missing: int, start: int, others: Sequence[Sequence[_Request]]
    ) -> bool:
        """Choose the missing devices from the candidates from `start` on, then the devices of the other requests."""
        if not missing:
            return self._choose_request(others)
        # Enough candidates must remain after the device.
        for index in range(start, len(request.candidates) - missing + 1):
            device = request.candidates[index]
            if (grant := self._grant(request, device)) is None:
                continue
            self._grants.append(grant)
            if not request.is_admin:
                self._usage.add(device, grant.taken)
            if self._choose_devices(request, missing - 1, index + 1, others):
                return True
            self._grants.pop()
            if not request.is_admin:
                self._usage.remove(device)
        return False

    def _grant(self, request: _Request, device: PoolDevice) -> _Grant | None:
        if not request.is_admin and not self._usage.is_free(device):
            return None
        if not self._selects(request, device) or not _is_tolerated(request.document, device):
            return None
        taken = self._capacity(request, device)
        if taken is None:
            return None
        grant = _Grant(request, device, taken if device.shared else None)
        return grant if _satisfies_constraints([*self._of(request.claim), grant]) else None

    def _capacity(self, request: _Request, device: PoolDevice) -> dict[str, str] | None:
        """Return the capacity that a request consumes of a device, or None if the device has too little left."""
        shares = [] if request.is_admin else self._usage.shares(device)
        return consumed(device.capacity, request.document, shares)


def _fewest(alternatives: Sequence[_Request]) -> int:
    """Return the smallest number of devices that satisfies a request."""
    return min(each.count for each in alternatives)


def _key(claim: Document) -> str:
    return f"{claim['metadata'].get('namespace', 'default')}/{claim['metadata']['name']}"


def _satisfies_constraints(grants: Sequence[_Grant]) -> bool:
    """Whether the last device of a claim satisfies its constraints together with the previous devices."""
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


def _is_tolerated(request: Document, device: PoolDevice) -> bool:
    tolerations = request.get("tolerations") or []
    return all(
        taint["effect"] == "None" or any(_tolerates(each, taint) for each in tolerations)
        for taint in device.document.get("taints") or []
    )


def _tolerates(toleration: Document, taint: Document) -> bool:
    if any(toleration.get(field) not in (None, "", taint[field]) for field in ("effect", "key")):
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


# --- the result -------------------------------------------------------------------------------------------------------


def _allocation(claim: Document, grants: Sequence[_Grant]) -> dict[str, Any]:
    devices: dict[str, Any] = {}
    if grants:
        devices["results"] = [_result(grant) for grant in grants]
    if config := list(_config(claim, list(dict.fromkeys(each.request for each in grants)))):
        devices["config"] = config
    return {"devices": devices}


def _config(claim: Document, requests: Sequence[_Request]) -> Iterator[Document]:
    """Yield the configuration of each class, once for all its requests, then the claim's for the chosen requests."""
    classes = {each.device_class["metadata"]["name"]: each.device_class for each in requests}
    for device_class in classes.values():
        names = [each.name for each in requests if each.device_class is device_class]
        for each in (device_class.get("spec") or {}).get("config") or []:
            yield {"source": "FromClass", "requests": names, **each}
    for each in (claim["spec"].get("devices") or {}).get("config") or []:
        named = set(each.get("requests") or ())
        if not named or any(request.names & named for request in requests):
            yield {"source": "FromClaim", **each}


def _result(grant: _Grant) -> dict[str, Any]:
    device, request = grant.device, grant.request
    result: dict[str, Any] = {
        "request": request.name,
        "driver": device.driver,
        "pool": device.pool,
        "device": device.name,
    }
    if request.is_admin:
        result["adminAccess"] = True
    if tolerations := request.document.get("tolerations"):
        result["tolerations"] = list(tolerations)
    if grant.taken is not None:
        result["shareID"] = str(uuid.uuid4())
    if grant.taken:
        result["consumedCapacity"] = dict(grant.taken)
    return result
