"""What is kept of the objects of thousands of nodes: as little as is used."""

import functools
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from .. import kube
from ..errors import ApiServerError
from ..kube import MANAGER, Informer, key_of, metadata_of
from ..planning.in_use import Use
from .seen_pods import SeenPod, SeenPods, pod_of

Document = Mapping[str, Any]

_TOLD = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
_STATUS = ("capacity", "allocatable")


class Packed:
    """A slice of a node that is seldom looked at: as a document it takes thirty times as much."""

    __slots__ = ("_bytes", "name", "node")

    def __init__(self, document: Document) -> None:
        self.name = str(document["metadata"]["name"])
        self.node = str(document["spec"]["nodeName"])
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
    managed = [each for each in metadata.get("managedFields") or () if _is_ours(each)]
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


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("manager", "")).startswith(MANAGER)


@dataclass(frozen=True, slots=True)
class ClaimUses:
    """The devices that a claim has: each with each pod that has reserved it, and without a pod where there is none."""

    key: str
    uses: tuple[Use, ...]


class SeenClaims:
    """`devices` are the names of allocated devices by node and driver; `on_node` is told of each change."""

    def __init__(self, on_node: Callable[[str], None]) -> None:
        self.devices: dict[str, dict[str, frozenset[str]]] = {}
        self._on_node = on_node
        self._by_node: dict[str, dict[str, tuple[Use, ...]]] = {}

    def uses(self, node: str) -> tuple[Use, ...]:
        """Which pod has which device of the node."""
        return tuple(use for uses in self._by_node.get(node, {}).values() for use in uses if use.pod)

    def see(self, old: ClaimUses | None, new: ClaimUses | None) -> None:
        """A claim has this now in place of that."""
        if old == new:
            return
        for node in {use.pool for each in (old, new) if each is not None for use in each.uses}:
            of_node = self._by_node.setdefault(node, {})
            mine = tuple(use for use in new.uses if use.pool == node) if new is not None else ()
            if old is not None:
                of_node.pop(old.key, None)
            if new is not None and mine:
                of_node[new.key] = mine
            self._tell(node)

    def _tell(self, node: str) -> None:
        found: dict[str, set[str]] = {}
        for uses in self._by_node[node].values():
            for use in uses:
                found.setdefault(use.driver, set()).add(use.device)
        self.devices[node] = {driver: frozenset(names) for driver, names in found.items()}
        if not found:
            del self._by_node[node], self.devices[node]
        self._on_node(node)


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


log = structlog.get_logger(__name__)


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

    __slots__ = ("_found", "_informer", "on_change")

    def __init__(self, informer: Informer[Packed]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        self._found: dict[str, Packed] = {}
        self._informer = informer

    def __len__(self) -> int:
        return len(self._found)

    async def seen(self) -> Mapping[str, Document]:
        """All of them, by name. Raises ApiServerError where they may not be seen, or there is no such kind."""
        if isinstance(trouble := self._informer.trouble, kube.Denied | kube.Missing):
            raise trouble
        return {name: each.document for name, each in self._found.items()}

    def wrote(self, document: Document) -> None:
        """This is what the server answered to a write."""
        self._informer.wrote(document)

    def removed(self, name: str) -> None:
        self._informer.removed(name)

    def see(self, old: Packed | None, new: Packed | None) -> None:
        if old is not None:
            self._found.pop(old.name, None)
        if new is not None:
            self._found[new.name] = new
        self.on_change()


class Cluster:
    """All Nodes and ResourceSlices, and the pods and claims that hold devices.

    `on_node` is called with the name of a Node that is new, other, or gone, or whose devices others hold.
    """

    def __init__(self, api: kube.Api, *, on_node: Callable[[str], None]) -> None:
        self.nodes: dict[str, SeenNode] = {}
        self.slices: dict[str, SeenSlices] = {}
        self.pods: dict[str, SeenPods] = {}
        self.claims = SeenClaims(on_node)
        self._on_node = on_node
        self._told: dict[kube.ObjectKind, str] = {}  # the trouble that the log has

        self._nodes: Informer[Document] = Informer(
            api, kube.NODES, keep=kept, on_change=self._see_node, on_look=lambda: self._say(self._nodes)
        )
        self._slices: Informer[Packed] = Informer(
            api, kube.RESOURCE_SLICES, keep=_packed, on_change=self._see_slice, on_look=lambda: self._say(self._slices)
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
            on_change=self.claims.see,
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
        """Those of a node; there may be none."""
        found = self.slices.get(node)
        if found is None:
            found = self.slices[node] = SeenSlices(self._slices)
        return found

    def pods_of(self, node: str) -> SeenPods:
        """Those of a node that ask for devices; there may be none."""
        found = self.pods.get(node)
        if found is None:
            found = self.pods[node] = SeenPods(self._pods, lambda: self._on_node(node))
        return found

    def removed(self, name: str) -> None:
        """A Node was deleted from here."""
        self._nodes.removed(name)

    def forget(self, name: str) -> None:
        """A Node that is gone and is not expected back."""
        self.nodes.pop(name, None)
        self._forget_empty(name)

    def _forget_empty(self, name: str) -> None:
        """Slices and pods may be there before their Node is, and a while after it."""
        if name not in self.nodes and not self.slices.get(name):
            self.slices.pop(name, None)
        if name not in self.nodes and not self.pods.get(name):
            self.pods.pop(name, None)

    def _see_node(self, old: Document | None, new: Document | None) -> None:
        name = metadata_of(new or old)["name"]
        self.node(name).see(new)

    def _see_slice(self, old: Packed | None, new: Packed | None) -> None:
        for node in {each.node for each in (old, new) if each is not None}:
            self.slices_of(node).see(old, new if new and new.node == node else None)
            self._forget_empty(node)

    def _see_pod(self, old: SeenPod | None, new: SeenPod | None) -> None:
        for node in {
            each.node for each in (old, new) if each is not None
        }:  # two, if a new pod has the name of an old one
            self.pods_of(node).see(old if old and old.node == node else None, new if new and new.node == node else None)
            self._forget_empty(node)

    def _say(self, informer: Informer[Any]) -> None:
        """In the log, once, that a kind is not heard of, and that it is again."""
        kind, reason = informer.kind, str(informer.trouble or "")
        before = self._told.get(kind, "")
        self._told[kind] = reason
        if reason and reason != before:
            log.warning("the API server does not tell", of=str(kind), reason=reason)
        elif before and not reason:
            log.info("the API server tells again", of=str(kind))
