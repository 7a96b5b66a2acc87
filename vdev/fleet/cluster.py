"""What is kept of the objects of thousands of nodes: as little as is used."""

import functools
import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import structlog

from .. import kube
from ..errors import ApiServerError
from ..kube import Informer, key_of, metadata_of
from ..model.problem import Problem
from ..planning.in_use import Use
from .seen_pods import SeenPod, SeenPods, pod_of

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]

_TOLD = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
_STATUS = ("capacity", "allocatable")


class Packed:
    """A slice of a node that is seldom looked at: as a document it takes thirty times as much."""

    __slots__ = ("_bytes", "key", "nodes")

    def __init__(self, document: Document) -> None:
        self.key = key_of(document)
        self.nodes = frozenset({str(document["spec"]["nodeName"])})
        self._bytes = zlib.compress(json.dumps(document).encode(), 1)

    @property
    def document(self) -> Document:
        found: Document = json.loads(zlib.decompress(self._bytes))
        return found


def _packed(document: Document) -> Packed | None:
    return Packed(document) if (document.get("spec") or {}).get("nodeName") else None


def kept(document: Document) -> Document:
    """What is used of a Node. Thousands of whole ones would take more memory than all that is decided for them."""
    metadata, status = metadata_of(document), document.get("status") or {}
    managed = metadata.get("managedFields") or ()
    told = {key: metadata[key] for key in _TOLD if key in metadata}
    return {
        "metadata": {**told, "managedFields": [_without(each, "time") for each in managed]},
        "spec": {"taints": (document.get("spec") or {}).get("taints") or []},
        "status": {key: status[key] for key in _STATUS if key in status}
        | {
            "conditions": [_without(each, "lastHeartbeatTime") for each in status.get("conditions") or ()],
            "nodeInfo": {"kubeletVersion": (status.get("nodeInfo") or {}).get("kubeletVersion")},
        },
    }


def said(document: Document | None) -> object:
    """All but the version: KWOK writes a heartbeat into each Node, and what that changes is nothing that is kept."""
    if document is None:
        return None
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return metadata, document["spec"], document["status"]


