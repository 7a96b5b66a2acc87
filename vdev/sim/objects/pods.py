"""Pods and containers: their requests, their edits, and their status as an object, as text and as JSON."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from typing import Any


class Kind(Enum):
    """The kind of a container: when it runs. Later containers reuse only the devices of INIT containers."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Phase(Enum):
    """A pod's phase, as in the API."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """Whether the pod has ended. It then holds no devices and is never admitted again."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class PodClaim:
    """An entry of `spec.resourceClaims`. It names either a claim or a template."""

    name: str  # in the pod
    claim: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class ContainerClaim:
    """A claim, or one request of a claim, that a container uses."""

    name: str  # in the pod; empty for the claim of extended resources
    claim: str
    request: str = ""  # empty for all requests of the claim

    @property
    def resource(self) -> str:
        """The name of the entry in `allocatedResourcesStatus`."""
        return f"claim:{self.name}/{self.request}" if self.request else f"claim:{self.name}"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    name: str
    kind: Kind
    limits: Mapping[str, int]  # rounded up
    requests: Mapping[str, Fraction]  # the limit if a resource has no request
    claims: tuple[tuple[str, str], ...] = ()  # names of the pod's claims, and requests (empty for all)


@dataclass(frozen=True, slots=True)
class PodSpec:
    name: str
    namespace: str
    uid: str
    containers: tuple[ContainerSpec, ...]  # init containers first, as the kubelet admits them
    claims: tuple[PodClaim, ...] = ()
    node: str = ""  # spec.nodeName

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def container(self, name: str) -> ContainerSpec:
        return next(each for each in self.containers if each.name == name)

    def requested(self) -> dict[str, Fraction]:
        """Return, per resource, the maximum of the init containers' peak and the sum of the other containers."""
        running, peak = defaultdict(Fraction, pods=Fraction(1)), defaultdict[str, Fraction](Fraction)
        for container in self.containers:
            for resource, amount in container.requests.items():
                if container.kind is Kind.INIT:
                    peak[resource] = max(peak[resource], running[resource] + amount)
                else:
                    running[resource] += amount
        return {resource: max(running[resource], peak[resource]) for resource in {**running, **peak}}


@dataclass(frozen=True, slots=True)
class Mount:
    host_path: str
    container_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceNode:
    host_path: str
    container_path: str
    permissions: str  # r, w and m


