"""Assigns devices to the pods of a node, by the rules of a kubelet.

    pods bound to the node, in order of creation ─┐
    device lists with health ─────────────────────┴─► Assignment: devices by pod, and the pods that a kubelet refuses

Containers get devices one after the other, init containers first. Devices of an init container are used again by later
ones; a sidecar keeps its own. Preferred allocation chooses among the free devices (source: Kubernetes 1.36,
pkg/kubelet/cm/devicemanager). A pod keeps its devices. They are written on the pod, so that the next controller knows
them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from ..model.device import Key
from ..model.problem import Problem
from ..model.quantity import amount_of
from ..model.telemetry import Range
from ..planning.resources import Inventory

Document = Mapping[str, Any]
Devices = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Ids by container and resource."""
_DEVICES = TypeAdapter(dict[str, dict[str, tuple[str, ...]]])

NOTE = "vdev.dev/devices"
"""The annotation of a pod with its devices."""


Role = Literal["init", "sidecar", "main"]
"""The role of a container in its pod, which determines if its devices are reused."""


@dataclass(frozen=True, slots=True)
class PodContainer:
    """A container with the number of each resource that it requests."""

    name: str
    role: Role
    wants: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """The kept fields of a pod. `containers` is empty if it has ended or requests no extended resource.

    `noted` are the devices in its annotation that it requests, and `load` is the load in another annotation.
    `statuses` are those of its containers in `version`; without any, the version is empty.
    """

    node: str
    uid: str
    namespace: str
    name: str
    created: str
    containers: tuple[PodContainer, ...] = ()
    annotation: str = ""
    noted: Devices | None = None
    statuses: tuple[Document, ...] = ()
    version: str = ""
    load: Range | Problem | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Devices by pod uid; `rejected` are the pods that a kubelet would not admit, and why."""

    devices: Mapping[str, Devices] = field(default_factory=dict)
    rejected: Mapping[str, str] = field(default_factory=dict)


def read_pod(document: Document, load: Range | Problem | None = None) -> Pod | None:
    """Read a Pod object; None if it has no node, or requests neither an extended resource nor a load."""
    metadata, spec, status = document.get("metadata") or {}, document.get("spec") or {}, document.get("status") or {}
    if not spec.get("nodeName"):
        return None
    pod = Pod(
        node=str(spec["nodeName"]),
        uid=str(metadata.get("uid") or ""),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata.get("name") or ""),
        created=str(metadata.get("creationTimestamp") or ""),
        load=load,
    )
    containers = [_container(each, "init") for each in spec.get("initContainers") or ()]
    containers += [_container(each, "main") for each in spec.get("containers") or ()]
    if status.get("phase") in ("Succeeded", "Failed") or not any(each.wants for each in containers):
        return pod if load else None
    annotation = str((metadata.get("annotations") or {}).get(NOTE) or "")
    statuses = tuple(status.get("containerStatuses") or ())
    return replace(
        pod,
        containers=tuple(containers),
        annotation=annotation,
        noted=_noted(annotation, containers),
        statuses=statuses,
        version=str(metadata.get("resourceVersion") or "") if statuses else "",
    )


def assign(inventory: Inventory, pods: Iterable[Pod], before: Assignment) -> Assignment:
    """Assign devices to new pods. Other pods keep their devices as long as these are listed."""
    present = sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name))
    devices: dict[str, Devices] = {}
    taken: set[Key] = set()
    for pod in present:
        known = before.devices.get(pod.uid) or pod.noted
        if known is not None and _may_keep(pod, known, inventory, taken):
            devices[pod.uid] = known
            taken |= keys_of(known)
    rejected = {pod.uid: before.rejected[pod.uid] for pod in present if pod.uid in before.rejected}
    for pod in present:
        if pod.uid not in devices and pod.uid not in rejected:
            given, why = _admit(pod, inventory, taken)
            if why:
                rejected[pod.uid] = why
            else:
                devices[pod.uid] = given
                taken |= keys_of(given)
    return Assignment(devices, rejected)


def keys_of(devices: Devices) -> frozenset[Key]:
    """The devices, each with its resource."""
    return frozenset((name, each) for wanted in devices.values() for name, ids in wanted.items() for each in ids)


def note(devices: Devices) -> str:
    return json.dumps(devices, sort_keys=True)


def _container(container: Document, role: Role) -> PodContainer:
    if role == "init" and container.get("restartPolicy") == "Always":
        role = "sidecar"
    return PodContainer(str(container.get("name")), role, _wants(container))


def _wants(container: Document) -> Mapping[str, int]:
    """Its extended resources, which have a domain other than kubernetes.io, and whole numbers."""
    limits = (container.get("resources") or {}).get("limits") or {}
    amounts = {name: amount_of(amount) for name, amount in limits.items() if _is_extended(name)}
    return {name: int(amount) for name, amount in amounts.items() if amount and amount > 0 and amount.denominator == 1}


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def _noted(text: str, containers: Iterable[PodContainer]) -> Devices | None:
    """The devices in the annotation whose number is that of a container's request; None if there are none.

    Every user who may create pods can write it, so its content is not trusted.
    """
    try:
        parsed = _DEVICES.validate_json(text or "{}")
    except ValidationError:
        return None
    noted: dict[str, dict[str, tuple[str, ...]]] = {}
    for container in containers:
        for name, number in container.wants.items():
            ids = parsed.get(container.name, {}).get(name, ())
            if len(set(ids)) == len(ids) == number:
                noted.setdefault(container.name, {})[name] = ids
    return noted or None


def _may_keep(pod: Pod, known: Devices, inventory: Inventory, taken: set[Key]) -> bool:
    """Whether these devices match the pod's requests, are listed, and are not taken."""
    for container in pod.containers:
        of = known.get(container.name) or {}
        for name, number in container.wants.items():
            resource = inventory.resources.get(name)
            ids = set(of.get(name, ()))
            if resource is not None and (len(ids) != number or not ids <= resource.by_id.keys()):
                return False
    return not keys_of(known) & taken


def _admit(pod: Pod, inventory: Inventory, taken: set[Key]) -> tuple[Devices, str]:
    """The devices for its containers, or why a kubelet refuses it."""
    given: dict[str, dict[str, tuple[str, ...]]] = {}
    mine: set[Key] = set()
    reusable: dict[str, list[str]] = {}
    for container in pod.containers:
        for name, number in container.wants.items():
            resource = inventory.resources.get(name)
            if resource is None:
                continue  # not a resource of vdev
            if not resource.healthy:
                return {}, f"no healthy devices present; cannot allocate unhealthy devices {name}"
            again = reusable.get(name, [])[:number]
            held = taken | mine
            free = [slot.id for slot in resource.slots if slot.health.healthy and (name, slot.id) not in held]
            needed = number - len(again)
            if needed > len(free):
                why = f"requested number of devices unavailable for {name}. Requested: {needed}, Available: {len(free)}"
                return {}, why
            ids = tuple(resource.preferred((*again, *free), again, number)) if needed else tuple(again)
            given.setdefault(container.name, {})[name] = ids
            mine |= {(name, each) for each in ids}
            pool = reusable.setdefault(name, [])
            if container.role == "init":
                pool += [each for each in ids if each not in pool]
            else:
                reusable[name] = [each for each in pool if each not in ids]
    return given, ""
