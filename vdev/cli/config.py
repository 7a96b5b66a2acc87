"""`vdev config`: the effective configuration, and where each value came from."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from .. import config
from ..core.inventory import imagined_nodes
from . import common, options

EPILOG = """examples:
  vdev config vdev.yaml                          as YAML, the origins as comments
  vdev config vdev.yaml their-nvidia-config.yaml two files, joined by their sections
  MIG_STRATEGY=mixed vdev config vdev.yaml       flag > environment > file > default
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "config",
        help="the effective configuration, and where each value came from",
        description="Print the effective configuration. Its values come from flags, the environment, the files, or are "
        "defaults, in this order; each is shown with where it came from.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="configuration files")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to print (default: text)")
    options.add_one(parser, "node_name", "show what is wrong on the node of this name; default: on any node")
    common.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Print the configuration; problems go to stderr. 2 when no node could serve it. Raises ConfigError."""
    chosen = options.read(args)
    loaded = config.load(args.files, overrides=chosen.overrides, preset_dirs=chosen.preset_dirs)
    if args.output == "json":
        values = [{"path": each.path, "value": each.value, "source": each.source} for each in loaded.origins]
        print(json.dumps({"fingerprint": loaded.fingerprint, "values": values}, indent=2))
    else:
        sys.stdout.write(config.render(loaded.origins))
    problems = (*loaded.problems, *imagined_nodes.prove(loaded.spec, chosen.named_node))
    for problem in problems:
        print(problem, file=sys.stderr)
    return common.exit_code(problems)
