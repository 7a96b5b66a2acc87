"""The devices that a configuration alone promises, as inventories of nodes that could exist, for rules to be tried on.

Only virtual devices are here. Ids that depend on the node's name are made up.
"""

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..core import aim, names
from ..core.device import RawDevice
from ..core.faults import Rule
from ..core.inventory import Inventory, arrange
from ..core.spec import EntrySpec, Spec, VirtualSource
from ..core.timeline import Dice, Key

_MOST = 4096  # devices; more would make each reading of the rules slow
_MANY = 16  # kinds of nodes
_CLASS = re.compile(r"\[(.)[^]]*\]")


@dataclass(frozen=True, slots=True)
class Scene:
    """Nodes by name; `known` are the entries whose devices are all here."""

    nodes: Mapping[str, Inventory]
    known: frozenset[str]

    def meant(self, rule: Rule) -> frozenset[Key]:
        """What the rule may mean on any of the nodes, whichever lots it draws."""
        return frozenset().union(*(meant(rule, each, node) for node, each in self.nodes.items()))


NOWHERE = Scene({}, frozenset())
"""Nothing is known."""


def meant(rule: Rule, inventory: Inventory, node: str) -> frozenset[Key]:
    """What the rule may mean on this node, whichever lots it draws."""
    every = replace(rule, aim=replace(rule.aim, pick=None, share=None))
    return aim.select(every, inventory, Dice(0, node))


def scene(spec: Spec, rules: Iterable[Rule]) -> Scene:
    """One node for each pattern that the entries and the rules name, and one that no pattern means."""
    entries = [(entry, entry.source) for entry in spec.entries if isinstance(entry.source, VirtualSource)]
    if sum(source.count for _, source in entries) > _MOST:
        return NOWHERE
    patterns = [pattern for entry in spec.entries for pattern in entry.on_nodes]
    patterns += [pattern for rule in rules for pattern in rule.nodes.globs]
    some = list(dict.fromkeys(["x", *(_example(pattern) for pattern in patterns)]))
    if len(some) > _MANY:
        return NOWHERE
    found = {entry.name: list(_devices(entry, source)) for entry, source in entries}
    return Scene({node: arrange(spec, node, found) for node in some}, frozenset(found))


def _example(pattern: str) -> str:
    return _CLASS.sub(r"\1", pattern).replace("*", "x").replace("?", "x")


def _devices(entry: EntrySpec, source: VirtualSource) -> Iterable[RawDevice]:
    for index in range(source.count):
        own = f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{entry.name}/{index}')}"
        numa = source.numa[index : index + 1] if len(source.numa) > 1 else source.numa
        made = own if entry.is_nvidia else names.device_id(entry.name, str(index))
        yield RawDevice(id=made, entry=entry.name, index=index, numa=numa, memory=source.memory)
