"""The allocation that the scheduler writes into the status of a claim. Pure."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..api.kinds import Document
from .pools import PoolDevice


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One request of a claim, or one alternative of its `firstAvailable`."""

    claim: Document
    name: str  # `request`, or `request/alternative`
    document: Document
    device_class: Document

    @property
    def is_admin(self) -> bool:
        """Whether it has admin access, so it does not occupy devices."""
        return bool(self.document.get("adminAccess"))

    @property
    def is_all(self) -> bool:
        return self.document.get("allocationMode") == "All"

    @property
    def names(self) -> set[str]:
        """The names by which its claim refers to it."""
        return {self.name, self.name.partition("/")[0]}


@dataclass(frozen=True, slots=True, eq=False)
class Grant:
    """One device for one request, and the capacity that it takes of a shared device."""

    request: Request
    device: PoolDevice
    taken: Mapping[str, str]


def allocation(requests: Sequence[Request], grants: Sequence[Grant], claim: Document, node: str) -> dict[str, Any]:
    """The `status.allocation` of a claim from its chosen requests and their devices."""
    devices: dict[str, Any] = {}
    if grants:
        devices["results"] = [_result(grant) for grant in grants]
    if config := [*_class_config(requests), *_claim_config(claim, requests)]:
        devices["config"] = config
    found: dict[str, Any] = {"devices": devices}
    if any(not grant.device.place.get("allNodes") for grant in grants):
        field = {"key": "metadata.name", "operator": "In", "values": [node]}
        found["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return found


def _class_config(requests: Sequence[Request]) -> Iterator[Document]:
    """The configuration of each class, once for all its requests."""
    classes = {each.device_class["metadata"]["name"]: each.device_class for each in requests}
    for name, device_class in classes.items():
        names = [each.name for each in requests if each.device_class["metadata"]["name"] == name]
        for each in (device_class.get("spec") or {}).get("config") or []:
            yield {"source": "FromClass", "requests": names, **each}


def _claim_config(claim: Document, requests: Sequence[Request]) -> Iterator[Document]:
    """The configuration of the claim that concerns its chosen requests."""
    for each in (claim["spec"].get("devices") or {}).get("config") or []:
        named = set(each.get("requests") or ())
        if not named or any(request.names & named for request in requests):
            yield {"source": "FromClaim", **each}


def _result(grant: Grant) -> dict[str, Any]:
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
    if device.shared:
        result["shareID"] = str(uuid.uuid4())
    if grant.taken:
        result["consumedCapacity"] = dict(grant.taken)
    return result
