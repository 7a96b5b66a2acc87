"""What rules mean on nodes that could exist, as far as the configuration alone tells.

Only virtual devices are known, see `core.inventory.imagined_nodes`. Ids that depend on the node's name are those of
imagined names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from ..inventory import imagined_nodes
from ..inventory.resources import Inventory
from ..model.device import Key
from ..model.faults.fault_rules import FaultRuleSpec
from ..spec import EntrySpec, Spec, VirtualSource
from . import targets
from .schedule import Dice

_MOST_DEVICES = 4096  # more would make each reading of the rules slow
_MOST_NODES = 16


@dataclass(frozen=True, slots=True)
class ImaginedNodes:
    """Inventories by the node's name; `known` are the entries whose devices are all here, however labels cut them."""

    inventories: Mapping[str, Inventory]
    known: frozenset[str]


def imagined(spec: Spec, rules: Iterable[FaultRuleSpec]) -> ImaginedNodes:
    """One node for each pattern of entries and rules, and one that matches none. Empty where that is too much."""
    virtual = {entry.name: entry.source.count for entry in spec.entries if isinstance(entry.source, VirtualSource)}
    patterns = [pattern for entry in spec.entries for pattern in entry.on_nodes]
    patterns += [pattern for rule in rules for pattern in rule.nodes.globs]
    names = imagined_nodes.node_names(patterns) if sum(virtual.values()) <= _MOST_DEVICES else ()
    if not 0 < len(names) <= _MOST_NODES:
        return ImaginedNodes({}, frozenset())
    known = frozenset(entry.name for entry in spec.entries if entry.name in virtual and not entry.choice)
    return ImaginedNodes({node: imagined_nodes.inventory(spec, node) for node in names}, known)


def is_elsewhere(rule: FaultRuleSpec, spec: Spec, node: str) -> bool:
    """Whether all entries whose devices the rule may mean are for other nodes."""
    here = spec.on_node(node)
    meant_entries = [
        entry
        for want in rule.selection.filters
        for entry in _of_resource(want.resource or rule.resource, spec)
        if fnmatchcase(entry.name, want.entry or "*")
    ]
    return bool(meant_entries) and not any(entry in here for entry in meant_entries)


def _of_resource(pattern: str, spec: Spec) -> tuple[EntrySpec, ...]:
    """The entries whose devices have such a resource; all of them where none says so, for names can be others."""
    return tuple(entry for entry in spec.entries if fnmatchcase(entry.resource, pattern)) or spec.entries


def meant(rule: FaultRuleSpec, inventory: Inventory, node: str) -> frozenset[Key]:
    """What the rule may mean on this node, whichever lots it draws."""
    every = replace(rule, selection=replace(rule.selection, pick=None, share=None))
    return targets.select(every, inventory, Dice(0, node))
