"""What the scheduler writes into the status of a claim that gets devices. Pure."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .pools import Document, Offer


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request, or one alternative of it. `claim` is its place among the pod's, `name` is `request/alternative`."""

    claim: int
    name: str
    document: Document
    device_class: Document

    @property
    def base(self) -> str:
        """The request's own name."""
        return self.name.partition("/")[0]

    @property
    def own(self) -> str:
        """The name of the alternative, or of the request where it has none."""
        return self.name.rpartition("/")[2]

    @property
    def is_admin(self) -> bool:
        """Whether it looks at devices without occupying them."""
        return bool(self.document.get("adminAccess"))

    @property
    def is_all(self) -> bool:
        """Whether it is for all devices there are."""
        return self.document.get("allocationMode") == "All"

    @property
    def names(self) -> set[str]:
        """What it is called elsewhere in its claim."""
        return {self.name, self.base}


@dataclass(frozen=True, slots=True)
class Grant:
    """One device for one request, and what it takes of the capacity of a shared one."""

    wanted: Wanted
    offer: Offer
    taken: Mapping[str, str]


def allocation(claim: Document, chosen: Sequence[Wanted], grants: Sequence[Grant], node: str) -> dict[str, Any]:
    """What the status of a claim says of its allocation; `chosen` is what was chosen for each of its requests."""
    devices: dict[str, Any] = {}
    if grants:
        devices["results"] = [_result(grant) for grant in grants]
    if config := [*_of_classes(chosen), *_of_claim(claim, chosen)]:
        devices["config"] = config
    found: dict[str, Any] = {"devices": devices}
    if any(not grant.offer.place.get("allNodes") for grant in grants):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return found


def _of_classes(chosen: Sequence[Wanted]) -> Iterator[Document]:
    """The configuration of each class, once, for all requests of it."""
    classes = {each.device_class["metadata"]["name"]: each.device_class for each in chosen}
    for name, device_class in classes.items():
        requests = [each.name for each in chosen if each.device_class["metadata"]["name"] == name]
        for each in (device_class.get("spec") or {}).get("config") or []:
            yield {"source": "FromClass", "requests": requests, **each}


def _of_claim(claim: Document, chosen: Sequence[Wanted]) -> Iterator[Document]:
    """The configuration of the claim for what was chosen."""
    for each in (claim["spec"].get("devices") or {}).get("config") or []:
        named = set(each.get("requests") or ())
        if not named or any(wanted.names & named for wanted in chosen):
            yield {"source": "FromClaim", **each}


def _result(grant: Grant) -> dict[str, Any]:
    offer, wanted = grant.offer, grant.wanted
    result: dict[str, Any] = {"request": wanted.name, "driver": offer.driver, "pool": offer.pool, "device": offer.name}
    if wanted.is_admin:
        result["adminAccess"] = True
    if tolerations := wanted.document.get("tolerations"):
        result["tolerations"] = list(tolerations)
    if offer.shared:
        result["shareID"] = str(uuid.uuid4())
    if grant.taken:
        result["consumedCapacity"] = dict(grant.taken)
    return result
