"""What is kept of the objects of thousands of nodes: as little as is used, and once what many of them have alike."""

import asyncio
import functools
import marshal
import sys
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import structlog

from .. import kube
from ..aio.clock import Timing
from ..errors import ApiServerError
from ..kube import MANAGER, metadata_of
from ..planning.in_use import Use
from .seen_pods import SeenPods

Document = Mapping[str, Any]

_TOLD = ("name", "uid", "resourceVersion", "labels", "annotations", "deletionTimestamp")
_MAPPINGS = ("labels", "annotations")
_STATUS = ("capacity", "allocatable")
_PLAIN = 0  # the version of marshal's form in which equal values are equal bytes


class Packed:
    """A slice that is seldom looked at: as a document it takes thirty times as much."""

    __slots__ = ("_bytes", "metadata")

    def __init__(self, document: Document) -> None:
        self.metadata = {key: document["metadata"].get(key) for key in ("uid", "resourceVersion")}
        self._bytes = zlib.compress(marshal.dumps(dict(document)), 1)

    @property
    def document(self) -> Document:
        found: Document = marshal.loads(zlib.decompress(self._bytes))  # noqa: S302 - it never left this process
        return found


def kept(document: Document) -> Document:
    """What is used of a Node. Five thousand whole ones would take more memory than all that is decided for them."""
    metadata, status = metadata_of(document), document.get("status") or {}
    managed = [
        {key: value for key, value in each.items() if key != "time"}
        for each in metadata.get("managedFields") or ()
        if _is_ours(each)
    ]
    version = (status.get("nodeInfo") or {}).get("kubeletVersion")
    told = {key: metadata[key] for key in _TOLD if key in metadata}
    told |= {key: _interned(told[key]) for key in _MAPPINGS if told.get(key)}
    return {
        "metadata": {**told, "managedFields": _shared(managed)},
        "spec": {"taints": _shared((document.get("spec") or {}).get("taints") or [])},
        "status": {key: _shared(status[key]) for key in _STATUS if key in status}
        | {
            "conditions": [_without_heartbeat(each) for each in status.get("conditions") or ()],
            "nodeInfo": _shared({"kubeletVersion": version}),
        },
    }


def stub(document: Document) -> Document:
    """What tells which object it is, and of which node."""
    metadata = {key: metadata_of(document).get(key) for key in ("name", "namespace", "uid")}
    return {"metadata": metadata, "spec": {"nodeName": (document.get("spec") or {}).get("nodeName")}}


def said(document: Document | None) -> object:
    """All but the version: KWOK writes a heartbeat into each Node, and what that changes is nothing that is kept."""
    if document is None:
        return None
    metadata = {key: value for key, value in document["metadata"].items() if key != "resourceVersion"}
    return metadata, document["spec"], document["status"]


def _without_heartbeat(condition: Mapping[str, Any]) -> Mapping[str, Any]:
    """A condition without the time that changes every few seconds though nothing happens."""
    return {key: value for key, value in _interned(condition).items() if key != "lastHeartbeatTime"}


def _interned(texts: Mapping[str, Any]) -> dict[str, Any]:
    """The same, of strings that all nodes share."""
    return {sys.intern(key): sys.intern(value) if type(value) is str else value for key, value in texts.items()}


def _shared(value: Any) -> Any:
    """The same, as one object for all nodes that have it alike. Nobody changes it."""
    return _unpacked(marshal.dumps(value, _PLAIN))


@functools.lru_cache(maxsize=1024)
def _unpacked(packed: bytes) -> Any:
    return marshal.loads(packed)  # noqa: S302 - it never left this process


def _is_ours(entry: Mapping[str, Any]) -> bool:
    return str(entry.get("manager", "")).startswith(MANAGER)


