"""The part of a ResourceClaim that concerns one driver: its uid, the devices that were allocated, its configuration.

Source: resource.k8s.io/v1. `allocation.devices.results` are those of all drivers; in `allocation.devices.config` the
classes come before the claim.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ClaimRefused
from ..model.device import EMPTY

_EXTENDED = "resource.kubernetes.io/extended-resource-claim"  # an annotation: containers name its requests one by one


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
    """An allocated claim as one driver sees it. `by_request`: each container names the requests that it uses."""

    uid: str
    namespace: str
    name: str
    results: tuple[AllocationResult, ...]
    configs: tuple[OpaqueConfig, ...] = ()
    by_request: bool = False


def read_claim(document: Mapping[str, Any], driver: str, *, uid: str) -> Claim:
    """What a ResourceClaim says to a driver. Raises ClaimRefused where it is another claim or is not allocated."""
    metadata = _mapping(document.get("metadata"))
    namespace, name = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
    if metadata.get("uid") != uid:
        raise ClaimRefused(
            f"ResourceClaim {namespace}/{name} is another one by now: its uid is {metadata.get('uid')}, and {uid} was "
            "to be prepared; delete the pod, so that a new one gets the new claim"
        )
    allocation = _mapping(_mapping(document.get("status")).get("allocation"))
    if not allocation:
        raise ClaimRefused(f"ResourceClaim {namespace}/{name} has no allocation")
    devices = _mapping(allocation.get("devices"))
    results = tuple(_result(each) for each in _mappings(devices.get("results")) if each.get("driver") == driver)
    if not results:
        raise ClaimRefused(f"no device of driver {driver} is allocated to ResourceClaim {namespace}/{name}")
    configs = [each for each in _mappings(devices.get("config")) if _opaque(each).get("driver") == driver]
    return Claim(
        uid=uid,
        namespace=namespace,
        name=name,
        results=results,
        configs=tuple(_config(each) for each in sorted(configs, key=lambda each: each.get("source") != "FromClass")),
        by_request=_mapping(metadata.get("annotations")).get(_EXTENDED) == "true",
    )


def _result(given: Mapping[str, Any]) -> AllocationResult:
    return AllocationResult(
        request=str(given.get("request", "")),
        pool=str(given.get("pool", "")),
        device=str(given.get("device", "")),
        share_id=str(given.get("shareID") or ""),
        admin=given.get("adminAccess") is True,
        consumed={str(name): str(value) for name, value in _mapping(given.get("consumedCapacity")).items()},
    )


def _config(given: Mapping[str, Any]) -> OpaqueConfig:
    requests = given.get("requests")
    return OpaqueConfig(
        where="the device class" if given.get("source") == "FromClass" else "the claim",
        requests=tuple(map(str, requests)) if isinstance(requests, list) else (),
        parameters=_opaque(given).get("parameters"),
    )


def _opaque(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(given.get("opaque"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: object) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())
