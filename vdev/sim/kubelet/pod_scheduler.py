"""The scheduler, and the controller that creates claims from templates, for the pods of one node.

A pod is bound when the node has enough devices and its claims are allocated and reserved, including a special claim for
its extended resources. The claims are released when the pod has ended.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from ..api.kinds import BY_NAME, Document, Refused
from ..dra import cel_selectors
from ..dra.allocator import Allocator, UnschedulableError
from ..dra.pools import check_complete, check_pools, gather
from ..journal import Event
from ..lint import Finding
from ..objects.pods import ExtendedClaim, Kind, PodSpec
from .node_state import PodRecord, shortages

if TYPE_CHECKING:
    from .kubelet import Kubelet

_CLAIM, _CLASS, _SLICE = BY_NAME["ResourceClaim"], BY_NAME["DeviceClass"], BY_NAME["ResourceSlice"]
_TEMPLATE = BY_NAME["ResourceClaimTemplate"]
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_EXTENDED = "resource.kubernetes.io/extended-resource-claim"
_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
# Requests for extended resources that a DeviceClass serves, by container and resource.
_Limits: TypeAlias = dict[tuple[str, str], dict[str, Any]]


class PodScheduler:
    """Binds pods to the node when their claims and devices are available."""

    def __init__(self, kubelet: "Kubelet") -> None:
        self._objects = kubelet.objects.store
        self._node = kubelet.node_name
        self._store = kubelet.store
        self._status = kubelet.status
        self._journal = kubelet.journal
        # One pod at a time, so that two pods never get the same devices. Release waits for a pod that is being bound.
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._incomplete: list[Finding] = []  # the findings of the last check
        self.wake: Callable[[], None] = self._changed.set

    async def run(self, bound: Callable[[PodRecord], object]) -> None:
        """At every change of an object or the node, check slices and bind waiting pods. Calls `bound` with each."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            self._journal.find(check_pools(self._own_slices()))
            for pod in [each for each in self._store.records.values() if each.waits]:
                await self.bind(pod)
                if pod.bound:
                    bound(pod)

    async def bind(self, pod: PodRecord) -> None:
        """Bind a pod if it still waits and its claims can be allocated.

        For a pod with `spec.nodeName`, claims are created from templates, but not allocated.
        """
        async with self._lock:
            if not pod.waits:
                return
            try:
                if pod.spec.node:
                    claims, extended = self._claims(pod.spec), None
                else:
                    claims, extended = await self._schedule(pod)
            except (UnschedulableError, Refused) as error:
                unschedulable = isinstance(error, UnschedulableError)
                why = f"0/1 nodes are available: {error}." if unschedulable else str(error)
                if pod.message != why:
                    self._journal.events.append(Event(pod.spec.key, "FailedScheduling", why))
                pod.reason, pod.message = "Unschedulable", why
                self._store.note(pod)
                return
            if not pod.waits:
                return  # deleted during the allocation; its claims are released later
            pod.claims, pod.extended = claims, extended
            pod.bound, pod.reason, pod.message = True, "", ""
            if extended is not None:
                served = {(container, resource) for container, resource, _ in extended.mappings}
                pod.spec = _without(pod.spec, served)

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claims(self, pod: PodSpec) -> dict[str, str]:
        """Return a pod's claims by their name in the pod. Creates claims from templates. Raises UnschedulableError."""
        owned = [each["metadata"] for each in self._objects.all(_CLAIM) if _is_owned(each, pod)]
        existing = {(meta.get("annotations") or {}).get(_CLAIM_NAME): str(meta["name"]) for meta in owned}
        return {
            each.name: each.claim or existing.get(each.name) or self._from_template(pod, each.name, each.template)
            for each in pod.claims
        }

    def _from_template(self, pod: PodSpec, name: str, template_name: str) -> str:
        template = self._objects.find(_TEMPLATE, pod.namespace, template_name)
        if template is None:
            text = f'resourceclaimtemplate.resource.k8s.io "{template_name}" not found'
            raise UnschedulableError(f"failed to create ResourceClaim: {text}")
        meta = dict(template["spec"].get("metadata") or {})
        meta["annotations"] = {**(meta.get("annotations") or {}), _CLAIM_NAME: name}
        return self._create(pod, f"{pod.name}-{name}-", meta, template["spec"]["spec"])

    def _create(self, pod: PodSpec, prefix: str, meta: Mapping[str, Any], spec: Document) -> str:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
        metadata = {**meta, "generateName": prefix, "namespace": pod.namespace, "ownerReferences": [owner]}
        created = self._objects.add(_CLAIM, {"metadata": metadata, "spec": spec})
        return str(created["metadata"]["name"])

    async def _schedule(self, record: PodRecord) -> tuple[dict[str, str], ExtendedClaim | None]:
        """Allocate and reserve the claims of a pod if the node has enough devices. Raises UnschedulableError."""
        pod = record.spec
        limits = self._limits(pod)
        if record.waits_for_devices:
            records = self._store.records.values()
            others = [each.spec.requested() for each in records if each.bound and not each.phase.terminal]
            requested, served = pod.requested(), {resource for _, resource in limits}
            asked = [name for name in requested if "/" in name and name not in served]
            allocatable = {name: Fraction(self._status.shown.allocatable.get(name, 0)) for name in asked}
            if short := sorted(name for name, *_ in shortages(requested, others, allocatable)):
                raise UnschedulableError(", ".join(f"1 Insufficient {resource}" for resource in short))
        names = self._claims(pod)
        claims = {name: self._claim(pod, name) for name in names.values()}
        wanted = {name: each for name, each in claims.items() if not (each.get("status") or {}).get("allocation")}
        spec = {"devices": {"requests": [*limits.values()]}}
        if limits:  # this claim is created when its devices are known
            meta = {"name": f"{pod.name}-extended-resources", "namespace": pod.namespace}
            wanted[""] = {"metadata": meta, "spec": spec}
        allocations = dict(zip(wanted, await self._allocate([*wanted.values()]), strict=True))
        extended = None
        if limits:
            name = self._create(pod, f"{pod.name}-extended-resources-", {"annotations": {_EXTENDED: "true"}}, spec)
            allocations[name] = allocations.pop("")
            extended = ExtendedClaim(name, tuple((*key, request["name"]) for key, request in limits.items()))
        for name in {**claims, **allocations}:
            self._reserve(pod, name, allocations.get(name))
        return names, extended

    def _claim(self, pod: PodSpec, name: str) -> Document:
        claim = self._objects.find(_CLAIM, pod.namespace, name)
        if claim is None:
            raise UnschedulableError(f'resourceclaim.resource.k8s.io "{name}" not found')
        if claim["metadata"].get("deletionTimestamp"):
            raise UnschedulableError(f'resourceclaim "{name}" is being deleted')
        return claim

    async def _allocate(self, claims: list[Document]) -> list[dict[str, Any]]:
        """Return the allocations of claims, all or nothing. Raises UnschedulableError."""
        if not claims:
            return []
        pools = gather(self._objects.all(_SLICE), self._node)
        classes = {each["metadata"]["name"]: each for each in self._objects.all(_CLASS)}
        allocator = Allocator(pools, classes, self._objects.all(_CLAIM), matches=cel_selectors.matches)
        return await asyncio.to_thread(allocator.allocate, claims)

    def _reserve(self, pod: PodSpec, name: str, allocation: Document | None) -> None:
        """Reserve a claim for a pod. If the claim was just allocated, also write its allocation."""

        def change(claim: dict[str, Any]) -> None:
            status = claim.setdefault("status", {})
            if allocation is not None:
                status["allocation"] = allocation
            users = status.setdefault("reservedFor", [])
            if all(each["uid"] != pod.uid for each in users):
                users.append({"resource": "pods", "name": pod.name, "uid": pod.uid})

        self._objects.edit(_CLAIM, pod.namespace, name, change)
        if allocation is not None:
            results = allocation["devices"].get("results", ())
            devices = [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]
            self._journal.note_claim(f"{pod.namespace}/{name}", "allocated", devices)

    def _limits(self, pod: PodSpec) -> _Limits:
        """Return the limits of a pod that DRA serves. Requests have Kubernetes' names, init containers first."""
        classes = self._objects.all(_CLASS)
        by_resource: dict[str, str] = {}
        for each in sorted(classes, key=lambda each: str(each["metadata"].get("creationTimestamp", ""))):
            name = each["metadata"]["name"]
            by_resource[f"{_IMPLICIT}{name}"] = name
            if resource := (each.get("spec") or {}).get("extendedResourceName"):
                by_resource[resource] = name  # the newer of two classes wins
        allocatable = self._status.allocatable()
        found: _Limits = {}
        for number, container in enumerate(sorted(pod.containers, key=lambda each: each.kind is Kind.APP)):
            for index, resource in enumerate(sorted(name for name in container.limits if "/" in name)):
                count = container.limits[resource]
                if count and resource in by_resource and not allocatable.get(resource):
                    exactly = {"allocationMode": "ExactCount", "count": count, "deviceClassName": by_resource[resource]}
                    request = {"name": f"container-{number}-request-{index}", "exactly": exactly}
                    found[container.name, resource] = request
        return found

    async def release(self, pod: PodSpec) -> None:
        """Delete the claims that a pod owns, and end its reservations of others. Unreserved claims are deallocated."""
        async with self._lock:
            for claim in self._objects.all(_CLAIM):
                name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
                users = (claim.get("status") or {}).get("reservedFor") or []
                if _is_owned(claim, pod):
                    self._objects.delete(_CLAIM, namespace, name)
                elif any(each["uid"] == pod.uid for each in users):
                    self._objects.edit(_CLAIM, namespace, name, lambda each: _release(each, pod))
                else:
                    continue
                self._journal.note_claim(f"{namespace}/{name}", "released")

    # --- slices -------------------------------------------------------------------------------------------------------

    def report_incomplete_pools(self) -> None:
        """Report pools that are incomplete or outdated in two consecutive calls."""
        found = list(check_complete(self._own_slices()))
        self._journal.find(each for each in found if each in self._incomplete)
        self._incomplete = found

    def _own_slices(self) -> list[Document]:
        """Return all slices except those of other nodes."""
        slices = self._objects.all(_SLICE)
        return [each for each in slices if each["spec"].get("nodeName") in (None, "", self._node)]


def _is_owned(claim: Document, pod: PodSpec) -> bool:
    return any(each.get("uid") == pod.uid for each in claim["metadata"].get("ownerReferences") or [])


def _release(claim: dict[str, Any], pod: PodSpec) -> None:
    status = claim.setdefault("status", {})
    status["reservedFor"] = [each for each in status.get("reservedFor") or [] if each["uid"] != pod.uid]
    if not status["reservedFor"]:
        claim["status"] = {}


def _without(spec: PodSpec, served: set[tuple[str, str]]) -> PodSpec:
    """Remove the extended resources that claims serve, because the device manager ignores them."""
    containers = tuple(
        replace(
            each,
            limits={r: n for r, n in each.limits.items() if (each.name, r) not in served},
            requests={r: n for r, n in each.requests.items() if (each.name, r) not in served},
        )
        for each in spec.containers
    )
    return replace(spec, containers=containers)
