"""Pods: from a manifest to frozen values, and what the kubelet reports back about them.

Owns the reading of v1 Pod manifests (only what concerns devices) and the status values. It refuses what the API server
would refuse about extended resources; it decides nothing about devices (`admission`).
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from enum import Enum
from types import MappingProxyType
from typing import Any

from ...errors import UsageError
from .container_edits import Edits

_SUFFIXES = {
    "": Decimal(1), "m": Decimal("0.001"), "u": Decimal("0.000001"), "n": Decimal("0.000000001"),
    "k": Decimal(10) ** 3, "M": Decimal(10) ** 6, "G": Decimal(10) ** 9, "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15, "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10, "Mi": Decimal(2) ** 20, "Gi": Decimal(2) ** 30, "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50, "Ei": Decimal(2) ** 60,
}  # fmt: skip
_UID_SPACE = uuid.UUID("6f1c2a50-7a39-5d0e-9e5a-0d5f6ad5b3c1")


class ManifestError(UsageError):
    """A manifest that the API server would not take, or that is no Pod."""


class Kind(Enum):
    """When a container runs, which decides how devices are reused."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class Phase(Enum):
    """A pod's phase, with the words of the API."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def terminal(self) -> bool:
        """Whether the pod is over; it then holds nothing and is never admitted again."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container and what it asks for: limits of extended resources as counts, the rest as requested."""

    name: str
    kind: Kind
    limits: Mapping[str, int]
    requests: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod. `containers` come in the order in which the kubelet admits them: init containers first."""

    name: str
    namespace: str
    uid: str
    containers: tuple[ContainerSpec, ...]

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def requested(self) -> dict[str, Decimal]:
        """What the whole pod asks for: the larger of its start-up peak and its running sum, per resource."""
        running: dict[str, Decimal] = {}
        peak: dict[str, Decimal] = {}
        for container in self.containers:
            if container.kind is Kind.INIT:
                for resource, amount in container.requests.items():
                    peak[resource] = max(peak.get(resource, Decimal(0)), running.get(resource, Decimal(0)) + amount)
            elif container.kind is Kind.SIDECAR:
                _add(running, container.requests)
        for container in self.containers:
            if container.kind is Kind.APP:
                _add(running, container.requests)
        return {r: max(running.get(r, Decimal(0)), peak.get(r, Decimal(0))) for r in {**running, **peak}}


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """What one container has, and whether it runs.

    `waiting` is the reason why it does not run (`CreateContainerConfigError`), empty otherwise; `restarts` counts
    restarts; `allocations` counts the Allocate calls that were made for it; `edits` is what it got at its last start.
    """

    name: str
    kind: Kind
    running: bool = False
    waiting: str = ""
    message: str = ""
    restarts: int = 0
    allocations: int = 0
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    edits: Edits = field(default_factory=Edits)
    health: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def allocated_resources_status(self) -> list[dict[str, Any]]:
        """As `allocatedResourcesStatus` stands in the API; `health` holds the same by resource and device id."""
        return [
            {"name": name, "resources": [{"resourceID": id_, "health": health} for id_, health in sorted(ids.items())]}
            for name, ids in sorted(self.health.items())
        ]


@dataclass(frozen=True, slots=True)
class PodStatus:
    """A pod as the API would show it, plus what each container got."""

    spec: PodSpec
    phase: Phase
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerStatus, ...] = ()

    @property
    def name(self) -> str:
        """The pod's name."""
        return self.spec.name

    @property
    def namespace(self) -> str:
        """The pod's namespace."""
        return self.spec.namespace

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.spec.uid

    def container(self, name: str | None = None) -> ContainerStatus:
        """The container of that name, or the first app container. KeyError with the names there are."""
        for status in self.containers:
            if status.name == name or (name is None and status.kind is Kind.APP):
                return status
        raise KeyError(f"no container {name!r} in pod {self.spec.key}; it has {[c.name for c in self.containers]}")


def manifest(name: str, limits: Mapping[str, int] | None = None, **containers: Mapping[str, int]) -> dict[str, Any]:
    """A small Pod manifest for tests: one container `main` with `limits`, or one per keyword argument."""
    wanted = {**({"main": limits} if limits is not None or not containers else {}), **containers}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {"name": c, "image": "none", "resources": {"limits": {r: str(n) for r, n in (amounts or {}).items()}}}
                for c, amounts in wanted.items()
            ]
        },
    }


