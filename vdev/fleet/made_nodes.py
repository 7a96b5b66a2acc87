"""The Nodes that the file makes: there, with their labels, annotations, taints and capacity; and gone with it.

They are made by `create`, which never touches a Node that is there. Fields that others wrote stay. Taints are a list
that everybody shares: those that were ours are known by an annotation, and others keep theirs. Only Nodes that were
made from here, which a label tells, are ever removed. A Node that somebody else made has an annotation for as long as
anything is written on it from here. A made Node that gets a kubelet is handed over to it: the labels, annotations and
taints that were written here are taken off once, and from then on the Node is none of the fleet's (see `controller`).
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import structlog

from ..json_text import parse_json
from ..kube import NODES, Api, Conflict, Missing, metadata_of
from ..kube.ownership import written
from ..model.quantity import amount_of
from .cluster import SeenNode
from .scope import HOSTNAME, MAKER, TAINTS, TOLD, MadeNode, Scope, marked_by

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
        """Make what differs. Raises ApiServerError, also where a Node of this name is there that was not seen."""
        if seen.document is None:
            document = {"metadata": {"name": wanted.name, **_metadata(wanted)}, "spec": {"taints": wanted.taints()}}
            seen.note(await self._api.create(NODES, document, manager=MAKER))
            log.debug("node made", node=wanted.name)
        elif not self._scope().is_made(seen.metadata):
            self.refused[wanted.name] = "a Node of this name is there that this fleet did not make; it is left as it is"
            return
        self.refused.pop(wanted.name, None)
        if change := _change(seen.document or {}, wanted):
            seen.note(await self._api.patch(NODES, wanted.name, change, manager=MAKER))
        if change := _status_change(seen.document or {}, wanted):
            answer = await self._api.patch(NODES, wanted.name, change, manager=MAKER, subresource="status")
            seen.note(answer)

    async def hand_over(self, seen: SeenNode) -> None:
        """Leave a made Node to the kubelet that it has by now. Raises ApiServerError.

        The capacity is left to the kubelet, which sets extended resources that it does not know to 0 when it registers.
        """
        document = seen.document or {}
        change: dict[str, Any] = {"metadata": _version(document)}
        for part in ("labels", "annotations"):
            ours = written(document, "metadata", part, manager=MAKER) - {HOSTNAME}  # a kubelet needs this one
            change["metadata"][part] = dict.fromkeys(ours)
        taints = _taints(document, ())
        if taints != _taints_of(document):
            change["spec"] = {"taints": taints}
        seen.note(await self._api.patch(NODES, seen.name, change, manager=MAKER))
        log.info("node handed over to its kubelet", node=seen.name)

    async def remove(self, seen: SeenNode) -> None:
        """Delete a Node that was made from here. Raises ApiServerError, also if it changed since it was seen."""
        try:
            version = _version(seen.document or {})
            await self._api.delete(NODES, seen.name, uid=version["uid"], version=version["resourceVersion"])
        except Missing:
            return
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
            await self._annotate(seen, fleet)

    async def release(self, seen: SeenNode) -> None:
        """Nothing is on the Node from here any more. Raises ApiServerError."""
        if self._scope().is_marked(metadata_of(seen.document)):
            await self._annotate(seen, None)

    async def _annotate(self, seen: SeenNode, fleet: str | None) -> None:
        """Name the fleet that writes on this very Node, or none."""
        metadata = {"uid": metadata_of(seen.document).get("uid"), "annotations": {TOLD: fleet}}
        try:
            seen.note(await self._api.patch(NODES, seen.name, {"metadata": metadata}, manager=MAKER))
        except (Missing, Conflict) as gone:
            log.debug("a node is another one than was seen", node=seen.name, reason=str(gone))


def _metadata(wanted: MadeNode) -> dict[str, Any]:
    metadata = wanted.metadata()
    ours = json.dumps(wanted.taints(), separators=(",", ":"))
    return {**metadata, "annotations": {**metadata["annotations"], TAINTS: ours}}


def _change(document: Document, wanted: MadeNode) -> dict[str, Any]:
    """What of its labels, annotations and taints has to change; empty where nothing has to."""
    there, metadata = document["metadata"], _metadata(wanted)
    changes = {
        part: _differences(metadata[part], there.get(part) or {}, written(document, "metadata", part, manager=MAKER))
        for part in ("labels", "annotations")
    }
    taints = _taints(document, wanted.taints())
    is_tainted = taints == _taints_of(document)
    if is_tainted and not any(changes.values()):
        return {}
    changed = {part: each for part, each in changes.items() if each}
    change: dict[str, Any] = {"metadata": {**_version(document), **changed}}
    return change if is_tainted else {**change, "spec": {"taints": taints}}


def _status_change(document: Document, wanted: MadeNode) -> dict[str, Any]:
    """What of its capacity has to change; empty where nothing has to."""
    status, changes = document.get("status") or {}, {}
    for part in ("capacity", "allocatable"):
        amounts, there = wanted.status().get(part) or {}, status.get(part) or {}
        same = {name: there[name] for name in amounts if amount_of(there.get(name)) == amount_of(amounts[name])}
        ours = written(document, "status", part, manager=MAKER, subresource="status")
        if change := _differences({**amounts, **same}, there, ours):
            changes[part] = change
    return {"metadata": _version(document), "status": changes} if changes else {}


def _version(document: Document) -> dict[str, str]:
    """The version that was seen. Only this one may be changed or deleted: a kubelet may have come since, or a taint."""
    metadata = metadata_of(document)
    return {"uid": str(metadata.get("uid") or ""), "resourceVersion": str(metadata.get("resourceVersion") or "")}


def _differences(wanted: Document, there: Document, ours: Collection[str]) -> dict[str, Any]:
    """What a merge patch has to say: what is missing or another value, and None for what is ours and not wanted."""
    gone = dict.fromkeys(name for name in ours if name not in wanted)
    return gone | {name: value for name, value in wanted.items() if there.get(name) != value}


def _taints(document: Document, mine: Sequence[Document]) -> list[Document]:
    """The taints that the Node shall have: others' stay where they are."""
    there = _taints_of(document)
    try:
        before = parse_json((document["metadata"].get("annotations") or {}).get(TAINTS) or "[]")
        ours = {_key(each) for each in (*mine, *before)}
    except (ValueError, TypeError, AttributeError):  # somebody wrote something else there
        ours = {_key(each) for each in mine}
    kept = [each for each in there if _key(each) not in ours or each in mine]
    return [*kept, *(each for each in mine if each not in there)]


def _taints_of(document: Document) -> list[Document]:
    return [dict(each) for each in (document.get("spec") or {}).get("taints") or ()]


def _key(taint: Document) -> tuple[str, str]:
    return str(taint.get("key")), str(taint.get("effect"))
