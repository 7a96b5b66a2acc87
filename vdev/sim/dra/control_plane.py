"""What a cluster does around the kubelet: the controller that makes claims from templates, and the scheduler.

The scheduler allocates a pod's claims, the hidden one of its extended resources too, and reserves them for the pod.
Both undo that when a pod has ended or is gone.
"""

import asyncio
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from ..api.kinds import Document
from ..api.server_objects import ServerObjects
from ..journal import Journal
from ..lint import Finding
from ..objects.pods import ExtendedClaim, Kind, PodSpec
from . import cel_selectors, slice_lint
from .allocator import Allocator, UnschedulableError
from .pools import gather

_Asked: TypeAlias = tuple[str, str, str, str, int]  # container, resource, request, class, count
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"


@dataclass(frozen=True, slots=True)
class Bound:
    """A pod that has all its claims: their names by the name in the pod, and the extended resources' one."""

    claims: Mapping[str, str]
    extended: ExtendedClaim | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The claims' names."""
        return (*self.claims.values(), *([self.extended.name] if self.extended else []))


class Cluster:
    """The controllers and the scheduler, for one node."""

    def __init__(self, objects: ServerObjects, node: str, journal: Journal) -> None:
        self._objects = objects
        self._node = node
        self._journal = journal
        self._lock = asyncio.Lock()  # a pod is released after what is made for it, never in between
        self._slices: list[Document] = []  # as last seen

    async def claims(self, pod: PodSpec) -> dict[str, str]:
        """A pod's claims by the name in the pod; those of templates are made. Raises UnschedulableError."""
        async with self._lock:
            return await self._claims(pod)

    async def _claims(self, pod: PodSpec) -> dict[str, str]:
        found = {}
        existing = {_for(each, pod): each["metadata"]["name"] for each in await self._objects.list("ResourceClaim")}
        for claim in pod.claims:
            name = claim.claim or existing.get(claim.name) or await self._from_template(pod, claim.name, claim.template)
            found[claim.name] = name
        return found

    async def _from_template(self, pod: PodSpec, name: str, template_name: str) -> str:
        template = await self._objects.get("ResourceClaimTemplate", template_name, pod.namespace)
        if template is None:
            raise UnschedulableError(
                f'failed to create ResourceClaim: resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            )
        meta = dict(template["spec"].get("metadata") or {})
        meta["annotations"] = {**(meta.get("annotations") or {}), "resource.kubernetes.io/pod-claim-name": name}
        return await self._create(pod, f"{pod.name}-{name}-", meta, template["spec"]["spec"])

    async def _create(self, pod: PodSpec, prefix: str, meta: Mapping[str, Any], spec: Document) -> str:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        metadata = {**meta, "generateName": prefix, "namespace": pod.namespace, "ownerReferences": [owner]}
        document = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}
        return str((await self._objects.create("ResourceClaim", document))["metadata"]["name"])

    async def concerns(self, pod: PodSpec, allocatable: Mapping[str, Decimal]) -> bool:
        """Whether a pod has claims, or asks for an extended resource that a DeviceClass has and no device plugin."""
        return bool(pod.claims or await self.served(pod, allocatable))

    async def served(self, pod: PodSpec, allocatable: Mapping[str, Decimal]) -> set[str]:
        """The extended resources of a pod that claims would serve."""
        return {resource for _, resource, *_ in self._extended(pod, await self._classes(), allocatable)}

    async def schedule(self, pod: PodSpec, allocatable: Mapping[str, Decimal]) -> Bound:
        """Give the pod its claims, allocated and reserved. Raises UnschedulableError."""
        async with self._lock:
            names = await self._claims(pod)
            classes = await self._classes()
            asked = self._extended(pod, classes, allocatable)
            found = [await self._claim(pod, name) for name in dict.fromkeys(names.values())]
            unallocated = [each for each in found if not (each.get("status") or {}).get("allocation")]
            hidden = await self._allocate(unallocated, classes, pod, asked)
            extended = None if hidden is None else await self._extended_claim(pod, asked, hidden)
            for name in dict.fromkeys(names.values()):
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
        self, claims: list[Document], classes: Mapping[str, Document], pod: PodSpec, asked: list[_Asked]
    ) -> dict[str, Any] | None:
        """Allocate claims and the hidden one of extended resources, all or none; returns the latter's allocation."""
        hidden = [_hidden(pod, asked)] if asked else []
        if not claims and not hidden:
            return None
        pools = gather(await self._objects.list("ResourceSlice"), self._node, {"kubernetes.io/hostname": self._node})
        others = await self._objects.list("ResourceClaim")
        allocator = Allocator(pools, classes, others, matches=cel_selectors.matches)
        allocations = await asyncio.to_thread(allocator.allocate, [*claims, *hidden], self._node)
        for claim, allocation in zip(claims, allocations, strict=False):
            meta = claim["metadata"]
            await self._objects.edit(
                "ResourceClaim", meta["name"], meta["namespace"], functools.partial(_give, allocation)
            )
            self._journal.tell_claim(f"{meta['namespace']}/{meta['name']}", "allocated", _devices(allocation))
        return allocations[-1] if hidden else None

    # --- extended resources -----------------------------------------------------------------------------------------

    def _extended(
        self, pod: PodSpec, classes: Mapping[str, Document], allocatable: Mapping[str, Decimal]
    ) -> list[_Asked]:
        """What is served by DRA of a pod's limits."""
        by_resource: dict[str, str] = {}
        for name, each in sorted(classes.items(), key=lambda row: str(row[1]["metadata"].get("creationTimestamp", ""))):
            by_resource[f"{_IMPLICIT}{name}"] = name
            if resource := (each.get("spec") or {}).get("extendedResourceName"):
                by_resource[resource] = name  # the newer wins
        found = []
        inits = [c for c in pod.containers if c.kind is not Kind.APP]
        apps = [c for c in pod.containers if c.kind is Kind.APP]
        for number, container in enumerate([*inits, *apps]):
            for index, resource in enumerate(sorted(r for r in container.limits if "/" in r)):
                count = container.limits[resource]
                if count and resource in by_resource and not allocatable.get(resource):
                    request = f"container-{number}-request-{index}"
                    found.append((container.name, resource, request, by_resource[resource], count))
        return found

    async def _extended_claim(self, pod: PodSpec, asked: list[_Asked], allocation: dict[str, Any]) -> ExtendedClaim:
        meta = {"annotations": {_EXTENDED: "true"}}
        name = await self._create(pod, f"{pod.name}-extended-resources-", meta, _hidden(pod, asked)["spec"])
        await self._objects.edit("ResourceClaim", name, pod.namespace, functools.partial(_give, allocation))
        await self._objects.edit("ResourceClaim", name, pod.namespace, lambda claim: _reserve(claim, pod))
        self._journal.tell_claim(f"{pod.namespace}/{name}", "allocated", _devices(allocation))
        return ExtendedClaim(name, tuple((container, resource, request) for container, resource, request, *_ in asked))

    async def _classes(self) -> dict[str, Document]:
        return {each["metadata"]["name"]: each for each in await self._objects.list("DeviceClass")}

    # --- the end ----------------------------------------------------------------------------------------------------

    async def release(self, pod: PodSpec) -> None:
        """Give back what a pod had that has ended: its own claims go, others are free when nobody uses them."""
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
                self._journal.tell_claim(f"{namespace}/{name}", "released")

    async def look(self) -> None:
        """Report mistakes in the slices that this node can use, if one of them is new, changed or gone."""
        slices = await self._own_slices()
        if slices != self._slices:
            self._slices = slices
            self._journal.find(slice_lint.check_all(slices))

    async def incomplete(self) -> list[Finding]:
        """What is wrong with pools now, and a mistake only if it stays so."""
        return list(slice_lint.check_complete(await self._own_slices()))

    async def _own_slices(self) -> list[Document]:
        """All but those of other nodes."""
        found = await self._objects.list("ResourceSlice")
        return [each for each in found if each["spec"].get("nodeName") in (None, "", self._node)]


def _for(claim: Document, pod: PodSpec) -> str:
    """The name in the pod of a claim that was made for it, empty for others."""
    meta = claim["metadata"]
    if any(each.get("uid") == pod.uid for each in meta.get("ownerReferences") or []):
        return str((meta.get("annotations") or {}).get("resource.kubernetes.io/pod-claim-name", ""))
    return ""


def _hidden(pod: PodSpec, asked: list[_Asked]) -> dict[str, Any]:
    requests = [
        {"name": request, "exactly": {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}}
        for _, _, request, name, count in asked
    ]
    meta = {"name": f"{pod.name}-extended-resources", "namespace": pod.namespace}
    return {"metadata": meta, "spec": {"devices": {"requests": requests}}}


def _give(allocation: Document, claim: dict[str, Any]) -> None:
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


def _devices(allocation: Document) -> tuple[str, ...]:
    return tuple(f"{r['driver']}/{r['pool']}/{r['device']}" for r in allocation["devices"].get("results", ()))
