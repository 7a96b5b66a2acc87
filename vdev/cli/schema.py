"""`vdev schema`: the JSON Schema of the configuration file."""

import argparse
import sys

from .. import config

EPILOG = """example:
  vdev schema > vdev.schema.json

For editors with the YAML language server, make this the first line of the configuration file:
  # yaml-language-server: $schema=vdev.schema.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""


def run(args: argparse.Namespace) -> int:  # all commands have the same signature
    sys.stdout.write(config.json_schema_text())
    return 0
