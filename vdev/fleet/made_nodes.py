"""Creates the Nodes of the file, keeps their labels, annotations, taints and capacity, and deletes them.

Only Nodes with the label of this fleet are ever deleted. `create` never changes an existing Node. Fields of other
owners stay. Taints are one list without owners, so an annotation names those of the fleet. Nodes that the fleet did not
create have an annotation as long as the fleet writes on them. If a Node of the fleet gets a kubelet, it is handed over:
the fleet removes its labels, annotations and taints once, and does not change the Node any more (see `controller`).
"""

import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog

from ..dra import slices
from ..kube.api import Api
from ..kube.objects import NODES, metadata_of
from ..model.quantity import amount_of
from ..model.spec import Spec
from ..node.ownership import owned
from .cluster import SeenNode
from .member import first_plan, spec_for_fleet
from .scope import FLEET, HOSTNAME, MAKER, TAINTS, MadeNode, Scope, made_by, marked_by

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
        else:
            await self._patch(seen, _change(seen.document, wanted))
        await self._patch(seen, _status_change(seen.document or {}, wanted), subresource="status")

    async def hand_over(self, seen: SeenNode) -> None:
        """Hand a created Node over to its new kubelet. Raises ApiServerError.

        The capacity stays: a kubelet that registers sets extended resources that it does not know to 0.
        """
        document = seen.document or {}
        labels = owned(document, "metadata", "labels", manager=MAKER) - {HOSTNAME}  # a kubelet needs that label
        annotations = owned(document, "metadata", "annotations", manager=MAKER)
        metadata = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(annotations)}
        await self._patch(seen, {"metadata": metadata, **_taints_change(document, ())})
        log.info("node handed over to its kubelet", node=seen.name)

    async def remove(self, seen: SeenNode) -> None:
        """Delete a Node that this fleet created. Raises Conflict if it has changed, e.g. has a kubelet."""
        await self._api.patch(NODES, seen.name, {"metadata": _version(seen.document)})  # only compares
        await self._api.delete(NODES, seen.name)
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
        seen.note(await self._api.patch(NODES, seen.name, {"metadata": metadata}, manager=MAKER))

    async def _patch(self, seen: SeenNode, change: Document, *, subresource: str = "") -> None:
        """Patch the known version of the Node, because a kubelet or a taint may have been added since."""
        if change:
            whole = {**change, "metadata": {**change.get("metadata", {}), **_version(seen.document)}}
            answer = await self._api.patch(NODES, seen.name, whole, manager=MAKER, subresource=subresource)
            seen.note(answer)


def objects(spec: Spec, scope: Scope) -> Iterator[Document]:
    """Yield each Node that the file makes and its ResourceSlices, in their state after all delays, for a dry run."""
    ours = spec_for_fleet(spec)
    for made in scope.made.values():
        node = made.document()
        plan = first_plan(ours, made.name, node["metadata"]["labels"])
        node["metadata"]["labels"] = node["metadata"]["labels"] | plan.labels
        status: dict[str, Any] = {
            part: made.of.capacity | {name: str(each[part]) for name, each in plan.capacity.items()}
            for part in ("capacity", "allocatable")
        }
        if plan.conditions:
            status["conditions"] = [*plan.conditions]
        yield {"apiVersion": "v1", "kind": "Node", **node, "status": status}
        for pool in plan.pools.values():
            yield from slices.objects(pool, made.name)


def _change(document: Document, wanted: MadeNode) -> dict[str, Any]:
    """The patch of its labels, annotations and taints; empty if they match."""
    metadata = _differences(document, "metadata", wanted.metadata)
    return ({"metadata": metadata} if metadata else {}) | _taints_change(document, wanted.taints())


def _status_change(document: Document, wanted: MadeNode) -> dict[str, Any]:
    """The patch of its capacity other than devices, which is all allocatable; empty if it matches."""
    amounts = {"capacity": wanted.of.capacity, "allocatable": wanted.of.capacity}
    status = _differences(document, "status", amounts, same=lambda one, two: amount_of(one) == amount_of(two))
    return {"status": status} if status else {}


def _version(document: Document | None) -> dict[str, str]:
    """The known version, as a precondition of a patch."""
    metadata = metadata_of(document)
    return {"uid": str(metadata.get("uid") or ""), "resourceVersion": str(metadata.get("resourceVersion") or "")}


def _differences(
    document: Document,
    section: str,
    wanted: Mapping[str, Document],
    same: Callable[[Any, Any], bool] = operator.eq,
) -> dict[str, Any]:
    """A merge patch of maps: values that are missing or differ, and None for the fleet's keys that are not wanted."""
    changes: dict[str, Any] = {}
    for part, values in wanted.items():
        present = (document.get(section) or {}).get(part) or {}
        gone = owned(document, section, part, manager=MAKER) - values.keys()
        other = {name: value for name, value in values.items() if not same(present.get(name), value)}
        if gone or other:
            changes[part] = dict.fromkeys(gone) | other
    return changes


def _taints_change(document: Document, mine: Sequence[Document]) -> dict[str, Any]:
    taints = _taints(document, mine)
    return {} if taints == _taints_of(document) else {"spec": {"taints": taints}}


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
