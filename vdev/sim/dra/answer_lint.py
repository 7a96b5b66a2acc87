"""Rules for what DRA drivers say of themselves and answer, where the real kubelet has no word for it. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...pb import dra_health_v1alpha1_pb2 as health_api
from ..lint import SUN_PATH_LIMIT, Finding, cdi_name, error, twice, warning
from .claim_checkpoint import PreparedDevice

_DRIVER = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LONGEST_DRIVER = 63
_NAMED = re.compile(r"[A-Za-z0-9]")  # something of a name
_NO_SERVICE = "code = Unimplemented"


def registration(name: str, endpoint: str, versions: Sequence[str]) -> Iterator[Finding]:
    """Of what GetInfo says."""
    if not _DRIVER.fullmatch(name) or len(name) > _LONGEST_DRIVER:
        text = f"{name!r} is not a driver's name: a DNS subdomain of at most {_LONGEST_DRIVER} lower-case characters"
        yield error("driver-name", name, text)
    if not endpoint.startswith("/"):
        yield error("endpoint-relative", name, f"endpoint {endpoint!r}: expected an absolute path")
    if len(endpoint.encode()) > SUN_PATH_LIMIT:
        text = f"the path of the endpoint has {len(endpoint.encode())} bytes; at most {SUN_PATH_LIMIT} are allowed"
        yield error("socket-path-too-long", name, text)
    known = [each for each in versions if each in ("v1.DRAPlugin", "v1beta1.DRAPlugin")]
    if known[:1] == ["v1beta1.DRAPlugin"] and "v1.DRAPlugin" in known:
        text = "v1beta1.DRAPlugin is listed before v1.DRAPlugin: the kubelet takes the first, which has no shares"
        yield warning("service-order", name, text)


def health(driver: str, message: health_api.NodeWatchResourcesResponse) -> Iterator[Finding]:
    """Of a message of the health stream, which is the complete list."""
    ids = [(each.device.pool_name, each.device.device_name) for each in message.devices]
    if repeated := twice(ids):
        yield error("health-twice", driver, f"the health stream names {repeated[0]} twice; only the last counts")
    if any(not pool or not device for pool, device in ids):
        yield error("health-nameless", driver, "the health stream has a device without pool or name")


def health_ended(driver: str, error: str) -> Iterator[Finding]:
    """Of the end of the health stream."""
    if _NO_SERVICE in error:
        text = "the driver does not serve v1alpha1.DRAResourceHealth: a 1.36 kubelet logs an error every 5 s"
        yield warning("health-unserved", driver, text)


def keys(driver: str, method: str, asked: Mapping[str, str], answered: Sequence[str]) -> Iterator[Finding]:
    """Of the claims that an answer is about. `asked` are names by UID."""
    if skipped := sorted(asked[uid] for uid in asked.keys() - set(answered)):
        yield error("claim-skipped", driver, f"{method} says nothing about claim {skipped[0]}, which was asked for")
    if unknown := sorted(set(answered) - asked.keys()):
        yield error("claim-unknown", driver, f"{method} answers for claim UID {unknown[0]!r}, which was not asked for")


def prepared(
    driver: str, claim: str, devices: Sequence[PreparedDevice], results: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Of the devices of a prepared claim against its allocation.

    A request of a name like `*`, which none can have, is meant for containers that use the claim as a whole.
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
        if wrong := [name for name in each.requests if name not in requests and _NAMED.search(name)]:
            text = f"claim {claim}: request {wrong[0]!r} of device {each.device}: expected of {sorted(requests)}"
            yield error("request-name", driver, text)
        for name in each.cdi:
            if problem := cdi_name(name):
                yield error("cdi-name", driver, f"claim {claim}: CDI device {name!r}: {problem}")


def reused_cdi(
    driver: str, claim: str, devices: Sequence[PreparedDevice], others: Mapping[str, Sequence[PreparedDevice]]
) -> Iterator[Finding]:
    """Of CDI names that another prepared claim has as well: the runtime may have its content."""
    mine = {name for each in devices for name in each.cdi}
    for other, theirs in others.items():
        if shared := sorted(mine & {name for each in theirs for name in each.cdi}):
            text = f"claim {claim} and claim {other} have the same CDI device {shared[0]}; put the claim's UID into it"
            yield warning("cdi-name-shared", driver, text)


def unresolved(driver: str, names: Sequence[str]) -> Iterator[Finding]:
    """Of CDI names in an answer that no CDI spec has when the answer is there."""
    if names:
        text = f"CDI device {names[0]} does not resolve; the runtime will refuse the container"
        yield error("cdi-unresolved", driver, text)


def again(driver: str, claim: str, first: Any, second: Any) -> Iterator[Finding]:
    """Of the second answer to the same NodePrepareResources."""
    if first != second:
        text = f"claim {claim}: asked twice, NodePrepareResources answers differently: {first}, then {second}"
        yield error("prepare-not-idempotent", driver, text)


def unprepared_again(driver: str, claim: str, said: str) -> Iterator[Finding]:
    """Of NodeUnprepareResources for a claim that the driver does not know any more."""
    if said:
        text = f"claim {claim}: NodeUnprepareResources must succeed for a claim that is not known, and said: {said}"
        yield error("unprepare-unknown", driver, text)
