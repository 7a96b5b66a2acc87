"""The Nodes that the file makes: there, with their labels, annotations, taints and capacity; and gone with it.

Fields that others wrote stay. Taints are a list that everybody shares: those that were ours are known by an annotation,
and others keep theirs. Only Nodes that were made from here, which a label tells, are ever removed. A Node that somebody
else made has an annotation for as long as anything is written on it from here.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from ..core.fleet.made import MAKER, TAINTS, TOLD, MadeNode
from ..core.fleet.scope import Scope, marked_by
from ..core.model.syntax.quantity import amount_of
from ..kube import NODES, Api, Conflict, Missing, metadata_of
from ..kube.node_cleaning import cleared
from ..kube.ownership import owned
from .seen.cluster import SeenNode

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]


class NodeMaker:
    """Makes Nodes, keeps them as the file has them, and removes them; and marks those of others that are told of.

    `scope` says which is which; of several fleets each has its own.
    """

    def __init__(self, api: Api, scope: Callable[[], Scope]) -> None:
        self._api = api
        self._scope = scope
        self.refused: dict[str, str] = {}  # Nodes of these names belong to somebody else, or were refused

    async def make(self, wanted: MadeNode, seen: SeenNode) -> None:
        """Make what differs. Raises ApiServerError."""
        document = seen.document
        if document is not None and not self._scope().is_made(document["metadata"]):
            self.refused[wanted.name] = "a Node of this name is there that this fleet did not make; it is left as it is"
            return
        self.refused.pop(wanted.name, None)
        if document is None:
            log.debug("node made", node=wanted.name)
        if document is None or not _is_there(document, wanted):
            seen.note(await self._api.apply(NODES, wanted.name, _whole(document, wanted), force=True, manager=MAKER))
        status = wanted.status()
        if seen.document and not _has_status(seen.document, status):
            rest = await cleared(self._api, seen.document, status, MAKER)
            if rest is not seen.document:
                seen.note(rest)
        if not _has_status(seen.document or {}, status):
            whole = {"status": status}
            answer = await self._api.apply(NODES, wanted.name, whole, force=True, manager=MAKER, subresource="status")
            seen.note(answer)

    async def remove(self, seen: SeenNode) -> None:
        """Delete a Node that was made from here. Raises ApiServerError."""
        try:
            await self._api.delete(NODES, seen.name, uid=str(metadata_of(seen.document).get("uid") or ""))
        except (Missing, Conflict):
            return  # it is gone, or is another one
        log.debug("node removed", node=seen.name)

    async def mark(self, seen: SeenNode) -> None:
        """From now on this fleet writes on the Node, unless another one does. Raises ApiServerError."""
        by, fleet = marked_by(metadata_of(seen.document)), self._scope().name
        if by in {"", fleet}:
            self.refused.pop(seen.name, None)
        else:
            self.refused[seen.name] = (
                f"the fleet {by!r} writes on it; where that is gone, remove the annotation {TOLD} of the Node"
            )
        if not by:
            await self._annotate(seen, {"annotations": {TOLD: fleet}})

    async def release(self, seen: SeenNode) -> None:
        """Nothing is on the Node from here any more. Raises ApiServerError."""
        if self._scope().is_marked(metadata_of(seen.document)):
            await self._annotate(seen, {})

    async def _annotate(self, seen: SeenNode, wanted: Document) -> None:
        """Have these annotations on this very Node; one that is gone is not made."""
        metadata = {"uid": metadata_of(seen.document).get("uid"), **wanted}
        try:
            seen.note(await self._api.apply(NODES, seen.name, {"metadata": metadata}, force=True, manager=MAKER))
        except (Missing, Conflict) as gone:
            log.debug("a node is another one than was seen", node=seen.name, reason=str(gone))


def _metadata(wanted: MadeNode) -> dict[str, Any]:
    metadata = wanted.metadata()
    ours = json.dumps(wanted.taints(), separators=(",", ":"))
    return {**metadata, "annotations": {**metadata["annotations"], TAINTS: ours}}


def _whole(document: Document | None, wanted: MadeNode) -> Document:
    """What to apply; to this very version of the Node, since somebody else may add a taint."""
    metadata = _metadata(wanted)
    if document is None:
        return {"metadata": metadata, "spec": {"taints": wanted.taints()}}
    version = document["metadata"].get("resourceVersion")
    return {"metadata": {**metadata, "resourceVersion": version}, "spec": {"taints": _taints(document, wanted)}}


def _is_there(document: Document, wanted: MadeNode) -> bool:
    """Whether it has these labels, annotations and taints, and no others from here."""
    there, metadata = document["metadata"], _metadata(wanted)
    return _taints(document, wanted) == _taints_of(document) and all(
        owned(document, "metadata", key, manager=MAKER) <= metadata[key].keys()
        and metadata[key].items() <= (there.get(key) or {}).items()
        for key in ("labels", "annotations")
    )


def _taints(document: Document, wanted: MadeNode) -> list[Document]:
    """The taints that the Node shall have: others' stay where they are."""
    mine, there = wanted.taints(), _taints_of(document)
    try:
        before = json.loads((document["metadata"].get("annotations") or {}).get(TAINTS) or "[]")
    except ValueError:
        before = []
    ours = {_key(each) for each in (*mine, *before)}
    kept = [each for each in there if _key(each) not in ours or each in mine]
    return [*kept, *(each for each in mine if each not in there)]


def _taints_of(document: Document) -> list[Document]:
    return [dict(each) for each in (document.get("spec") or {}).get("taints") or ()]


def _key(taint: Document) -> tuple[str, str]:
    return str(taint.get("key")), str(taint.get("effect"))


def _has_status(document: Document, wanted: Document) -> bool:
    status = document.get("status") or {}
    for key in ("capacity", "allocatable"):
        amounts, there = wanted.get(key) or {}, status.get(key) or {}
        if any(amount_of(there.get(name)) != amount_of(amount) for name, amount in amounts.items()):
            return False
        if not owned(document, "status", key, manager=MAKER, subresource="status") <= amounts.keys():
            return False
    return True