class SeenClaims:
    """`devices` are the names of allocated devices by node and driver; `on_node` is told of each change."""

    def __init__(self, on_node: Callable[[str], None]) -> None:
        self.devices: dict[str, dict[str, frozenset[str]]] = {}
        self._on_node = on_node
        self._nodes: dict[str, frozenset[str]] = {}  # of each claim, by uid
        self._by_node: dict[str, dict[str, tuple[Use, ...]]] = {}

    def uses(self, node: str) -> tuple[Use, ...]:
        """Which pod has which device of the node."""
        return tuple(use for uses in self._by_node.get(node, {}).values() for use in uses if use.pod)

    def see(self, document: Document) -> None:
        self._note(str(metadata_of(document).get("uid")), _uses(document))

    def see_gone(self, document: Document) -> None:
        self._note(str(metadata_of(document).get("uid")), ())

    def keep_only(self, uids: Collection[str]) -> None:
        for uid in self._nodes.keys() - set(uids):
            self._note(uid, ())

    def _note(self, uid: str, uses: tuple[Use, ...]) -> None:
        before = self._nodes.pop(uid, frozenset())
        nodes = frozenset(use.pool for use in uses)
        if nodes:
            self._nodes[uid] = nodes
        for node in before | nodes:
            mine = tuple(use for use in uses if use.pool == node)
            of_node = self._by_node.setdefault(node, {})
            if of_node.get(uid, ()) == mine:
                continue
            if mine:
                of_node[uid] = mine
            else:
                del of_node[uid]
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