def _without(values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Without a time that changes though nothing happens."""
    return {each: value for each, value in values.items() if each != key}


@dataclass(frozen=True, slots=True)
class ClaimUses:
    """The devices that a claim has: each with each pod that has reserved it, and without a pod where there is none."""

    key: str
    uses: tuple[Use, ...]

    @property
    def nodes(self) -> frozenset[str]:
        return frozenset(use.pool for use in self.uses)


def _uses(document: Document) -> ClaimUses | None:
    metadata, status = metadata_of(document), document.get("status") or {}
    namespace, claim = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    pods = [f"{namespace}/{each['name']}" for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
    uses = tuple(
        Use(pod, "", claim, str(each["driver"]), str(each["pool"]), str(each["device"]))
        for each in results
        for pod in pods or [""]
    )
    return ClaimUses(key_of(document), uses) if uses else None


class Placed(Protocol):
    """What is kept of an object that concerns nodes."""

    @property
    def key(self) -> str:
        """As the informer has it."""

    @property
    def nodes(self) -> frozenset[str]:
        """The names of the nodes."""


P = TypeVar("P", bound=Placed)


class ByNode(Generic[P]):
    """What is kept of the objects of a kind, by node; `on_node` is told of each change."""

    def __init__(self, on_node: Callable[[str], None]) -> None:
        self._on_node = on_node
        self._found: dict[str, dict[str, P]] = {}

    def of(self, node: str) -> Sequence[P]:
        return tuple(self._found.get(node, {}).values())

    def see(self, old: P | None, new: P | None) -> None:
        if old == new:
            return
        nodes: set[str] = set()
        if old is not None:
            for node in old.nodes:
                del self._found[node][old.key]
                if not self._found[node]:
                    del self._found[node]
            nodes |= old.nodes
        if new is not None:
            for node in new.nodes:
                self._found.setdefault(node, {})[new.key] = new
            nodes |= new.nodes
        for node in nodes:
            self._on_node(node)


_FAKE_VERSIONS = ("fake", "kwok")
"""How versions of kubelets begin that KWOK writes, and those who make Nodes for it."""


class SeenNode:
    """One Node: a `TargetNode` for the outputs. `on_change` is called when it is another one, or gone; `note` takes the
    answer to a write.
    """

    __slots__ = ("_users", "document", "name", "note", "on_change")

    def __init__(self, name: str, on_change: Callable[[], None], wrote: Callable[[Document], None]) -> None:
        self.name = name
        self.document: Document | None = None
        self.on_change = on_change
        self.note = wrote
        self._users: list[Callable[[], None]] = []

    async def seen(self) -> Document:
        """The object as it was seen last. Raises ApiServerError where there is none."""
        if self.document is None:
            raise kube.Unconfigured(f"the cluster has no node {self.name!r}")
        return self.document

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._users.append(on_change)

    def see(self, document: Document | None) -> None:
        """This is what is kept of the Node now."""
        is_same = said(document) == said(self.document)
        self.document = document
        if is_same:
            return
        for tell in self._users:
            tell()
        self.on_change()

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata; nothing where it is not there."""
        return kube.metadata_of(self.document)

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def has_kubelet(self) -> bool:
        """Whether the Node has the version of a kubelet in its status, so that an agent on the node has to serve it."""
        version = ((self.document or {}).get("status") or {}).get("nodeInfo", {}).get("kubeletVersion")
        return bool(version) and not str(version).startswith(_FAKE_VERSIONS)

    def ready_since(self) -> str | None:
        """When the Node became Ready, as Kubernetes writes times; None while it is not."""
        for each in ((self.document or {}).get("status") or {}).get("conditions") or ():
            if each.get("type") == "Ready" and each.get("status") == "True":
                return str(each.get("lastTransitionTime") or "") or None
        return None


class SeenSlices:
    """The ResourceSlices of one node: a `SlicesView` for the output."""

    def __init__(self, informer: Informer[Packed], slices: ByNode[Packed], node: str) -> None:
        self._informer = informer
        self._slices = slices
        self._node = node

    async def seen(self) -> Mapping[str, Document]:
        """All of them, by name. Raises ApiServerError where they may not be seen, or there is no such kind."""
        if isinstance(trouble := self._informer.trouble, kube.Denied | kube.Missing):
            raise trouble
        return {each.key: each.document for each in self._slices.of(self._node)}

    def wrote(self, document: Document) -> None:
        """This is what the server answered to a write."""
        self._informer.wrote(document)

    def removed(self, name: str) -> None:
        self._informer.removed(name)


class Cluster:
    """All Nodes and ResourceSlices, and the pods and claims that hold devices.

    `on_node` is called with the name of a Node that is new, other, or gone, or whose devices others hold;
    `on_slices` with that of a node whose slices are others.
    """

    def __init__(self, api: kube.Api, *, on_node: Callable[[str], None], on_slices: Callable[[str], None]) -> None:
        self.nodes: dict[str, SeenNode] = {}
        self._on_node = on_node
        self._told: dict[kube.ObjectKind, str] = {}  # the trouble that the log has

        self._slices_of: ByNode[Packed] = ByNode(on_slices)
        self._pods_of: ByNode[SeenPod] = ByNode(on_node)
        self._claims_of: ByNode[ClaimUses] = ByNode(on_node)
        self._nodes: Informer[Document] = Informer(
            api, kube.NODES, keep=kept, on_change=self._see_node, on_look=lambda: self._say(self._nodes)
        )
        self._slices: Informer[Packed] = Informer(
            api,
            kube.RESOURCE_SLICES,
            keep=_packed,
            on_change=self._slices_of.see,
            on_look=lambda: self._say(self._slices),
        )
        self._pods: Informer[SeenPod] = Informer(
            api,
            kube.PODS,
            fields="spec.nodeName!=",
            keep=pod_of,
            on_change=self._see_pod,
            on_look=lambda: self._say(self._pods),
        )
        self._claims: Informer[ClaimUses] = Informer(
            api,
            kube.RESOURCE_CLAIMS,
            keep=_uses,
            on_change=self._claims_of.see,
            on_look=lambda: self._say(self._claims),
        )
        self.informers: tuple[Informer[Any], ...] = (self._nodes, self._slices, self._pods, self._claims)

    @property
    def trouble(self) -> Mapping[str, ApiServerError]:
        """Why what is known may be old, by kind."""
        return {each.kind.plural: each.trouble for each in self.informers if each.trouble is not None}

    def node(self, name: str) -> SeenNode:
        """A Node, which may not be there."""
        found = self.nodes.get(name)
        if found is None:
            changed = functools.partial(self._on_node, name)
            found = self.nodes[name] = SeenNode(name, changed, self._nodes.wrote)
        return found

    def slices_of(self, node: str) -> SeenSlices:
        return SeenSlices(self._slices, self._slices_of, node)

    def pods_of(self, node: str) -> SeenPods:
        return SeenPods(self._pods, lambda: self._pods_of.of(node))

    def allocated(self, node: str) -> tuple[Use, ...]:
        """Which claim has which device of the node, with each pod that reserved it."""
        return tuple(use for each in self._claims_of.of(node) for use in each.uses if use.pool == node)

    def removed(self, name: str) -> None:
        """A Node was deleted from here."""
        self._nodes.removed(name)

    def forget(self, name: str) -> None:
        """A Node that is gone and is not expected back."""
        self.nodes.pop(name, None)

    def _see_node(self, old: Document | None, new: Document | None) -> None:
        self.node(metadata_of(new or old)["name"]).see(new)

    def _see_pod(self, old: SeenPod | None, new: SeenPod | None) -> None:
        if new is not None and isinstance(new.says, Problem) and (old is None or old.says != new.says):
            log.warning("a pod says no load", reason=str(new.says))
        self._pods_of.see(old, new)

    def _say(self, informer: Informer[Any]) -> None:
        """In the log, once, that a kind is not heard of, and that it is again."""
        kind, reason = informer.kind, str(informer.trouble or "")
        before = self._told.get(kind, "")
        self._told[kind] = reason
        if reason and reason != before:
            log.warning("the API server does not tell", of=str(kind), reason=reason)
        elif before and not reason:
            log.info("the API server tells again", of=str(kind))