@dataclass(frozen=True, slots=True)
class Edits:
    """All changes of plugins and CDI devices to a container. Variables in the pod's manifest override `envs`."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(slots=True)
class ContainerStatus:
    name: str
    kind: Kind
    running: bool = False
    waiting: str = ""  # the reason why it does not run, such as CreateContainerConfigError
    message: str = ""  # details of `waiting`
    restarts: int = 0
    allocations: int = 0  # the number of Allocate calls
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # ids by resource
    edits: Edits = field(default_factory=Edits)  # of the last start
    health: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by resource and device id
    health_messages: Mapping[tuple[str, str], str] = field(default_factory=dict)
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # driver/pool/device by the name in the pod
    done: bool = False  # a finished init container
    started: bool = False  # it was started at least once

    @property
    def allocated_resources_status(self) -> list[dict[str, Any]]:
        """The field `allocatedResourcesStatus` of the API."""
        return [
            {"name": name, "resources": [self._resource(name, id_, state) for id_, state in sorted(ids.items())]}
            for name, ids in sorted(self.health.items())
        ]

    def _resource(self, name: str, id_: str, state: str) -> dict[str, str]:
        message = self.health_messages.get((name, id_), "")
        return {"resourceID": id_, "health": state} | ({"message": message} if message else {})


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    name: str
    mappings: tuple[tuple[str, str, str], ...]  # container, resource, request

    def uses(self, container: str) -> list[ContainerClaim]:
        return [ContainerClaim("", self.name, request) for name, _, request in self.mappings if name == container]


@dataclass(slots=True)
class PodStatus:
    """The status of a pod as in the API, and the edits of its containers. `Kubelet` returns copies."""

    spec: PodSpec
    phase: Phase
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerStatus, ...] = ()
    terminating: bool = False  # deleted, but still exists
    bound: bool = True  # whether it is bound to its node
    claims: Mapping[str, str] = field(default_factory=dict)  # names of ResourceClaims by their name in the pod
    extended: ExtendedClaim | None = None
    admitted: bool = False  # admitted by a kubelet; before that, the API shows no containers

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def namespace(self) -> str:
        return self.spec.namespace

    @property
    def uid(self) -> str:
        return self.spec.uid

    def container(self, name: str | None = None) -> ContainerStatus:
        """Return a container by name, by default the first app container. Raises KeyError."""
        for status in self.containers:
            if status.name == name or (name is None and status.kind is Kind.APP):
                return status
        raise KeyError(f"no container {name!r} in pod {self.spec.key}; it has {[c.name for c in self.containers]}")


# --- for people and programs ------------------------------------------------------------------------------------------


def render_pod(pod: PodStatus) -> str:
    """Format a pod and its containers with their devices and edits; for an ended pod, only the reason."""
    head = f"{pod.spec.key} {'Terminating' if pod.terminating else pod.phase.value}"
    if pod.reason:
        head += f": {pod.reason}: {pod.message}"
    rows = [head]
    if not pod.phase.terminal:
        for container in pod.containers:
            rows += _container(container)
    return "\n".join(rows)


def pod_json(pod: PodStatus) -> dict[str, Any]:
    """Return a pod and its containers with their devices and edits as JSON."""
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "phase": pod.phase.value,
        "reason": pod.reason,
        "message": pod.message,
        "terminating": pod.terminating,
        "containers": [
            {
                "name": container.name,
                "kind": container.kind.value,
                "running": container.running,
                "waiting": container.waiting,
                "message": container.message,
                "restarts": container.restarts,
                "devices": {resource: list(ids) for resource, ids in container.devices.items()},
                "claims": {claim: list(ids) for claim, ids in container.claims.items()},
                "allocatedResourcesStatus": container.allocated_resources_status,
                **edits_json(container.edits),
            }
            for container in pod.containers
        ],
    }


def edits_json(edits: Edits) -> dict[str, Any]:
    """Return the edits of a container as JSON with the keys of vdev's configuration file."""
    return {
        "env": dict(edits.envs),
        "deviceNodes": [
            {"hostPath": each.host_path, "containerPath": each.container_path, "permissions": each.permissions}
            for each in edits.devices
        ],
        "mounts": [
            {"hostPath": each.host_path, "containerPath": each.container_path, "readOnly": each.read_only}
            for each in edits.mounts
        ],
        "annotations": dict(edits.annotations),
        "cdiDevices": list(edits.cdi_devices),
    }


def _container(container: ContainerStatus) -> list[str]:
    devices = "; ".join(f"{resource}: {', '.join(ids)}" for resource, ids in sorted(container.devices.items()))
    rows = [f"  {container.name}{'' if container.kind.value == 'app' else f' ({container.kind.value})'}  {devices}"]
    rows += [f"    claim       {claim}: {', '.join(ids)}" for claim, ids in sorted(container.claims.items())]
    if container.waiting:
        rows.append(f"    waits: {container.waiting}: {container.message}")
    for resource, health in sorted(container.health.items()):
        bad = [id_ for id_, state in sorted(health.items()) if state != "Healthy"]
        rows += [f"    unhealthy: {resource}: {', '.join(bad)}"] if bad else []
    edits = container.edits
    rows += [f"    env         {name}={value}" for name, value in sorted(edits.envs.items())]
    rows += [f"    device      {n.host_path} -> {n.container_path} ({n.permissions})" for n in edits.devices]
    rows += [
        f"    mount       {mount.host_path} -> {mount.container_path}{' (read-only)' if mount.read_only else ''}"
        for mount in edits.mounts
    ]
    rows += [f"    annotation  {key}={value}" for key, value in sorted(edits.annotations.items())]
    rows += [f"    cdi         {name}" for name in edits.cdi_devices]
    return [row.rstrip() for row in rows]