def _uses(document: Document) -> tuple[Use, ...]:
    """Each device with each pod that has reserved the claim; without a pod where there is none."""
    metadata, status = metadata_of(document), document.get("status") or {}
    namespace, claim = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    pods = [f"{namespace}/{each['name']}" for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
    return tuple(
        Use(pod, "", claim, str(each["driver"]), str(each["pool"]), str(each["device"]))
        for each in results
        for pod in pods or [""]
    )


log = structlog.get_logger(__name__)


_FAKE_VERSIONS = ("fake", "kwok")
"""How versions of kubelets begin that KWOK writes, and those who make Nodes for it."""


class SeenNode:
    """One Node: a `TargetNode` for the outputs. `on_change` is called when it is another one, or gone; `on_answer` when
    the answer to a write says so, since more writes may follow.
    """

    __slots__ = ("_users", "document", "is_untold", "name", "on_answer", "on_change")

    def __init__(self, name: str, on_change: Callable[[], None], on_answer: Callable[[], None]) -> None:
        self.name = name
        self.document: Document | None = None
        self.is_untold = False  # no watch told of the last answer yet
        self.on_change = on_change
        self.on_answer = on_answer
        self._users: list[Callable[[], None]] = []

    async def seen(self) -> Document:
        """The object as it was seen last. Raises ApiServerError where there is none."""
        if self.document is None:
            raise kube.Unconfigured(f"the cluster has no node {self.name!r}")
        return self.document

    def subscribe(self, on_change: Callable[[], None]) -> None:
        self._users.append(on_change)

    def note(self, document: Document) -> None:
        """This is the Node, as the server just answered; the watch does not tell it again."""
        self.is_untold = True
        if self._take(document):
            self.on_answer()

    def see(self, document: Document | None) -> None:
        """This is the Node now; older news than is known is none."""
        known = kube.metadata_of(self.document).get("resourceVersion")
        if document is None or kube.metadata_of(document).get("resourceVersion") == known:
            self.is_untold = False
        if self._take(document):
            self.is_untold = False
            self.on_change()

    def _take(self, document: Document | None) -> bool:
        """Note the Node; whether what is kept of it is something else than before."""
        if document and self.document and kube.is_known(document, kube.metadata_of(self.document)):
            return False
        told = kept(document) if document else None
        is_same = said(told) == said(self.document)
        self.document = told
        if not is_same:
            for tell in self._users:
                tell()
        return not is_same

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

    __slots__ = ("_found", "_trouble", "_untold", "on_change")

    def __init__(self, trouble: Callable[[], ApiServerError | None]) -> None:
        self._trouble = trouble
        self.on_change: Callable[[], None] = lambda: None
        self._found: dict[str, Packed] = {}
        self._untold: set[str] = set()  # what was written from here, and no watch told of yet

    def __len__(self) -> int:
        return len(self._found)

    async def seen(self) -> Mapping[str, Document]:
        """All of them, by name. Raises ApiServerError where they may not be seen, or there is no such kind."""
        if isinstance(trouble := self._trouble(), kube.Denied | kube.Missing):
            raise trouble
        return {name: each.document for name, each in self._found.items()}

    def wrote(self, document: Document) -> None:
        """This is what the server answered to a write; the watch may have told it already."""
        name = kube.metadata_of(document)["name"]
        known = self._found.get(name)
        if known is None or not kube.is_known(document, known.metadata):
            self._found[name] = Packed(document)
            self._untold.add(name)

    def removed(self, name: str) -> None:
        self._found.pop(name, None)

    def see(self, document: Document) -> None:
        name = kube.metadata_of(document)["name"]
        self._untold.discard(name)
        known = self._found.get(name)
        if known is None or not kube.is_known(document, known.metadata):
            self._found[name] = Packed(document)
            self.on_change()

    def see_gone(self, name: str) -> None:
        if self._found.pop(name, None) is not None:
            self.on_change()

    def keep_only(self, names: frozenset[str], version: str) -> None:
        """A list had these; others are gone, but for what was written since."""
        new = {
            name for name, one in self._found.items() if name in self._untold and kube.is_since(one.metadata, version)
        }
        gone = self._found.keys() - names - new
        for name in gone:
            self.see_gone(name)


class Cluster:
    """All Nodes and ResourceSlices, and the pods and claims that hold devices.

    `on_node` is called with the name of a Node that is new, other, or gone, or whose devices others hold;
    `on_answer` when that is what the server answered to a write.

    `trouble` says, by kind, why what is known may be old.
    """

    def __init__(
        self,
        api: kube.Api,
        *,
        timing: Timing,
        on_node: Callable[[str], None],
        on_answer: Callable[[str], None],
    ) -> None:
        self.nodes: dict[str, SeenNode] = {}
        self.slices: dict[str, SeenSlices] = {}
        self.pods: dict[str, SeenPods] = {}
        self.claims = SeenClaims(on_node)
        self.trouble: dict[str, ApiServerError] = {}
        self._api = api
        self._timing = timing
        self._on_node = on_node
        self._on_answer = on_answer
        self._listed = {
            kind: asyncio.Event() for kind in (kube.NODES, kube.RESOURCE_SLICES, kube.PODS, kube.RESOURCE_CLAIMS)
        }

    async def listed(self, kind: kube.ObjectKind) -> None:
        """Wait until all there are of a kind were seen once."""
        await self._listed[kind].wait()

    def slices_of(self, node: str) -> SeenSlices:
        """Those of a node; there may be none."""
        found = self.slices.get(node)
        if found is None:
            found = self.slices[node] = SeenSlices(lambda: self.trouble.get(kube.RESOURCE_SLICES.plural))
        return found

    def pods_of(self, node: str) -> SeenPods:
        """Those of a node that ask for devices; there may be none."""
        found = self.pods.get(node)
        if found is None:
            found = self.pods[node] = SeenPods(lambda: self._on_node(node))
        return found

    def node(self, name: str) -> SeenNode:
        """A Node, which may not be there."""
        found = self.nodes.get(name)
        if found is None:
            changed, answered = functools.partial(self._on_node, name), functools.partial(self._on_answer, name)
            found = self.nodes[name] = SeenNode(name, changed, answered)
        return found

    def forget(self, name: str) -> None:
        """A Node that is gone and is not expected back."""
        for known in (self.nodes, self.slices, self.pods):
            known.pop(name, None)

    async def follow_nodes(self) -> None:
        await self._follow(kube.NODES, self._see_nodes, self._see_node, self._see_node_gone)

    async def follow_slices(self) -> None:
        await self._follow(kube.RESOURCE_SLICES, self._see_slices, self._see_slice, self._see_slice_gone)

    async def follow_pods(self) -> None:
        await self._follow(kube.PODS, self._see_pods, self._see_pod, self._see_pod_gone, fields="spec.nodeName!=")

    async def follow_claims(self) -> None:
        await self._follow(kube.RESOURCE_CLAIMS, self._see_claims, self.claims.see, self.claims.see_gone)

    async def _follow(
        self,
        kind: kube.ObjectKind,
        listed: Callable[[kube.Listed], None],
        changed: Callable[[Document], None],
        removed: Callable[[Document], None],
        fields: str = "",
    ) -> None:
        def keep(document: Document) -> Document:
            see(document)
            return stub(document)

        see = functools.partial(_see, kind, changed)

        async def watch() -> None:
            async with self._api.follow(kind, fields=fields, keep=keep) as changes:
                async for change in changes:
                    match change:
                        case kube.Listed():
                            listed(change)
                            self._heard(kind)
                        case kube.Changed(found):
                            see(found)
                        case kube.Removed(found):
                            removed(found)
                        case kube.Lost(error):
                            self._lost(kind, error)
                        case _:
                            self._heard(kind)

        async def refused(error: ApiServerError) -> None:
            """A permission is missing, or the server has no such kind."""
            self._lost(kind, error)
            self._listed[kind].set()  # nothing is known of it, and the rest goes on

        await kube.for_ever(watch, refused, timing=self._timing)

    def _lost(self, kind: kube.ObjectKind, error: ApiServerError) -> None:
        if str(self.trouble.get(kind.plural)) != str(error):
            log.warning("the API server does not tell", of=str(kind), reason=str(error))
        self.trouble[kind.plural] = error

    def _heard(self, kind: kube.ObjectKind) -> None:
        if self.trouble.pop(kind.plural, None) is not None:
            log.info("the API server tells again", of=str(kind))
        self._listed[kind].set()

    def _see_nodes(self, listed: kube.Listed) -> None:
        """What was seen is there; what was not is gone, unless it was made since."""
        for name in self.nodes.keys() - {kube.metadata_of(each)["name"] for each in listed.objects}:
            seen = self.nodes[name]  # a server with another store counts versions from the beginning
            if not (seen.is_untold and kube.is_since(kube.metadata_of(seen.document), listed.version)):
                seen.see(None)

    def _see_node(self, document: Document) -> None:
        self.node(kube.metadata_of(document)["name"]).see(document)

    def _see_node_gone(self, document: Document) -> None:
        self.node(kube.metadata_of(document)["name"]).see(None)

    def _see_slices(self, listed: kube.Listed) -> None:
        names: dict[str, set[str]] = {node: set() for node in self.slices}
        for each in listed.objects:
            names.setdefault(_node_of(each), set()).add(kube.metadata_of(each)["name"])
        for node, found in names.items():
            self.slices_of(node).keep_only(frozenset(found), listed.version)

    def _see_slice(self, document: Document) -> None:
        if node := _node_of(document):
            self.slices_of(node).see(document)

    def _see_slice_gone(self, document: Document) -> None:
        if node := _node_of(document):
            self.slices_of(node).see_gone(kube.metadata_of(document)["name"])

    def _see_pods(self, listed: kube.Listed) -> None:
        found: dict[str, set[str]] = {node: set() for node in self.pods}
        for each in listed.objects:
            found.setdefault(_node_of(each), set()).add(str(kube.metadata_of(each).get("uid")))
        for node, uids in found.items():
            self.pods_of(node).keep_only(uids)

    def _see_pod(self, document: Document) -> None:
        self.pods_of(_node_of(document)).see(document)

    def _see_pod_gone(self, document: Document) -> None:
        self.pods_of(_node_of(document)).see_gone(str(kube.metadata_of(document).get("uid")))

    def _see_claims(self, listed: kube.Listed) -> None:
        self.claims.keep_only({str(kube.metadata_of(each).get("uid")) for each in listed.objects})


def _node_of(document: Document) -> str:
    return str((document.get("spec") or {}).get("nodeName") or "")


def _see(kind: kube.ObjectKind, changed: Callable[[Document], None], document: Document) -> None:
    """Take note of an object; one that cannot be read, such as a pod with an odd annotation, is left out."""
    try:
        changed(document)
    except Exception:
        log.exception("an object is left out", kind=str(kind), name=kube.metadata_of(document).get("name"))
