"""`vdev config`: the effective configuration, and where each value comes from."""

import argparse

from .. import config, file_choice
from ..planning.plan import prove
from . import common, options

EPILOG = """examples:
  vdev config vdev.yaml                          as YAML, with origins as comments
  vdev config vdev.yaml their-nvidia-config.yaml two files, joined by sections
  MIG_STRATEGY=mixed vdev config vdev.yaml       flags > environment > file > defaults
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_files(parser)
    options.add(parser, node_name="for the node with this name; default: for any node")


def run(args: argparse.Namespace) -> int:
    """Print the configuration, and problems on stderr; 2 if no node could serve it. Raises ConfigError."""
    chosen = options.read(args)
    files = file_choice.files_of_node(args.files, chosen.node_name)
    loaded = chosen.load(files)
    values = [{"path": each.path, "value": each.value, "source": each.source} for each in loaded.origins()]
    document = {"fingerprint": loaded.fingerprint, "values": values}
    common.show(args, document, config.render(loaded.origins()).splitlines())
    problems = (*loaded.problems, *prove(loaded.spec, chosen.named_node))
    common.complain(problems)
    return common.exit_code(problems)
