"""The section `fleet`: what must fit together in it."""

from collections.abc import Iterator

from ..fleet.scope import HOSTNAME, MADE, TAINTS, TOLD
from ..model.entry import EntrySpec
from ..model.fleet import Fleet, FleetNodes
from ..model.names import NameRange, NameRangeError, filled, node_name_problem, value_problem
from ..model.problem import KeyPath, Problem
from ..model.quantity import amount_of
from ..model.spec import Spec
from ..planning.naming import name_of_partition, name_of_whole
from .messages import ProblemReport

MAX_NODES = 20_000
"""Nodes that a file may make: more is a mistyped range. A cluster has 5 000 at most (kubernetes.io, large clusters)."""

_OWN = {"labels": {MADE}, "annotations": {TAINTS, TOLD}}  # by which a fleet knows what it did
_OF_MADE = ("labels", "annotations", "taints", "capacity")


def check_fleet(model: Fleet | None, report: ProblemReport) -> None:
    made: dict[KeyPath, FleetNodes] = {}
    for place, each in enumerate(model.nodes if model else ()):
        path: KeyPath = ("fleet", "nodes", place)
        given = report.exactly_one(path, {"name": each.name, "selector": each.selector}, "which nodes is not said")
        if given == "name":
            made[path] = each
        elif given:
            _check_chosen(each, path, report)
    _check_names({path: nodes.names for path, nodes in made.items()}, report)
    for path, nodes in made.items():
        _check_values(nodes, path, report)
        _check_objects(nodes, path, report)


def _check_chosen(model: FleetNodes, path: KeyPath, report: ProblemReport) -> None:
    for key in _OF_MADE:
        if key in model.model_fields_set:
            report.key_error((*path, key), f"{key} is for nodes that vdev makes", "give name instead of selector")


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


def _check_values(nodes: FleetNodes, path: KeyPath, report: ProblemReport) -> None:
    """Values name numbers that there are; labels are such as Kubernetes takes, on every node."""
    for kind, values in (("labels", nodes.labels), ("annotations", nodes.noted)):
        for key, text in values.items():
            if key in _OWN[kind]:
                report.key_error((*path, kind, key), f"{key} is vdev's own, by which a fleet knows its nodes")
                continue
            try:
                found = {filled(text, *each) for each in nodes.names} if len(nodes.names) <= MAX_NODES else ()
            except NameRangeError as wrong:
                report.error((*path, kind, key), str(wrong))
                continue
            problem = next(filter(None, map(value_problem, sorted(found, key=len, reverse=True))), "")
            if problem and kind == "labels":
                report.error((*path, kind, key), problem)


def _check_objects(nodes: FleetNodes, path: KeyPath, report: ProblemReport) -> None:
    """Hostnames, taints and amounts are such as Kubernetes takes."""
    if HOSTNAME not in nodes.labels and len(nodes.names) <= MAX_NODES:
        for name, _ in nodes.names:
            if problem := value_problem(name):
                hint = f"give these nodes another {HOSTNAME} under labels, or shorter names"
                report.error((*path, "name"), f"the label {HOSTNAME} of {name} would be its name: {problem}", hint)
                break
    seen: set[tuple[str, str]] = set()
    for place, taint in enumerate(nodes.taints):
        if (taint.key, taint.effect) in seen:
            message = (
                f"the taint {taint.key} with {taint.effect} is there twice; Kubernetes takes it once, with one value"
            )
            report.error((*path, "taints", place), message)
        seen.add((taint.key, taint.effect))
    for name, text in nodes.capacity.items():
        amount = amount_of(text)
        if ("/" in name or name == "pods") and amount is not None and amount.denominator != 1:
            report.error((*path, "capacity", name), f"{text} is no whole number; Kubernetes counts {name} in those")


def check_capacity(model: Fleet | None, spec: Spec, report: ProblemReport) -> None:
    """What devices make is not among what nodes have beside them: both would be written, one over the other."""
    for place, each in enumerate(model.nodes if model else ()):
        names = each.names if each.name and each.capacity else ()
        for resource in each.capacity if len(names) <= MAX_NODES else ():
            owners = (entry for entry in spec.entries if resource in _resources(spec, entry))
            owner = next((entry.name for entry in owners if any(entry.is_on(name) for name, _ in names)), None)
            if owner is not None:
                message = f"{resource} is counted by the devices of {owner}; capacity is for what no device is"
                report.error(("fleet", "nodes", place, "capacity", resource), message, "leave it out here")


def _resources(spec: Spec, entry: EntrySpec) -> Iterator[str]:
    """The names that the entry's devices may be counted under."""
    if not entry.listed:
        return
    told = [name_of_whole(spec, entry), *(name_of_partition(spec, entry, each) for each in entry.possible_profiles)]
    names = [each[0] for each in told if not isinstance(each, Problem)]
    yield from names
    for rule in spec.sharing.resources if spec.sharing else ():
        if rule.name in names:
            yield rule.rename or f"{rule.name}.shared"
