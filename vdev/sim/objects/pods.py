"""Pods and their containers: what they ask for, and what the kubelet reports about them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

from .container_edits import Edits


class Kind(Enum):
    """When a container runs, which decides how devices are reused."""

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
        """Whether the pod has ended; it then holds nothing and is never admitted again."""
        return self in (Phase.SUCCEEDED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One of the claims of a pod: its name in the pod, and a claim's or a template's name."""

    name: str
    claim: str = ""
    template: str = ""


@dataclass(frozen=True, slots=True)
class ContainerClaim:
    """What a container uses of a claim: the name in the pod, the claim's, and one request (empty: all of them)."""

    name: str
    claim: str
    request: str = ""

    @property
    def resource(self) -> str:
        """Its name in `allocatedResourcesStatus`."""
        return f"claim:{self.name}/{self.request}" if self.request else f"claim:{self.name}"


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container and what it asks for: limits of extended resources as counts, the rest as requested, and by the
    name in the pod the claims that it uses, with a request or without.
    """

    name: str
    kind: Kind
    limits: Mapping[str, int]
    requests: Mapping[str, Decimal]
    claims: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodSpec:
    """One pod. `containers` come in the order in which the kubelet admits them: init containers first."""

    name: str
    namespace: str
    uid: str
    containers: tuple[ContainerSpec, ...]
    claims: tuple[PodClaim, ...] = ()
    node: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    def container(self, name: str) -> ContainerSpec:
        return next(each for each in self.containers if each.name == name)

    def requested(self) -> dict[str, Decimal]:
        """What the whole pod takes, itself too: the larger of its start-up peak and its running sum, per resource."""
        running: dict[str, Decimal] = {"pods": Decimal(1)}
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


@dataclass(slots=True)
class ContainerStatus:
    """What one container has, and whether it runs. That of a `PodStatus` is a copy, which the kubelet does not change.

    `waiting` is the reason why it does not run (`CreateContainerConfigError`), empty otherwise; `restarts` counts
    restarts; `allocations` counts the Allocate calls that were made for it; `edits` is what it got at its last start;
    `claims` are the prepared devices (`driver/pool/device`) of the claims that it uses, by the name in the pod; `done`
    says that it is an init container that has finished, `started` that it was started once.
    """

    name: str
    kind: Kind
    running: bool = False
    waiting: str = ""
    message: str = ""
    restarts: int = 0
    allocations: int = 0
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    edits: Edits = field(default_factory=Edits)
    health: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    health_messages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    done: bool = False
    started: bool = False

    @property
    def allocated_resources_status(self) -> list[dict[str, Any]]:
        """As `allocatedResourcesStatus` stands in the API; `health` holds the same by resource and device id."""
        return [
            {"name": name, "resources": [self._resource(name, id_, state) for id_, state in sorted(ids.items())]}
            for name, ids in sorted(self.health.items())
        ]

    def _resource(self, name: str, id_: str, state: str) -> dict[str, str]:
        message = self.health_messages.get(name, {}).get(id_, "")
        return {"resourceID": id_, "health": state} | ({"message": message} if message else {})


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """The claim behind a pod's extended resources: `mappings` are container, resource and request."""

    name: str
    mappings: tuple[tuple[str, str, str], ...]

    def uses(self, container: str) -> list[ContainerClaim]:
        """What one container uses of it."""
        return [ContainerClaim("", self.name, request) for name, _, request in self.mappings if name == container]


@dataclass(frozen=True, slots=True)
class PodStatus:
    """A pod as the API would show it, plus what each container got. `terminating`: deleted, but not gone yet.

    `bound`: it has its node. `claims` are its ResourceClaims by the name in the pod. `admitted`: a kubelet took it on
    at some time; until then the API shows no containers.
    """

    spec: PodSpec
    phase: Phase
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerStatus, ...] = ()
    terminating: bool = False
    bound: bool = True
    claims: Mapping[str, str] = field(default_factory=dict)
    extended: ExtendedClaim | None = None
    admitted: bool = False

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
        """The container of that name, or the first app container. KeyError with the names there are."""
        for status in self.containers:
            if status.name == name or (name is None and status.kind is Kind.APP):
                return status
        raise KeyError(f"no container {name!r} in pod {self.spec.key}; it has {[c.name for c in self.containers]}")


def _add(total: dict[str, Decimal], more: Mapping[str, Decimal]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, Decimal(0)) + amount
