"""The objects that `vdev fleet --dry-run` prints, without an API server."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from ..dra import slices
from ..model.spec import Spec
from ..planning.plan import DesiredState
from .member import first_plan, spec_for_fleet
from .scope import MadeNode, Scope

Document = Mapping[str, Any]


def text(spec: Spec, scope: Scope, *, as_json: bool) -> str:
    """The objects of all Nodes that the file makes, as YAML documents or as a list in JSON.

    Existing Nodes that the file selects are not included, because they are not known.
    """
    found = objects(spec, scope)
    if as_json:
        return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(found)}, indent=2) + "\n"
    return "".join(f"---\n{yaml.safe_dump(each, sort_keys=False, width=160)}" for each in found)


def objects(spec: Spec, scope: Scope) -> Iterator[Document]:
    """Yield each Node and its ResourceSlices, in their state after all delays."""
    ours = spec_for_fleet(spec)
    for made in scope.made.values():
        plan = first_plan(ours, made.name, made.metadata()["labels"])
        yield _node(made, plan)
        for pool in plan.pools.values():
            yield from slices.objects(pool, made.name)


def _node(made: MadeNode, plan: DesiredState) -> Document:
    document = made.document()
    metadata = document["metadata"]
    # The file's capacity other than devices is all allocatable.
    capacity = made.of.capacity | {name: str(each["capacity"]) for name, each in plan.capacity.items()}
    allocatable = made.of.capacity | {name: str(each["allocatable"]) for name, each in plan.capacity.items()}
    conditions = {"conditions": [*plan.conditions]} if plan.conditions else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**metadata, "labels": {**metadata["labels"], **plan.labels}},
        "spec": document["spec"],
        "status": {"capacity": capacity, "allocatable": allocatable, **conditions},
    }
