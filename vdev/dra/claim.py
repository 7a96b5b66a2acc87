"""A ResourceClaim as one driver sees it: its uid, allocated devices and configuration; and the prepared claim.

Source: resource.k8s.io/v1. `allocation.devices.results` has the devices of all drivers. In `allocation.devices.config`,
those of classes come before those of the claim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import AllocationError
from ..model.device import EMPTY
from ..planning.cdi import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationResult:
    request: str  # the name of the request, or request/subrequest
    pool: str
    device: str
    share_id: str = ""  # empty if the device is not shared
    admin: bool = False  # admin access does not occupy the device
    consumed: Mapping[str, str] = field(default_factory=lambda: EMPTY)  # capacity of a shared device, by name

    @property
    def main_request(self) -> str:
        """The name of the request without a subrequest, as the kubelet and containers use it."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueConfig:
    """Configuration for this driver; `requests` empty: for all requests. `where` names its source in messages."""

    where: str
    requests: tuple[str, ...]
    parameters: Mapping[str, Any]

    def covers(self, result: AllocationResult) -> bool:
        return not self.requests or bool({result.request, result.main_request} & {*self.requests})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    uid: str
    namespace: str
    name: str
    results: tuple[AllocationResult, ...]
    configs: tuple[OpaqueConfig, ...] = ()


def read_claim(document: Mapping[str, Any], driver: str, *, uid: str) -> Claim:
    """Read a ResourceClaim for one driver. Raises AllocationError if its uid differs or it is not allocated."""
    metadata = document["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    if metadata.get("uid") != uid:
        raise AllocationError(
            f"ResourceClaim {namespace}/{name} is another one by now: its uid is {metadata.get('uid')}, and {uid} was "
            "to be prepared; delete the pod, so that a new one gets the new claim"
        )
    allocation = (document.get("status") or {}).get("allocation")
    if not allocation:
        raise AllocationError(f"ResourceClaim {namespace}/{name} has no allocation")
    devices = allocation.get("devices") or {}
    results = tuple(_result(each) for each in devices.get("results") or () if each["driver"] == driver)
    if not results:
        raise AllocationError(f"no device of driver {driver} is allocated to ResourceClaim {namespace}/{name}")
    opaque = [each for each in devices.get("config") or () if (each.get("opaque") or {}).get("driver") == driver]
    return Claim(
        uid=uid,
        namespace=namespace,
        name=name,
        results=results,
        configs=tuple(_config(each) for each in sorted(opaque, key=lambda each: each["source"] != "FromClass")),
    )


def _result(given: Mapping[str, Any]) -> AllocationResult:
    return AllocationResult(
        request=given["request"],
        pool=given["pool"],
        device=given["device"],
        share_id=given.get("shareID") or "",
        admin=bool(given.get("adminAccess")),
        consumed=given.get("consumedCapacity") or EMPTY,
    )


def _config(given: Mapping[str, Any]) -> OpaqueConfig:
    return OpaqueConfig(
        where=f"the configuration of the {'device class' if given['source'] == 'FromClass' else 'claim'}",
        requests=tuple(given.get("requests") or ()),
        parameters=given["opaque"]["parameters"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    pool: str
    device: str
    requests: tuple[str, ...]  # names without subrequests
    cdi: tuple[str, ...]  # fully qualified names
    share_id: str = ""
    admin: bool = False
    id: str = ""  # of the device
    raw: str = ""  # the id of the physical device
    slices: tuple[int, int] = (0, 0)  # the range of the physical device's memory slices; (0, 0) for all of it
    record: Mapping[str, Any] = field(default_factory=dict)  # lets another process publish the device again
    ignored: tuple[str, ...] = ()  # kinds of configuration that the driver ignored

    def excludes(self, other: "PreparedDevice") -> bool:
        """Whether this device and that of another claim cannot be used at the same time."""
        if self.admin or other.admin:
            return False
        if (self.pool, self.device) == (other.pool, other.device):
            return not (self.share_id and other.share_id)
        if not self.raw or self.raw != other.raw:
            return False
        whole = (0, 0) in (self.slices, other.slices)
        return whole or (self.slices[0] < other.slices[1] and other.slices[0] < self.slices[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """A prepared claim. `document` is its CDI specification.

    `together` is the CDI name for containers that use all requests of the claim at once; empty if there is only one
    request.
    """

    uid: str
    namespace: str
    name: str
    devices: tuple[PreparedDevice, ...]
    document: Document
    together: str = ""

    def __str__(self) -> str:
        return f"ResourceClaim {self.namespace}/{self.name}"

    def is_of(self, claim: Claim) -> bool:
        """Whether the claim still has the same devices for the same requests."""
        return [(each.pool, each.device, each.share_id, each.admin, each.requests) for each in self.devices] == [
            (each.pool, each.device, each.share_id, each.admin, (each.main_request,)) for each in claim.results
        ]

    def conflict(self, others: Iterable["PreparedClaim"]) -> str:
        """Why it cannot be prepared while these claims are, in a sentence; empty if it can."""
        for other in others:
            if other.uid == self.uid:
                continue
            for mine in self.devices:
                for its in other.devices:
                    if mine.excludes(its):
                        same = (mine.pool, mine.device) == (its.pool, its.device)
                        what = "it" if same else f"{its.device}, which is of the same physical device,"
                        return (
                            f"device {mine.device} of pool {mine.pool} cannot be given to {self}: {what} is prepared "
                            f"for {other}, whose pods have not ended"
                        )
        return ""
