"""Checks the messages of DRA drivers for mistakes that the real kubelet accepts silently. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...model.names import driver_problem
from ...pb import dra_health_v1alpha1_pb2 as health_api
from ..lint import SUN_PATH_LIMIT, Finding, cdi_name, error, twice, warning

if TYPE_CHECKING:
    from .driver_registry import PreparedDevice

_POSSIBLE_REQUEST = re.compile(r"[A-Za-z0-9]")  # every request name contains one of these


def registration(name: str, endpoint: str, versions: Sequence[str]) -> Iterator[Finding]:
    if problem := driver_problem(name):
        yield error("driver-name", name, problem)
    if not endpoint.startswith("/"):
        yield error("endpoint-relative", name, f"endpoint {endpoint!r}: expected an absolute path")
    if len(endpoint.encode()) > SUN_PATH_LIMIT:
        text = f"the path of the endpoint has {len(endpoint.encode())} bytes; at most {SUN_PATH_LIMIT} are allowed"
        yield error("socket-path-too-long", name, text)
    known = [each for each in versions if each in ("v1.DRAPlugin", "v1beta1.DRAPlugin")]
    if known[:1] == ["v1beta1.DRAPlugin"] and "v1.DRAPlugin" in known:
        text = "v1beta1.DRAPlugin is listed before v1.DRAPlugin: the kubelet uses the first, which has no shares"
        yield warning("service-order", name, text)


def health(driver: str, message: health_api.NodeWatchResourcesResponse) -> Iterator[Finding]:
    """Check a message of the health stream. Each message is the complete list."""
    ids = [(each.device.pool_name, each.device.device_name) for each in message.devices]
    if repeated := twice(ids):
        yield error("health-twice", driver, f"the health stream names {repeated[0]} twice; only the last counts")
    if any(not pool or not device for pool, device in ids):
        yield error("health-nameless", driver, "the health stream has a device without pool or name")


def keys(driver: str, method: str, asked: Mapping[str, str], answered: Sequence[str]) -> Iterator[Finding]:
    """Check the claim UIDs of a response. `asked` maps the UIDs in the request to names."""
    if skipped := sorted(asked[uid] for uid in asked.keys() - set(answered)):
        yield error("claim-skipped", driver, f"the answer to {method} leaves out claim {skipped[0]}")
    if unknown := sorted(set(answered) - asked.keys()):
        yield error("claim-unknown", driver, f"the answer to {method} has claim UID {unknown[0]!r}, not in the request")


def prepared(
    driver: str, claim: str, devices: "Sequence[PreparedDevice]", results: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Check the devices of a prepared claim against its allocation.

    A driver may return an impossible request name such as `*` for containers that use the claim as a whole.
    """
    allocated = {(each["pool"], each["device"], each.get("shareID") or "") for each in results}
    requests = {each["request"].partition("/")[0] for each in results}
    answered = [(each.pool, each.device, each.share) for each in devices]
    if strange := sorted(set(answered) - allocated):
        text = f"claim {claim}: {'/'.join(strange[0]).rstrip('/')} was prepared, but is not allocated"
        yield error("prepared-not-allocated", driver, text)
    if missing := sorted(allocated - set(answered)):
        text = f"claim {claim}: {'/'.join(missing[0]).rstrip('/')} is allocated, but was not prepared"
        yield error("allocated-not-prepared", driver, text)
    for each in devices:
        if wrong := [name for name in each.requests if name not in requests and _POSSIBLE_REQUEST.search(name)]:
            text = f"claim {claim}: request {wrong[0]!r} of device {each.device}: expected one of {sorted(requests)}"
            yield error("request-name", driver, text)
        for name in each.cdi:
            if problem := cdi_name(name):
                yield error("cdi-name", driver, f"claim {claim}: CDI device {name!r}: {problem}")


def reused_cdi(
    driver: str, claim: str, devices: "Sequence[PreparedDevice]", others: "Mapping[str, Sequence[PreparedDevice]]"
) -> Iterator[Finding]:
    """Check that no other prepared claim has the same CDI names, because the runtime may cache their content."""
    mine = {name for each in devices for name in each.cdi}
    for other, theirs in others.items():
        if shared := sorted(mine & {name for each in theirs for name in each.cdi}):
            text = f"claim {claim} and claim {other} have the same CDI device {shared[0]}; put the claim's UID into it"
            yield warning("cdi-name-shared", driver, text)


def repeated(driver: str, method: str, claim: str, first: Any, second: Any) -> Iterator[Finding]:
    """Compare two responses to the same call. For the second NodeUnprepareResources, the claim is unknown."""
    if first == second:
        return
    if method == "NodePrepareResources":
        text = f"claim {claim}: two calls of {method} had different answers: {first}, then {second}"
        yield error("prepare-not-idempotent", driver, text)
    else:
        text = f"claim {claim}: {method} must succeed for an unknown claim, but answered: {second}"
        yield error("unprepare-unknown", driver, text)
