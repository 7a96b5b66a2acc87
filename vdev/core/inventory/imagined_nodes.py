"""Nodes that could exist, as far as the configuration alone tells.

Only virtual devices are known here; real ones are found on their node. `onNodes` may give nodes different entries, so
one node is imagined for each pattern, and one that no pattern matches.
"""

import re
import string
from collections.abc import Iterable
from fnmatch import fnmatchcase

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
