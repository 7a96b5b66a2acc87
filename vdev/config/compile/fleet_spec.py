"""The section `fleet` to the core's values, and what must fit together in it."""

from ...core.model.place import KeyPath
from ...core.model.syntax.label_syntax import node_name_problem, value_problem
from ...core.model.syntax.name_range import NameRange, NameRangeError, filled, parse_names
from ...core.spec import NO_FLEET, ChosenNodes, Delays, FleetSpec, MadeNodes, NodeTaint
from ..report import ProblemReport
from ..schema.fleet_section import Fleet, FleetNodes

MAX_NODES = 20_000
"""Nodes that a file may make: more is a mistyped range. A cluster has 5 000 at most (kubernetes.io, large clusters)."""

_OF_MADE = ("labels", "annotations", "taints", "capacity")


def fleet_spec(model: Fleet | None, report: ProblemReport) -> FleetSpec:
    """Which nodes there are."""
    if model is None:
        return NO_FLEET
    made: dict[KeyPath, MadeNodes] = {}
    chosen: list[ChosenNodes] = []
    for place, each in enumerate(model.nodes):
        path: KeyPath = ("fleet", "nodes", place)
        given = report.exactly_one(path, {"name": each.name, "selector": each.selector}, "which nodes is not said")
        if given == "name":
            made[path] = _made(each, str(report.document.value_place(path)))
        elif given:
            chosen.append(_chosen(each, path, report))
    _check_names({path: nodes.names for path, nodes in made.items()}, report)
    for path, nodes in made.items():
        _check_values(nodes, path, report)
    return FleetSpec(made=tuple(made.values()), chosen=tuple(chosen), reject_pods=model.reject_pods)


def _delays(model: FleetNodes) -> Delays:
    slices = model.devices_after if model.slices_after is None else model.slices_after
    return Delays(labels=model.labels_after, devices=model.devices_after, slices=slices)


def _made(model: FleetNodes, where: str) -> MadeNodes:
    return MadeNodes(
        names=parse_names(model.name or ""),
        labels=dict(model.labels),
        annotations=dict(model.annotations),
        taints=tuple(NodeTaint(each.key, each.effect, each.value) for each in model.taints),
        capacity=dict(model.capacity),
        delays=_delays(model),
        where=where,
    )


def _chosen(model: FleetNodes, path: KeyPath, report: ProblemReport) -> ChosenNodes:
    for key in _OF_MADE:
        if key in model.model_fields_set:
            report.key_error((*path, key), f"{key} is for nodes that vdev makes", "give name instead of selector")
    where = str(report.document.value_place(path))
    return ChosenNodes(labels=dict(model.selector or {}), delays=_delays(model), where=where)


def _check_names(ranges: dict[KeyPath, NameRange], report: ProblemReport) -> None:
    """Every name is one that Kubernetes takes, and given once; there are not too many."""
    total, owners = 0, dict[str, KeyPath]()
    for path, names in ranges.items():
        total += len(names)
        if total > MAX_NODES:
            message = f"{names.source} makes {len(names)} nodes; a file makes {MAX_NODES} at most"
            report.error((*path, "name"), message, "is the range mistyped?")
            return
        for name, _ in names:
            if wrong := node_name_problem(name):
                report.error((*path, "name"), wrong)
                break
            if name in owners:
                first = report.document.value_place((*owners[name], "name"))
                report.error((*path, "name"), f"the node {name} is made twice", f"it is among those at {first} too")
                break
            owners[name] = path


def _check_values(nodes: MadeNodes, path: KeyPath, report: ProblemReport) -> None:
    """Values name numbers that there are; labels are such as Kubernetes takes, on every node."""
    for kind, values in (("labels", nodes.labels), ("annotations", nodes.annotations)):
        for key, text in values.items():
            try:
                found = {filled(text, *each) for each in nodes.names} if len(nodes.names) <= MAX_NODES else ()
            except NameRangeError as wrong:
                report.error((*path, kind, key), str(wrong))
                continue
            problem = next(filter(None, map(value_problem, sorted(found, key=len, reverse=True))), "")
            if problem and kind == "labels":
                report.error((*path, kind, key), problem)
