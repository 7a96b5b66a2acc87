"""Creates the Nodes of the file, keeps their labels, annotations, taints and capacity, and deletes them.

Only Nodes with the label of this fleet are ever deleted. `create` never changes an existing Node. Fields of other
owners stay. Taints are one list without owners, so an annotation names those of the fleet. Nodes that the fleet did not
create have an annotation as long as the fleet writes on them. If a Node of the fleet gets a kubelet, it is handed over:
the fleet removes its labels, annotations and taints once, and does not change the Node any more (see `controller`).
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import structlog

from ..kube.api import Api
from ..kube.errors import Conflict, Missing
from ..kube.objects import NODES, metadata_of
from ..model.quantity import amount_of
from ..node.ownership import owned
from .cluster import SeenNode
from .scope import FLEET, HOSTNAME, MAKER, TAINTS, MadeNode, made_by, marked_by

log = structlog.get_logger(__name__)

Document = Mapping[str, Any]


class NodeMaker:
    """Creates, changes and deletes the Nodes of a fleet, and marks other Nodes on which the fleet writes."""

    def __init__(self, api: Api, fleet: str) -> None:
        self._api = api
        self._fleet = fleet

    async def make(self, wanted: MadeNode, seen: SeenNode) -> None:
        """Create the Node or write the differences. Raises ApiServerError, e.g. if an unseen Node has this name."""
        if seen.document is None:
            seen.note(await self._api.create(NODES, wanted.document(), manager=MAKER))
            log.debug("node made", node=wanted.name)
        elif made_by(seen.metadata) != self._fleet:
            seen.refused = "a Node of this name exists that this fleet did not create; it is not changed"
            return
        if change := _change(seen.document or {}, wanted):
            seen.note(await self._api.patch(NODES, wanted.name, change, manager=MAKER))
        if change := _status_change(seen.document or {}, wanted):
            answer = await self._api.patch(NODES, wanted.name, change, manager=MAKER, subresource="status")
            seen.note(answer)

    async def hand_over(self, seen: SeenNode) -> None:
        """Hand a created Node over to its new kubelet. Raises ApiServerError.

        The capacity stays: a kubelet that registers sets extended resources that it does not know to 0.
        """
        document = seen.document or {}
        change: dict[str, Any] = {"metadata": _version(document)}
        for part in ("labels", "annotations"):
            ours = owned(document, "metadata", part, manager=MAKER)
            change["metadata"][part] = dict.fromkeys(ours - {HOSTNAME})  # a kubelet needs this label
        taints = _taints(document, ())
        if taints != _taints_of(document):
            change["spec"] = {"taints": taints}
        seen.note(await self._api.patch(NODES, seen.name, change, manager=MAKER))
        log.info("node handed over to its kubelet", node=seen.name)

    async def remove(self, seen: SeenNode) -> None:
        """Delete a Node that this fleet created. Raises Conflict if it has changed, for example has a kubelet."""
        try:
            await self._api.patch(NODES, seen.name, {"metadata": _version(seen.document or {})})  # only compares
            await self._api.delete(NODES, seen.name)
        except Missing:
            return
        log.debug("node removed", node=seen.name)

    async def mark(self, seen: SeenNode) -> None:
        """Mark a Node as one on which this fleet writes, unless another fleet does. Raises ApiServerError."""
        by = marked_by(seen.metadata)
        if not by:
            await self._annotate(seen, self._fleet)
        elif by != self._fleet:
            seen.refused = (
                f"the fleet {by!r} writes on it; if that fleet is gone, remove the annotation {FLEET} from the Node"
            )

    async def release(self, seen: SeenNode) -> None:
        """Remove the mark of this fleet. Raises ApiServerError."""
        if marked_by(seen.metadata) == self._fleet:
            await self._annotate(seen, None)

    async def _annotate(self, seen: SeenNode, fleet: str | None) -> None:
        """Set or remove the annotation that names the fleet."""
        metadata = {"uid": seen.metadata.get("uid"), "annotations": {FLEET: fleet}}
        try:
            seen.note(await self._api.patch(NODES, seen.name, {"metadata": metadata}, manager=MAKER))
        except (Missing, Conflict) as gone:
            log.debug("a node was replaced or deleted", node=seen.name, reason=str(gone))


def _change(document: Document, wanted: MadeNode) -> dict[str, Any]:
    """The patch of its labels, annotations and taints; empty if they match."""
    present, metadata = document["metadata"], wanted.metadata()
    changes = {
        part: _differences(metadata[part], present.get(part) or {}, owned(document, "metadata", part, manager=MAKER))
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
    """The patch of its capacity other than devices, which is all allocatable; empty if it matches."""
    status, amounts, changes = document.get("status") or {}, wanted.of.capacity, {}
    for part in ("capacity", "allocatable"):
        present = status.get(part) or {}
        same = {name: present[name] for name in amounts if amount_of(present.get(name)) == amount_of(amounts[name])}
        ours = owned(document, "status", part, manager=MAKER)
        if change := _differences({**amounts, **same}, present, ours):
            changes[part] = change
    return {"metadata": _version(document), "status": changes} if changes else {}


def _version(document: Document) -> dict[str, str]:
    """The known version, as a precondition, because a kubelet or a taint may have been added since."""
    metadata = metadata_of(document)
    return {"uid": str(metadata.get("uid") or ""), "resourceVersion": str(metadata.get("resourceVersion") or "")}


def _differences(wanted: Document, present: Document, ours: Collection[str]) -> dict[str, Any]:
    """A merge patch: values that are missing or differ, and None for keys in `ours` that are not wanted."""
    gone = dict.fromkeys(name for name in ours if name not in wanted)
    return gone | {name: value for name, value in wanted.items() if present.get(name) != value}


def _taints(document: Document, mine: Sequence[Document]) -> list[Document]:
    """The wanted taints of the Node. Taints of other owners keep their positions."""
    present = _taints_of(document)
    try:
        before = json.loads((document["metadata"].get("annotations") or {}).get(TAINTS) or "[]")
        ours = {_key(each) for each in (*mine, *before)}
    except (ValueError, TypeError, AttributeError, RecursionError):  # another client changed the annotation
        ours = {_key(each) for each in mine}
    kept = [each for each in present if _key(each) not in ours or each in mine]
    return [*kept, *(each for each in mine if each not in present)]


def _taints_of(document: Document) -> list[Document]:
    return [dict(each) for each in (document.get("spec") or {}).get("taints") or ()]


def _key(taint: Document) -> tuple[str, str]:
    return str(taint.get("key")), str(taint.get("effect"))
