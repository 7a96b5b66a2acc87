"""What a node would advertise, computed without a kubelet: the common half of `plan` and `allocate`.

It takes the agent's own road (load, discover, arrange), so that what it says is what `vdev run` would do.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import config, discovery
from ..core.inventory.resources import EMPTY, Inventory, arrange
from ..core.model.fault_rules import NO_RULES, FaultSpec
from ..core.model.origin import Override
from ..core.model.problem import Problem
from ..errors import ConfigError
from ..hostfs import HostRoot
from . import options


@dataclass(frozen=True, slots=True)
class Preview:
    """The inventory of a node, what discovery looked at, all problems, and the fault rules."""

    node: str
    inventory: Inventory
    found: Mapping[str, discovery.Found]
    problems: tuple[Problem, ...]
    faults: FaultSpec = NO_RULES


def preview(
    files: Sequence[Path],
    *,
    node: str,
    host_root: Path,
    overrides: Mapping[str, Override],
    preset_dirs: Sequence[Path] = (),
) -> Preview:
    """Load the files and arrange the node. A configuration with errors gives what is left without them, and the
    errors.
    """
    try:
        loaded = config.load(files, overrides=overrides, preset_dirs=preset_dirs)
    except ConfigError as bad:
        try:
            loaded = config.load(files, overrides=overrides, preset_dirs=preset_dirs, partial=True)
        except ConfigError:
            return Preview(node, EMPTY, {}, _problems(bad))
    host = HostRoot(host_root)
    found = {
        entry.name: discovery.discover(entry, host, node=node, numbering=discovery.Numbering())
        for entry in loaded.spec.on_node(node)
    }
    stock = arrange(loaded.spec, node, {name: each.devices for name, each in found.items()})
    problems = (*loaded.problems, *(problem for each in found.values() for problem in each.problems), *stock.problems)
    return Preview(node, stock, found, tuple(dict.fromkeys(problems)), loaded.spec.faults)


def _problems(bad: ConfigError) -> tuple[Problem, ...]:
    return tuple(problem for problem in bad.problems if isinstance(problem, Problem))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say which files, which node and which host."""
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="configuration files; their sections are joined"
    )
    options.add_one(parser, "node_name", "the node to plan for; default: this host's name")
    options.add_one(parser, "host_root", "where to find the host's /dev and /sys; default: /")
