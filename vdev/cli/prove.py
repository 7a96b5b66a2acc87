"""What a configuration proves wrong by itself: strategies, sharing and sizes, tried on the devices in the file.

Real devices are known on their node only, so a resource that has some is left out. As `onNodes` may keep entries apart,
the trial is made for one node of each kind.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from .. import discovery
from ..core import inventory
from ..core.device import RawDevice
from ..core.problem import Problem
from ..core.spec import EntrySpec, Spec, VirtualSource
from ..hostfs import HostRoot

_OTHER = "node"  # the name of a node that no pattern means


def prove(spec: Spec) -> tuple[Problem, ...]:
    """Errors that some node must have, and warnings that every node has."""
    trials = [_trial(spec, node) for node in _nodes(spec)]
    everywhere = set.intersection(*(set(problems) for problems in trials))
    return tuple(dict.fromkeys(each for problems in trials for each in problems if each.is_error or each in everywhere))


def _nodes(spec: Spec) -> Iterator[str]:
    """A name for each set of patterns, and one for the nodes that none of them means."""
    yield _OTHER
    patterns = dict.fromkeys(pattern for entry in spec.entries for pattern in entry.on_nodes)
    for pattern in patterns:
        yield pattern.replace("*", "").replace("?", "x").replace("[", "").replace("]", "")


def _trial(spec: Spec, node: str) -> tuple[Problem, ...]:
    real = {entry.resource for entry in spec.entries if not isinstance(entry.source, VirtualSource)}
    entries = tuple(entry for entry in spec.on_node(node) if entry.resource not in real)
    sharing = spec.sharing and replace(
        spec.sharing, resources=tuple(rule for rule in spec.sharing.resources if rule.name not in real)
    )
    found = {entry.name: _devices(entry, node) for entry in entries}
    return inventory.arrange(replace(spec, entries=entries, sharing=sharing), node, found).problems


def _devices(entry: EntrySpec, node: str) -> tuple[RawDevice, ...]:
    found = discovery.discover(entry, HostRoot(Path("/")), node=node, numbering=discovery.Numbering())
    return found.devices
