"""Copies of the objects of thousands of nodes, which keep only the fields that are used."""

import asyncio
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import structlog

from ..errors import ApiServerError
from ..kube.api import Api
from ..kube.errors import Denied, Missing, Unconfigured
from ..kube.informer import Informer
from ..kube.objects import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES, key_of, metadata_of
from ..model.problem import Problem
from ..model.telemetry import Range
from ..node.status_applier import has_kubelet
from ..planning.in_use import Use
from ..telemetry.applier import annotated_load
from .pod_devices import Pod, read_pod

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]

_METADATA = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
_STATUS = ("capacity", "allocatable")


def _slice_text(document: Document) -> tuple[str, str] | None:
    """The node of a ResourceSlice, and the slice as text: as a document, it would take ten times the memory."""
    node = (document.get("spec") or {}).get("nodeName")
    return (str(node), json.dumps(document)) if node else None


def trimmed(document: Document) -> Document:
    """Return only the used fields of a Node, because thousands of whole Nodes would use more memory than all plans."""
    metadata, status = metadata_of(document), document.get("status") or {}
    managed = metadata.get("managedFields") or ()
    kept = {key: metadata[key] for key in _METADATA if key in metadata}
    return {
        "metadata": {**kept, "managedFields": [_without(each, "time") for each in managed]},
        "spec": {"taints": (document.get("spec") or {}).get("taints") or []},
        "status": {key: status[key] for key in _STATUS if key in status}
        | {
            "conditions": [_without(each, "lastHeartbeatTime") for each in status.get("conditions") or ()],
            "nodeInfo": {"kubeletVersion": (status.get("nodeInfo") or {}).get("kubeletVersion")},
        },
    }


def _without_version(document: Document | None) -> object:
    """A form for comparisons: KWOK's heartbeats only change the resource version, not the other kept fields."""
    if document is None:
        return None
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return metadata, document["spec"], document["status"]


