"""What is kept of the objects of thousands of nodes: as little as is used, and once what many of them have alike."""

import functools
import marshal
import sys
import zlib
from collections.abc import Mapping
from typing import Any

from ...kube import MANAGER, metadata_of

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