def parse(document: Any, *, serial: int = 0) -> PodSpec:
    """Read a v1 Pod. `serial` tells apart pods of one name when the manifest brings no UID. Raises ManifestError."""
    pod = _mapping(document, "the manifest")
    if pod.get("kind") != "Pod" or pod.get("apiVersion") != "v1":
        raise ManifestError(f"expected a v1 Pod, found {pod.get('apiVersion')!r} {pod.get('kind')!r}")
    meta = _mapping(pod.get("metadata"), "metadata")
    name = meta.get("name") or (f"{meta['generateName']}{serial:05x}" if meta.get("generateName") else None)
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name: expected a name")
    namespace = str(meta.get("namespace") or "default")
    uid = str(meta.get("uid") or uuid.uuid5(_UID_SPACE, f"{namespace}/{name}/{serial}"))
    spec = _mapping(pod.get("spec"), "spec")
    found = [
        *_containers(spec.get("initContainers"), "spec.initContainers", init=True),
        *_containers(spec.get("containers"), "spec.containers", init=False),
    ]
    if not any(container.kind is Kind.APP for container in found):
        raise ManifestError("spec.containers: expected at least one container")
    names = [container.name for container in found]
    if len(set(names)) != len(names):
        raise ManifestError(f"spec: container names must be unique, found {names}")
    return PodSpec(name, namespace, uid, tuple(found))


def quantity(value: Any, where: str) -> Decimal:
    """A Kubernetes quantity (`2`, `500m`, `1Gi`, `1e3`) as an exact number. Raises ManifestError."""
    text = str(value)
    number = text.rstrip("numkMGTPEi")
    try:
        amount = Decimal(number) * _SUFFIXES[text[len(number) :]]
    except (InvalidOperation, KeyError):
        amount = Decimal("NaN")
    if isinstance(value, bool) or not amount.is_finite():
        raise ManifestError(f"{where}: {value!r} is no quantity; expected something like 2, 500m or 1Gi")
    return amount


def _containers(documents: Any, where: str, *, init: bool) -> list[ContainerSpec]:
    if not isinstance(documents or [], list):
        raise ManifestError(f"{where}: expected a list, found {type(documents).__name__}")
    return [_container(document, f"{where}[{i}]", init=init) for i, document in enumerate(documents or [])]


def _container(document: Any, where: str, *, init: bool) -> ContainerSpec:
    container = _mapping(document, where)
    name = container.get("name")
    if not isinstance(name, str) or not name:
        raise ManifestError(f"{where}.name: expected a name")
    resources = _mapping(container.get("resources") or {}, f"{where}.resources")
    limits = _quantities(resources.get("limits"), f"{where}.resources.limits")
    requests = _quantities(resources.get("requests"), f"{where}.resources.requests")
    for resource in {**limits, **requests}:
        if "/" in resource and "kubernetes.io/" not in resource:
            _check_extended(resource, limits.get(resource), requests.get(resource), f"{where}.resources")
    kind = Kind.APP if not init else Kind.SIDECAR if container.get("restartPolicy") == "Always" else Kind.INIT
    counts = {r: int(amount.to_integral_value(ROUND_CEILING)) for r, amount in limits.items()}
    return ContainerSpec(name, kind, MappingProxyType(counts), MappingProxyType({**limits, **requests}))


def _check_extended(resource: str, limit: Decimal | None, request: Decimal | None, where: str) -> None:
    if limit is None:
        raise ManifestError(f"{where}.limits: {resource} needs a limit (extended resources cannot be overcommitted)")
    if limit < 0 or limit != limit.to_integral_value():
        raise ManifestError(f"{where}.limits[{resource}]: {limit} is not a whole number")
    if request is not None and request != limit:
        raise ManifestError(f"{where}.requests[{resource}]: {request} must equal the limit, {limit}")


def _quantities(document: Any, where: str) -> dict[str, Decimal]:
    return {str(key): quantity(value, f"{where}[{key}]") for key, value in _mapping(document or {}, where).items()}


def _mapping(document: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise ManifestError(f"{where}: expected a mapping, found {type(document).__name__}")
    return document


def _add(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, Decimal(0)) + amount
