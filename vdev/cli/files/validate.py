"""`vdev validate`: every error and warning that follows from the files alone."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ... import config
from ...core.inventory import imagined_nodes
from ...core.model.documents import problem_document
from ...core.model.problem import Problem
from ...errors import ConfigError
from .. import common, options

DESCRIPTION = "Check configuration files, joined as vdev run joins them, and show every error with its place."
EPILOG = """examples:
  vdev validate vdev.yaml
  vdev validate vdev.yaml their-nvidia-config.yaml    two files, joined by sections
  vdev validate vdev.yaml --node-name gpu-7           for one node: ids of NVIDIA presets depend on its name
  vdev validate --output json vdev.yaml               for programs

Exit code 0 if the configuration can be served, 2 if it has errors.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.usage = "vdev validate [option ...] FILE [FILE ...]"
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="configuration files")
    common.add_output(parser)
    options.add_one(parser, "node_name", "check for the node of this name; default: for any node")
    common.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Print the problems; 2 if one of them is an error."""
    chosen = options.read(args)
    problems: Sequence[Problem]
    try:
        loaded = config.load(args.files, overrides=chosen.overrides, preset_dirs=chosen.preset_dirs)
        problems = (*loaded.problems, *imagined_nodes.prove(loaded.spec, chosen.named_node))
    except ConfigError as bad:
        problems = [problem for problem in bad.problems if isinstance(problem, Problem)]
    valid = not any(problem.is_error for problem in problems)
    if args.output == "json":
        print(json.dumps({"valid": valid, "problems": [problem_document(each) for each in problems]}, indent=2))
    else:
        for problem in problems:
            print(problem, file=sys.stderr)
        if valid:
            files = ", ".join(str(file) for file in args.files)
            print(f"{files}: valid" + (f", {len(problems)} warning{'s' * (len(problems) != 1)}" if problems else ""))
    return 0 if valid else ConfigError.exit_code
