"""The part of a ResourceClaim that concerns one driver: its uid, the devices that were allocated, its configuration.

Source: resource.k8s.io/v1. `allocation.devices.results` are those of all drivers; in `allocation.devices.config` the
classes come before the claim.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ClaimRefused
from ..model.device import EMPTY
from ..planning.cdi import Document


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationResult:
    """One device that was allocated for a request. `request` is its name, and after a slash the subrequest.

    `share_id` is empty for a device that is the claim's alone. `admin` access does not occupy the device. `consumed`
    is the capacity that a share takes, as quantities by name.
    """

    request: str
    pool: str
    device: str
    share_id: str = ""
    admin: bool = False
    consumed: Mapping[str, str] = field(default_factory=lambda: EMPTY)

    @property
    def main_request(self) -> str:
        """The request's name as the kubelet and containers use it."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueConfig:
    """Configuration for this driver; `requests` empty: for all of them. `where` names it in a sentence."""

    where: str
    requests: tuple[str, ...]
    parameters: object

    def covers(self, result: AllocationResult) -> bool:
        return not self.requests or bool({result.request, result.main_request} & {*self.requests})


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An allocated claim as one driver sees it."""

    uid: str
    namespace: str
    name: str
    results: tuple[AllocationResult, ...]
    configs: tuple[OpaqueConfig, ...] = ()


def read_claim(document: Mapping[str, Any], driver: str, *, uid: str) -> Claim:
    """What a ResourceClaim says to a driver. Raises ClaimRefused where it is another claim or is not allocated."""
    metadata = document["metadata"]
    namespace, name = metadata["namespace"], metadata["name"]
    if metadata.get("uid") != uid:
        raise ClaimRefused(
            f"ResourceClaim {namespace}/{name} is another one by now: its uid is {metadata.get('uid')}, and {uid} was "
            "to be prepared; delete the pod, so that a new one gets the new claim"
        )
    allocation = (document.get("status") or {}).get("allocation")
    if not allocation:
        raise ClaimRefused(f"ResourceClaim {namespace}/{name} has no allocation")
    devices = allocation.get("devices") or {}
    results = tuple(_result(each) for each in devices.get("results") or () if each["driver"] == driver)
    if not results:
        raise ClaimRefused(f"no device of driver {driver} is allocated to ResourceClaim {namespace}/{name}")
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
        where="the device class" if given["source"] == "FromClass" else "the claim",
        requests=tuple(given.get("requests") or ()),
        parameters=given["opaque"].get("parameters"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """One device of a claim. `requests` are names as the kubelet uses them, `cdi` fully qualified names.

    `id` is the device's own id, `raw` that of the physical device; `slices` is the range of memory slices that it has
    of that, (0, 0) for all of it. `record` is what a process needs to publish it though it is away. `ignored` are the
    kinds of configuration that the driver ignored.
    """

    pool: str
    device: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]
    share_id: str = ""
    admin: bool = False
    id: str = ""
    raw: str = ""
    slices: tuple[int, int] = (0, 0)
    record: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    def excludes(self, other: "PreparedDevice") -> bool:
        """Whether a device of another claim cannot be had at the same time."""
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
    """A claim that is prepared. `document` is its CDI specification.

    `together` is the CDI name of what a container gets that uses all requests of the claim at once; empty if there is
    only one request.
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
        """Whether it is what the claim is allocated now: the same devices for the same requests."""
        return [(each.pool, each.device, each.share_id, each.admin, each.requests) for each in self.devices] == [
            (each.pool, each.device, each.share_id, each.admin, (each.main_request,)) for each in claim.results
        ]

    def conflict(self, others: Iterable["PreparedClaim"]) -> str:
        """Why it cannot be prepared beside these, in a sentence; the empty string where it can."""
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
