"""The claims, classes, slices and events of DRA scenarios in a cluster, by kubectl.

Objects are created in the tests' namespace. Cluster-scoped ones have a label with its name, so that the next run can
delete those of a killed run.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from vdev.sim.objects.pods import ContainerStatus, PodSpec

SINCE = (1, 36)  # on by default since then: partitions, shares, taints, extended resources, health in the pod's status
NAMESPACED = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
_IMPLICIT = "deviceclass.resource.kubernetes.io/"
_TOTAL_PLUGINS = "plugin_manager_total_plugins"
_UID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


def missing(version: Mapping[str, Any], groups: Mapping[str, Any]) -> str:
    """Why a cluster with this /version and these API groups cannot play scenarios of DRA; empty if it can."""
    found = tuple(int(re.sub(r"\D.*", "", str(version[each])) or 0) for each in ("major", "minor"))
    served = [each for group in groups["groups"] if group["name"] == "resource.k8s.io" for each in group["versions"]]
    if not any(each["version"] == "v1" for each in served):
        return "the cluster has no resource.k8s.io/v1"
    return "" if found >= SINCE else f"the cluster is {found[0]}.{found[1]}, and gates are off before 1.36"


class Claims:
    """The objects of one run. Cluster-scoped ones have this label, with the run's namespace as its value."""

    def __init__(self, kubectl: Callable[[], Any], *, namespace: str, node: Callable[[], str], label: str) -> None:
        self._kubectl = kubectl
        self._namespace = namespace
        self._node = node
        self._label = label
        self._made: dict[tuple[str, str], Mapping[str, Any]] = {}

    # --- creation and deletion ----------------------------------------------------------------------------------------

    async def create(self, document: Mapping[str, Any]) -> None:
        """Create an object, in the tests' namespace instead of `default`."""
        kind, name = document["kind"], document["metadata"]["name"]
        await self._kubectl().create(*self._where(kind), placed(document, self._namespace, self._label))
        self._made[kind, name] = document

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object. Returns when it is gone."""
        self._made.pop((kind, name), None)
        await self._kubectl()(*self._where(kind), "delete", resource(kind), name, "--ignore-not-found", "--wait=true")

    async def reset(self) -> None:
        """Delete all objects of this run."""
        for kind, name in sorted(self._made):
            await self.delete(kind, name)

    def scheduled(self, spec: PodSpec) -> bool:
        """Whether the scheduler must bind a pod: it has claims, or an extended resource of a class of this run."""
        served = {f"{_IMPLICIT}{name}" for kind, name in self._made if kind == "DeviceClass"}
        served |= {str((each.get("spec") or {}).get("extendedResourceName")) for each in self._made.values()}
        asked = {name for container in spec.containers for name, count in container.limits.items() if count}
        return bool(spec.claims or asked & served)

    # --- observations -------------------------------------------------------------------------------------------------

    async def slices(self, driver: str) -> Sequence[str] | None:
        """The devices of the newest generation of a driver's slices for the node, in order; None without a slice."""
        chosen = f"--field-selector=spec.driver={driver},spec.nodeName={self._node()}"
        found = [each["spec"] for each in (await self._kubectl().json("get", "resourceslices", chosen))["items"]]
        if not found:
            return None
        newest = max(spec["pool"].get("generation", 0) for spec in found)
        current = [spec for spec in found if spec["pool"].get("generation", 0) == newest]
        return [device["name"] for spec in current for device in spec.get("devices") or ()]

    async def claim(self, name: str) -> Sequence[str] | None:
        """The devices allocated to a claim, None if there is no such claim."""
        claim = await self._kubectl().maybe(*self._where("ResourceClaim"), "get", "resourceclaim", name)
        return None if claim is None else [each["device"] for each in results(claim)]

    async def of_pod(self, document: Mapping[str, Any], container: ContainerStatus) -> dict[str, tuple[str, ...]]:
        """The devices of the claims that a container of a pod uses, by the name in the pod."""
        spec = next(each for each in containers(document) if each["name"] == container.name)
        found: dict[str, tuple[str, ...]] = {}
        for name, claim, request in uses(document, spec):
            whole = await self._kubectl().maybe(*self._where("ResourceClaim"), "get", "resourceclaim", claim)
            if whole is not None and is_reserved(whole, document["metadata"]["uid"]):
                ids = tuple(
                    f"{each['driver']}/{each['pool']}/{each['device']}"
                    for each in results(whole)
                    if not request or each["request"].partition("/")[0] == request
                )
                found[name] = tuple(dict.fromkeys((*found.get(name, ()), *ids)))
        return found

    async def drivers(self, driver: str, metrics: Callable[[], Awaitable[str]]) -> int:
        """How many instances of a driver the kubelet has registered, by the sockets that its metrics name."""
        socket = rf"{re.escape(driver)}(-{_UID})?-reg\.sock"
        pattern = (
            rf'^{_TOTAL_PLUGINS}{{[^}}]*socket_path="[^"]*/{socket}"[^}}]*state="actual_state_of_world"[^}}]*}} 1$'
        )
        return len(re.findall(pattern, await metrics(), re.MULTILINE))

    async def events(self, pod: str) -> Sequence[str]:
        """The Warning events on a pod, as `reason: message`."""
        chosen = f"--field-selector=involvedObject.kind=Pod,involvedObject.name={pod},type=Warning"
        found = await self._kubectl().json(*self._where("ResourceClaim"), "get", "events", chosen)
        return [f"{each['reason']}: {each['message']}" for each in found["items"]]

    def _where(self, kind: str) -> tuple[str, ...]:
        return ("--namespace", self._namespace) if kind in NAMESPACED else ()


def resource(kind: str) -> str:
    """The name of a kind for kubectl, with its group, because other groups may have the same kind."""
    return f"{kind.lower()}s.resource.k8s.io" if kind != "DeviceClass" else "deviceclasses.resource.k8s.io"


def placed(document: Mapping[str, Any], namespace: str, label: str) -> dict[str, Any]:
    """A scenario's object in the tests' namespace or, if its kind has none, with the label."""
    metadata = dict(document["metadata"])
    if document["kind"] in NAMESPACED:
        metadata["namespace"] = namespace
    else:
        metadata["labels"] = {**(metadata.get("labels") or {}), label: namespace}
    return {"apiVersion": "resource.k8s.io/v1", **document, "metadata": metadata}


def containers(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """All containers of a pod, init containers first."""
    spec = document["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def uses(document: Mapping[str, Any], container: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """The claims that a container uses: the name in the pod, the claim, and the request or an empty string.

    The hidden claim of extended resources has its own name.
    """
    status = document.get("status") or {}
    names = {each["name"]: each.get("resourceClaimName", "") for each in document["spec"].get("resourceClaims") or ()}
    names |= {each["name"]: each.get("resourceClaimName", "") for each in status.get("resourceClaimStatuses") or ()}
    asked = (container.get("resources") or {}).get("claims") or ()
    found = [(each["name"], names.get(each["name"], ""), each.get("request", "")) for each in asked]
    extended = status.get("extendedResourceClaimStatus") or {}
    hidden = extended.get("resourceClaimName", "")
    found += [
        (hidden, hidden, each["requestName"])
        for each in extended.get("requestMappings") or ()
        if each["containerName"] == container["name"]
    ]
    return [each for each in found if each[1]]


def results(claim: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The devices that are allocated to a claim."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def is_reserved(claim: Mapping[str, Any], uid: str) -> bool:
    """Whether a claim is reserved for a pod."""
    return any(each.get("uid") == uid for each in (claim.get("status") or {}).get("reservedFor") or ())
