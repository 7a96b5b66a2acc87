"""The parts of a cluster that DRA needs: the controller that creates claims from templates, and the scheduler.

The scheduler allocates a pod's claims, including a special claim for its extended resources, and reserves them for the
pod. Both undo this when the pod has ended.
"""

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from ..api.api_objects import ApiObjects
from ..api.kinds import Document
from ..journal import Journal
from ..lint import Finding
from ..objects.pods import ExtendedClaim, Kind, PodSpec
from . import cel_selectors, slice_lint
from .allocator import Allocator, UnschedulableError
from .pools import gather

_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"
_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True, slots=True)
class _Limit:
    """A container's limit of an extended resource that a DeviceClass serves."""

    container: str
    resource: str
    request: str  # in the claim for extended resources
    device_class: str
    count: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The claims of a pod: their names by the name in the pod, and the claim for its extended resources."""

    claims: Mapping[str, str]
    extended: ExtendedClaim | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.claims.values(), *([self.extended.name] if self.extended else []))


class Cluster:
    """The controllers and the scheduler, for one node."""

    def __init__(self, objects: ApiObjects, node: str, journal: Journal) -> None:
        self._objects = objects
        self._node = node
        self._journal = journal
        self._lock = asyncio.Lock()  # a pod that is being scheduled is released afterwards, never in between
        self._slices: list[Document] = []  # as last checked

    async def claims(self, pod: PodSpec) -> dict[str, str]:
        """A pod's claims by the name in the pod; creates those of templates. Raises UnschedulableError."""
        async with self._lock:
            return await self._claims(pod)

    async def _claims(self, pod: PodSpec) -> dict[str, str]:
        found = {}
        claims = await self._objects.list("ResourceClaim")
        existing = {_name_in_pod(each, pod): each["metadata"]["name"] for each in claims}
        for claim in pod.claims:
            name = claim.claim or existing.get(claim.name) or await self._from_template(pod, claim.name, claim.template)
            found[claim.name] = name
        return found

    async def _from_template(self, pod: PodSpec, name: str, template_name: str) -> str:
        template = await self._objects.get("ResourceClaimTemplate", template_name, pod.namespace)
        if template is None:
            text = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            raise UnschedulableError(f"failed to create ResourceClaim: {text}")
        meta = dict(template["spec"].get("metadata") or {})
        meta["annotations"] = {**(meta.get("annotations") or {}), _CLAIM_NAME: name}
        return await self._create(pod, f"{pod.name}-{name}-", meta, template["spec"]["spec"])

    async def _create(self, pod: PodSpec, prefix: str, meta: Mapping[str, Any], spec: Document) -> str:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        metadata = {**meta, "generateName": prefix, "namespace": pod.namespace, "ownerReferences": [owner]}
        created = await self._objects.create("ResourceClaim", {"metadata": metadata, "spec": spec})
        return str(created["metadata"]["name"])

    async def concerns(self, pod: PodSpec, allocatable: Mapping[str, Decimal]) -> bool:
        """Whether a pod has claims, or an extended resource that a DeviceClass serves and no device plugin does."""
        return bool(pod.claims or await self.served(pod, allocatable))

    async def served(self, pod: PodSpec, allocatable: Mapping[str, Decimal]) -> set[str]:
        """The extended resources of a pod that claims would serve."""
        return {limit.resource for limit in _limits(pod, await self._objects.list("DeviceClass"), allocatable)}

    async def schedule(self, pod: PodSpec, allocatable: Mapping[str, Decimal]) -> Bound:
        """Allocate and reserve the claims of a pod. Raises UnschedulableError."""
        async with self._lock:
            names = await self._claims(pod)
            classes = await self._objects.list("DeviceClass")
            limits = _limits(pod, classes, allocatable)
            claims = [await self._claim(pod, name) for name in dict.fromkeys(names.values())]
            unallocated = [each for each in claims if not (each.get("status") or {}).get("allocation")]
            extended = await self._allocate(unallocated, classes, pod, limits)
            for name in (*dict.fromkeys(names.values()), *([extended.name] if extended else [])):
                await self._objects.edit("ResourceClaim", name, pod.namespace, lambda claim: _reserve(claim, pod))
            return Bound(names, extended)

    async def _claim(self, pod: PodSpec, name: str) -> Document:
        claim = await self._objects.get("ResourceClaim", name, pod.namespace)
        if claim is None:
            raise UnschedulableError(f'resourceclaim.resource.k8s.io "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            raise UnschedulableError(f'resourceclaim "{name}" is being deleted')
        return claim

    async def _allocate(
        self, claims: list[Document], classes: list[Document], pod: PodSpec, limits: list[_Limit]
    ) -> ExtendedClaim | None:
        """Allocate claims, and create and allocate the claim for extended resources; all or none."""
        wanted = [*claims, *([_extended_claim(pod, limits)] if limits else [])]
        if not wanted:
            return None
        pools = gather(await self._objects.list("ResourceSlice"), self._node, {"kubernetes.io/hostname": self._node})
        by_name = {each["metadata"]["name"]: each for each in classes}
        others = await self._objects.list("ResourceClaim")
        allocator = Allocator(pools, by_name, others, matches=cel_selectors.matches)
        allocations = await asyncio.to_thread(allocator.allocate, wanted, self._node)
        for claim, allocation in zip(claims, allocations, strict=False):
            await self._write(claim["metadata"]["name"], claim["metadata"]["namespace"], allocation)
        if not limits:
            return None
        meta = {"annotations": {_EXTENDED: "true"}}
        name = await self._create(pod, f"{pod.name}-extended-resources-", meta, wanted[-1]["spec"])
        await self._write(name, pod.namespace, allocations[-1])
        return ExtendedClaim(name, tuple((each.container, each.resource, each.request) for each in limits))

    async def _write(self, name: str, namespace: str, allocation: Document) -> None:
        await self._objects.edit("ResourceClaim", name, namespace, functools.partial(_allocated, allocation))
        results = allocation["devices"].get("results", ())
        devices = [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]
        self._journal.note_claim(f"{namespace}/{name}", "allocated", devices)

    # --- the end of a pod ---------------------------------------------------------------------------------------------

    async def release(self, pod: PodSpec) -> None:
        """Delete the claims that belong to a pod, and end its use of others; unused claims are deallocated."""
        async with self._lock:
            for claim in await self._objects.list("ResourceClaim"):
                name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
                users = (claim.get("status") or {}).get("reservedFor") or []
                if any(each.get("uid") == pod.uid for each in claim["metadata"].get("ownerReferences") or []):
                    await self._objects.delete("ResourceClaim", name, namespace)
                elif any(each["uid"] == pod.uid for each in users):
                    await self._objects.edit("ResourceClaim", name, namespace, lambda each: _release(each, pod))
                else:
                    continue
                self._journal.note_claim(f"{namespace}/{name}", "released")

    # --- slices -------------------------------------------------------------------------------------------------------

    async def check_slices(self) -> None:
        """Report mistakes in the slices that this node can use, if these have changed."""
        slices = await self._own_slices()
        if slices != self._slices:
            self._slices = slices
            self._journal.find(slice_lint.check_all(slices))

    async def incomplete_pools(self) -> list[Finding]:
        """The pools that are incomplete or outdated now. That is a mistake only if it lasts."""
        return list(slice_lint.check_complete(await self._own_slices()))

    async def _own_slices(self) -> list[Document]:
        """All slices but those of other nodes."""
        slices = await self._objects.list("ResourceSlice")
        return [each for each in slices if each["spec"].get("nodeName") in (None, "", self._node)]


def _name_in_pod(claim: Document, pod: PodSpec) -> str:
    """The name in the pod of a claim that was created for it, empty for other claims."""
    meta = claim["metadata"]
    if any(each.get("uid") == pod.uid for each in meta.get("ownerReferences") or []):
        return str((meta.get("annotations") or {}).get(_CLAIM_NAME, ""))
    return ""


def _limits(pod: PodSpec, classes: list[Document], allocatable: Mapping[str, Decimal]) -> list[_Limit]:
    """The limits of a pod that DRA serves. Requests are named as in Kubernetes, init containers first."""
    by_resource: dict[str, str] = {}
    for each in sorted(classes, key=lambda each: str(each["metadata"].get("creationTimestamp", ""))):
        name = each["metadata"]["name"]
        by_resource[f"{_IMPLICIT}{name}"] = name
        if resource := (each.get("spec") or {}).get("extendedResourceName"):
            by_resource[resource] = name  # of two classes the newer one wins
    found = []
    for number, container in enumerate(sorted(pod.containers, key=lambda each: each.kind is Kind.APP)):
        for index, resource in enumerate(sorted(name for name in container.limits if "/" in name)):
            count = container.limits[resource]
            if count and resource in by_resource and not allocatable.get(resource):
                request = f"container-{number}-request-{index}"
                found.append(_Limit(container.name, resource, request, by_resource[resource], count))
    return found


def _extended_claim(pod: PodSpec, limits: list[_Limit]) -> dict[str, Any]:
    """A claim for the extended resources of a pod."""
    requests = [
        {
            "name": each.request,
            "exactly": {"deviceClassName": each.device_class, "allocationMode": "ExactCount", "count": each.count},
        }
        for each in limits
    ]
    meta = {"name": f"{pod.name}-extended-resources", "namespace": pod.namespace}
    return {"metadata": meta, "spec": {"devices": {"requests": requests}}}


def _allocated(allocation: Document, claim: dict[str, Any]) -> None:
    claim.setdefault("status", {})["allocation"] = allocation


def _reserve(claim: dict[str, Any], pod: PodSpec) -> None:
    users = claim.setdefault("status", {}).setdefault("reservedFor", [])
    if all(each["uid"] != pod.uid for each in users):
        users.append({"resource": "pods", "name": pod.name, "uid": pod.uid})


def _release(claim: dict[str, Any], pod: PodSpec) -> None:
    status = claim.setdefault("status", {})
    status["reservedFor"] = [each for each in status.get("reservedFor") or [] if each["uid"] != pod.uid]
    if not status["reservedFor"]:
        claim["status"] = {}