def _without(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the values without a key whose time changes at every heartbeat."""
    return {each: value for each, value in values.items() if each != key}


def _uses(document: Document) -> tuple[Use, ...] | None:
    """The devices of a claim, once for each pod that has reserved it, or once without a pod; None without devices."""
    metadata, status = metadata_of(document), document.get("status") or {}
    namespace, claim = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    pods = [f"{namespace}/{each['name']}" for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
    uses = tuple(
        Use(pod, "", claim, str(each["driver"]), str(each["pool"]), str(each["device"]))
        for each in results
        for pod in pods or [""]
    )
    return uses or None


class SeenNode:
    """One Node, which implements `TargetNode` for the appliers, and the state of its task in the controller."""

    def __init__(self, name: str, nodes: Informer[Document]) -> None:
        self.name = name
        self._nodes = nodes
        self.users: list[Callable[[], None]] = []  # the appliers of its member, which are called after each change
        self.came: float | None = None  # when it was added to the fleet; for those at the start, when that was
        self.due = asyncio.Event()  # whether its task must sync it
        self.due.set()
        self.is_syncing = False
        self.failures = 0  # failed syncs in a row
        self.failure = ""  # why the last one failed
        self.refused = ""  # why the fleet does not write on it

    @property
    def is_pending(self) -> bool:
        return self.due.is_set() or self.is_syncing

    @property
    def document(self) -> Document | None:
        """The last known version; None if it does not exist."""
        return self._nodes.get(self.name)

    async def seen(self) -> Document:
        """Return the last known version of the Node. Raises ApiServerError if it does not exist."""
        if (document := self.document) is None:
            raise Unconfigured(f"the cluster has no node {self.name!r}")
        return document

    def note(self, document: Document) -> None:
        """Take the object that the server returned for a write."""
        self._nodes.wrote(document)

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self.users.append(on_change)

    @property
    def metadata(self) -> Mapping[str, Any]:
        return metadata_of(self.document)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def has_kubelet(self) -> bool:
        """Whether a real kubelet runs on the node. The agent there is then responsible for it."""
        return has_kubelet(self.document)

    def ready_since(self) -> str | None:
        """When the Node became Ready, in the format of Kubernetes; None if it is not Ready."""
        for each in ((self.document or {}).get("status") or {}).get("conditions") or ():
            if each.get("type") == "Ready" and each.get("status") == "True":
                return str(each.get("lastTransitionTime") or "") or None
        return None


class Cluster:
    """All Nodes and ResourceSlices, and the pods and claims that hold devices.

    A change of a Node, its pods or its claims makes the node due. `on_new` is called with each new node, and
    `on_slices` with the names of nodes after each change of their slices.
    """

    def __init__(
        self, api: Api, *, on_new: Callable[[SeenNode], None], on_slices: Callable[[Collection[str]], None]
    ) -> None:
        self.nodes: dict[str, SeenNode] = {}
        self._on_new = on_new
        self._nodes: Informer[Document] = Informer(api, NODES, keep=trimmed, on_change=self._see_node)
        self.slices: Informer[tuple[str, str]] = Informer(
            api,
            RESOURCE_SLICES,
            keep=_slice_text,
            index=lambda found: {found[0]},
            on_change=lambda old, new: on_slices({each[0] for each in (old, new) if each}),
        )
        self.pods: Informer[Pod] = Informer(
            api,
            PODS,
            keep=lambda document: read_pod(document, annotated_load(document)),
            index=lambda pod: {pod.node},
            on_change=self._see_pod,
        )
        self._claims: Informer[tuple[Use, ...]] = Informer(
            api,
            RESOURCE_CLAIMS,
            keep=_uses,
            index=lambda uses: {use.pool for use in uses},
            on_change=lambda old, new: self.wake({use.pool for use in (*(old or ()), *(new or ()))}),
        )
        self.informers: tuple[Informer[Any], ...] = (self._nodes, self.slices, self.pods, self._claims)

    @property
    def trouble(self) -> Mapping[str, ApiServerError]:
        """Why the copies may be out of date, by kind."""
        return {each.kind.plural: each.trouble for each in self.informers if each.trouble is not None}

    def node(self, name: str) -> SeenNode:
        """The Node of this name, which may not exist."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = SeenNode(name, self._nodes)
            self._on_new(found)
        return found

    def wake(self, names: Iterable[str]) -> None:
        for name in names:
            self.node(name).due.set()

    async def slices_of(self, node: str) -> Mapping[str, Document]:
        """The slices of the node by name. Raises ApiServerError if they may not be listed, or the kind is missing."""
        if isinstance(trouble := self.slices.trouble, Denied | Missing):
            raise trouble
        documents = [json.loads(text) for _, text in self.slices.indexed(node)]
        return {key_of(each): each for each in documents}

    def pods_of(self, node: str) -> Mapping[str, Pod]:
        """The pods of the node that request extended resources, by uid."""
        return {each.uid: each for each in self.pods.indexed(node) if each.containers}

    def pod_loads(self, node: str) -> Mapping[str, Range]:
        return {each.key: each.load for each in self.pods.indexed(node) if isinstance(each.load, Range)}

    def claim_uses(self, node: str) -> tuple[Use, ...]:
        """The devices of the node that claims use, with each pod that reserved them."""
        return tuple(use for uses in self._claims.indexed(node) for use in uses if use.pool == node)

    def removed(self, name: str) -> None:
        """Remove a Node that this process deleted."""
        self._nodes.removed(name)

    def _see_node(self, old: Document | None, new: Document | None) -> None:
        seen = self.node(metadata_of(new or old)["name"])
        if _without_version(old) != _without_version(new):
            for tell in seen.users:
                tell()
            seen.due.set()

    def _see_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and isinstance(new.load, Problem) and (old is None or old.load != new.load):
            log.warning("the load in a pod's annotation is invalid", reason=str(new.load))
        if old != new:
            self.wake({each.node for each in (old, new) if each})
