"""`vdev allocate --claim`: which devices a claim gets, and what the runtime injects, without a cluster.

Claims without an allocation are allocated by the embedded scheduler, which takes the first devices that fit.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from ..config import text_of
from ..dra import slices as cutting
from ..dra.claim import read_claim
from ..dra.device_classes import device_classes
from ..dra.preparation import prepare
from ..errors import AllocationError, UsageError
from ..importers.draft import mapping
from ..planning import cdi
from ..sim.objects import yaml_text
from . import common, plan

Document = dict[str, Any]
# The errors that a malformed claim causes.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)


def answers(path: Path, seen: plan.Preview) -> tuple[Document, Iterator[str]]:
    """The answers for the claims of a file, and the same as lines for people. Raises AllocationError and UsageError."""
    try:
        claims, classes = _read(path)
        _allocate(claims, classes, seen)
        documents = [_document(seen, claim) for claim in claims]
    except _MALFORMED as wrong:
        raise UsageError(f"{path}: an API server would not take these claims or classes: {wrong!r}") from wrong
    return {"claims": documents}, _lines(documents)


# --- the file ---------------------------------------------------------------------------------------------------------


def _read(path: Path) -> tuple[list[Document], dict[str, Document]]:
    """The claims of the file in order, and its DeviceClasses by name."""
    try:
        documents = [document for _, document in yaml_text.numbered_documents(text_of(path))]
    except yaml.YAMLError as wrong:
        raise UsageError(f"{path} is not YAML: {' '.join(str(wrong).split())}") from wrong
    claims: list[Document] = []
    classes: dict[str, Document] = {}
    for each in _flat(documents):
        name = mapping(each.get("metadata")).get("name") or "claim"
        match each.get("kind"):
            case "ResourceClaim" | "ResourceClaimTemplate" as kind:
                claims.append(_claim(each, str(name), is_template=kind == "ResourceClaimTemplate"))
            case "DeviceClass":
                classes[str(name)] = each
    if not claims:
        raise UsageError(f"{path} has no ResourceClaim and no ResourceClaimTemplate")
    return claims, classes


def _flat(documents: Sequence[object]) -> Iterator[Document]:
    """Yield the objects. A list is replaced by its items."""
    for each in documents:
        if isinstance(each, dict):
            items = each.get("items")
            yield from _flat(items) if isinstance(items, list) else (each,)


def _claim(document: Document, name: str, *, is_template: bool) -> Document:
    given = mapping(document.get("metadata"))
    namespace = str(given.get("namespace") or "default")
    uid = str(given.get("uid") or uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}"))
    spec = mapping(document.get("spec"))
    return {
        "metadata": {**given, "namespace": namespace, "name": name, "uid": uid},
        "spec": mapping(spec.get("spec")) if is_template else spec,
        "status": mapping(document.get("status")),
    }


# --- the allocation ---------------------------------------------------------------------------------------------------


def _allocate(claims: list[Document], classes: dict[str, Document], seen: plan.Preview) -> None:
    """Allocate the claims that have no allocation. Raises AllocationError."""
    waiting = [claim for claim in claims if not claim["status"].get("allocation")]
    if not waiting:
        return
    from ..sim.api import validation  # not needed for --help; it imports gRPC
    from ..sim.dra import cel_selectors, pools
    from ..sim.dra.allocator import Allocator, UnschedulableError
    from ..sim.objects.pod_manifest import ManifestError

    def matches(expression: str, driver: str, device: Mapping[str, Any]) -> bool:
        try:
            return cel_selectors.matches(expression, driver, device)
        except cel_selectors.NotInstalled as missing:
            raise UsageError(str(missing)) from missing  # not an error of the claim
        except cel_selectors.CompileError as wrong:
            raise UsageError(f"an API server would not take the selector {expression!r}: {wrong}") from wrong

    slices = [each for pool in seen.plan.pools.values() for each in cutting.objects(pool, seen.node)]
    offered = pools.gather(slices, seen.node)
    of_file, _ = device_classes(seen.plan.observed.spec)
    known_classes = {each.name: each.document for each in of_file} | classes
    scheduler = Allocator(offered, known_classes, claims, matches=matches)
    try:
        for claim in waiting:
            if not claim["spec"]["devices"]["requests"]:
                raise UsageError(f"the claim {claim['metadata']['name']} has no requests")
            if wrong := validation.wrong_fields("ResourceClaim", {"spec": claim["spec"]}):
                problems = "; ".join(f"{field}: {why}" for field, why in wrong)
                raise UsageError(f"an API server would not take the claim {claim['metadata']['name']}: {problems}")
        allocations = scheduler.allocate(waiting)
    except UnschedulableError as nothing:
        known = ", ".join(sorted(known_classes)) or "none"
        raise AllocationError(f"{nothing}; the DeviceClasses of the configuration and of the file: {known}") from None
    except ManifestError as wrong:
        raise UsageError(f"an API server would not take these claims or classes: {wrong}") from wrong
    for claim, allocation in zip(waiting, allocations, strict=True):
        claim["status"] = {"allocation": allocation}


# --- the answers ------------------------------------------------------------------------------------------------------


def _document(seen: plan.Preview, claim: Document) -> Document:
    """An allocated claim with the answer of each driver; null for a driver that is not on this node.

    An answer has the devices, in the JSON form of `v1.NodePrepareResourceResponse`, and the CDI specification. Raises
    AllocationError.
    """
    allocation = claim["status"]["allocation"]
    drivers = dict.fromkeys(str(each.get("driver")) for each in allocation.get("devices", {}).get("results") or ())
    return {
        "namespace": claim["metadata"]["namespace"],
        "name": claim["metadata"]["name"],
        "allocation": allocation,
        "drivers": {each: _answer(seen, claim, each) if each in seen.plan.pools else None for each in drivers},
    }


def _answer(seen: plan.Preview, claim: Document, driver: str) -> Document:
    own = read_claim(claim, driver, uid=str(claim["metadata"].get("uid")))
    prepared = prepare(own, seen.plan.pools[driver], seen.node)
    devices = [
        {
            "requestNames": list(each.requests),
            "poolName": each.pool,
            "deviceName": each.device,
            "cdiDeviceIds": list(each.cdi),
            "shareId": each.share_id,
        }
        for each in prepared.devices
    ]
    return {"devices": devices, "cdi": prepared.document}


def _lines(claims: Sequence[Document]) -> Iterator[str]:
    for claim in claims:
        yield f"claim {claim['namespace']}/{claim['name']}"
        for driver, answer in claim["drivers"].items():
            if answer is None:
                yield f"  {driver}: another driver prepares its devices"
                continue
            for each in answer["devices"]:
                yield f"  device      {each['deviceName']} of {driver} for {' '.join(each['requestNames'])}"
                yield from (f"    cdi       {name}" for name in each["cdiDeviceIds"])
            yield from common.cdi_lines(cdi.edits_by_name(answer["cdi"]))
