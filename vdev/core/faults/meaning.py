"""The devices that a configuration alone promises, as inventories of nodes that could exist, for rules to be tried on.

Only virtual devices are here, see `core.inventory.imagined_nodes`. Ids that depend on the node's name are those of
imagined names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..inventory import imagined_nodes
from ..inventory.resources import Inventory
from ..model.fault_rules import FaultRuleSpec
from ..spec import Spec, VirtualSource
from . import targets
from .schedule import Dice, Key

_MOST = 4096  # devices; more would make each reading of the rules slow
_MANY = 16  # kinds of nodes


@dataclass(frozen=True, slots=True)
class Scene:
    """Nodes by name; `known` are the entries whose devices are all here."""

    nodes: Mapping[str, Inventory]
    known: frozenset[str]

    def meant(self, rule: FaultRuleSpec) -> frozenset[Key]:
        """What the rule may mean on any of the nodes, whichever lots it draws."""
        return frozenset().union(*(meant(rule, each, node) for node, each in self.nodes.items()))


NOWHERE = Scene({}, frozenset())
"""Nothing is known."""


def meant(rule: FaultRuleSpec, inventory: Inventory, node: str) -> frozenset[Key]:
    """What the rule may mean on this node, whichever lots it draws."""
    every = replace(rule, selection=replace(rule.selection, pick=None, share=None))
    return targets.select(every, inventory, Dice(0, node))


def scene(spec: Spec, rules: Iterable[FaultRuleSpec]) -> Scene:
    """One node for each pattern that the entries and the rules name, and one that no pattern means."""
    virtual = {entry.name: entry.source.count for entry in spec.entries if isinstance(entry.source, VirtualSource)}
    if sum(virtual.values()) > _MOST:
        return NOWHERE
    patterns = [pattern for entry in spec.entries for pattern in entry.on_nodes]
    patterns += [pattern for rule in rules for pattern in rule.nodes.globs]
    some = imagined_nodes.node_names(patterns)
    if len(some) > _MANY:
        return NOWHERE
    return Scene({node: imagined_nodes.inventory(spec, node) for node in some}, frozenset(virtual))
