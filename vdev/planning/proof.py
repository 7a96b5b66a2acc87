"""Finds problems of a configuration by planning for nodes that could exist."""

import re
from fnmatch import fnmatchcase

from ..model.names import is_nvidia_id
from ..model.problem import Problem, warning
from ..model.spec import Spec
from . import inventory
from .plan import ObservedState, desired_state

_OTHER = ""  # a name for a node that no pattern matches, except "*"


def prove(spec: Spec, node: str = "") -> tuple[Problem, ...]:
    """The problems on the node of that name. Without a name, the errors of any node, and the warnings of every node.

    Resources with real devices are left out, because their number is not known. Without a name, ids that depend on it
    are left out too.
    """
    known = _virtual_only(spec)
    if node:
        return _on_node(known, node)
    known, unknown = _without_named_ids(known)
    patterns = [pattern for entry in spec.entries for pattern in entry.on_nodes]
    examples = [name for pattern in patterns if fnmatchcase(name := re.sub(r"[*?]", "x", pattern), pattern)]
    trials = [_on_node(known, each) for each in dict.fromkeys((_OTHER, *examples))]
    everywhere = set.intersection(*map(set, trials))
    proven = (each for problems in trials for each in problems if each.is_error or each in everywhere)
    return tuple(dict.fromkeys((*unknown, *proven)))


def _on_node(spec: Spec, node: str) -> tuple[Problem, ...]:
    """The problems of the devices, and of their labels and ResourceSlices."""
    base = inventory.inventory(spec, node)
    if not spec.node.labels and not base.claimable:
        return base.problems
    return (*base.problems, *desired_state(ObservedState(spec=spec, node=node, inventory=base)).problems)


def _virtual_only(spec: Spec) -> Spec:
    """The configuration with those resources that have virtual devices only."""
    real = {entry.resource for entry in spec.entries if entry.virtual is None}
    entries = tuple(entry for entry in spec.entries if entry.resource not in real)
    rules = [rule for rule in spec.sharing.resources if rule.name not in real] if spec.sharing else []
    return spec.sharing_only(rules).model_copy(update={"entries": entries})


def _without_named_ids(spec: Spec) -> tuple[Spec, tuple[Problem, ...]]:
    """The configuration without the ids that depend on the node's name, and a warning for each rule that has some."""
    if spec.sharing is None or not any(entry.is_nvidia for entry in spec.entries):
        return spec, ()
    rules, problems = [], []
    for rule in spec.sharing.resources:
        listed = rule.devices if isinstance(rule.devices, tuple) else ()
        ids = [reference for reference in listed if is_nvidia_id(reference)]
        if ids:
            more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
            message = f"whether {rule.name} has the device {ids[0]}{more} cannot be known here: such an id depends on"
            hint = "give the name with --node-name or NODE_NAME, or list devices by index"
            problems.append(warning(rule.where, f"{message} the node's name", hint))
        rest = tuple(reference for reference in listed if reference not in ids)
        if rest or not ids:
            rules.append(rule.model_copy(update={"devices": rest}) if ids else rule)
    return spec.sharing_only(rules), tuple(problems)
