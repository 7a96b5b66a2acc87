"""`vdev validate`: all errors and warnings about configuration files, without looking at the node."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .. import file_choice, importers
from ..agent.options import Options
from ..errors import ConfigError
from ..model.device import problem_document
from ..model.problem import Problem, counted
from ..planning.plan import prove
from . import common, options

EPILOG = """examples:
  vdev validate vdev.yaml
  vdev validate vdev.yaml their-nvidia-config.yaml    two files, joined by sections
  vdev validate vdev.yaml --node-name gpu-7           for one node: ids of NVIDIA presets depend on its name
  vdev validate configs/                              all files of a directory from which each node takes one
  vdev validate --output json vdev.yaml               for programs
  kubectl get configmap vdev -o jsonpath='{.data.default\\.yaml}' | vdev validate -

Exit code 0 if the configuration can be served, 2 if it has errors.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_files(parser)
    options.add(parser, node_name="check for the node with this name; default: for any node")


def run(args: argparse.Namespace) -> int:
    """Print the problems; 2 if one is an error."""
    chosen = options.read(args)
    if chosen.named_node:
        configurations = [tuple(file_choice.files_of_node(args.files, chosen.named_node))]
    else:
        configurations = file_choice.files_of_every_node(args.files)
    found = {files: _problems(files, chosen) for files in configurations}
    problems = tuple(dict.fromkeys(problem for each in found.values() for problem in each))
    code = common.exit_code(problems)
    if args.output == "text":
        common.complain(problems)
    document = {"valid": not code, "problems": [problem_document(each) for each in problems]}
    common.show(args, document, _lines(found))
    return code


def _lines(found: Mapping[tuple[Path, ...], Sequence[Problem]]) -> Iterator[str]:
    for files, problems in found.items():
        if not common.exit_code(problems):
            warnings = f", {counted(len(problems), 'warning')}" if problems else ""
            yield f"{', '.join(map(str, files))}: valid{warnings}"


def _problems(files: Sequence[Path], chosen: Options) -> tuple[Problem, ...]:
    try:
        loaded = chosen.load(files)
    except ConfigError as bad:
        return importers.explained(bad)
    return (*loaded.problems, *prove(loaded.spec, chosen.named_node))
