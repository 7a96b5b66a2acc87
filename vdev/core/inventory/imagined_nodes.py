"""Problems that the configuration has on any node, found by imagining nodes that could exist.

Only virtual devices are known here; real ones are found on their node. `onNodes` may give nodes different entries, so
one node is imagined for each pattern, and one that no pattern matches.
"""

import re
import string
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from ..model.problem import Problem, warning
from ..model.syntax.names import is_nvidia_id
from ..spec import Spec, VirtualSource
from .arrange import arrange
from .resources import Inventory
from .virtual_devices import devices

_TOKEN = re.compile(r"\*+|\[!?+\]?+[^\]]*\]|.", re.DOTALL)  # of a pattern: stars, a set, any other character
_LETTERS = string.ascii_lowercase + string.digits + "-."
_OTHERS = ("node", "x", "other-node", "0")  # names to try for the node that no pattern means


def node_names(patterns: Iterable[str]) -> tuple[str, ...]:
    """The name of a node that no pattern matches, where there can be one, and a name for each pattern."""
    patterns = tuple(dict.fromkeys(patterns))
    free = [name for name in _OTHERS if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    examples = [name for pattern in patterns if fnmatchcase(name := _example(pattern), pattern)]
    return tuple(dict.fromkeys((*free[:1], *examples))) or _OTHERS[:1]


def _example(pattern: str) -> str:
    return "".join(map(_stands_for, _TOKEN.findall(pattern)))


def _stands_for(token: str) -> str:
    """A text that the token matches, if any."""
    if token[0] in "*?":
        return "x"
    if len(token) == 1:
        return token
    return next((letter for letter in (*_LETTERS, *token) if fnmatchcase(letter, token)), "")


def inventory(spec: Spec, node: str) -> Inventory:
    """What the node of that name would advertise if it had no real devices."""
    found = {
        entry.name: tuple(devices(entry, entry.source, node))
        for entry in spec.on_node(node)
        if isinstance(entry.source, VirtualSource)
    }
    return arrange(spec, node, found)


def prove(spec: Spec, node: str = "") -> tuple[Problem, ...]:
    """What is wrong on the node of that name; without a name, errors that some node must have, and warnings that every
    node has.

    A resource with real devices is left out, because nobody knows how many there are. Without a name, so is what
    depends on the name.
    """
    known = _virtual_alone(spec)
    if node:
        return inventory(known, node).problems
    known, unknown = _nameless(known)
    trials = [inventory(known, each).problems for each in node_names(_patterns(spec))]
    everywhere = set.intersection(*map(set, trials))
    proven = (each for problems in trials for each in problems if each.is_error or each in everywhere)
    return tuple(dict.fromkeys((*unknown, *proven)))


def _patterns(spec: Spec) -> Iterable[str]:
    return (pattern for entry in spec.entries for pattern in entry.on_nodes)


def _virtual_alone(spec: Spec) -> Spec:
    """The resources of which every device is known."""
    real = {entry.resource for entry in spec.entries if not isinstance(entry.source, VirtualSource)}
    entries = tuple(entry for entry in spec.entries if entry.resource not in real)
    sharing = spec.sharing and replace(
        spec.sharing, resources=tuple(rule for rule in spec.sharing.resources if rule.name not in real)
    )
    return replace(spec, entries=entries, sharing=sharing)


def _nameless(spec: Spec) -> tuple[Spec, tuple[Problem, ...]]:
    """The configuration without the ids that depend on the node's name, and what cannot be known of them."""
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
            rules.append(replace(rule, devices=rest) if ids else rule)
    return replace(spec, sharing=replace(spec.sharing, resources=tuple(rules))), tuple(problems)
