"""`vdev schema`: the JSON Schema of the configuration file."""

import argparse
import sys
from typing import Any

from .. import config

EPILOG = """example:
  vdev schema > vdev.schema.json

and as the first line of the file, for editors with the YAML language server:
  # yaml-language-server: $schema=vdev.schema.json
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    subparsers.add_parser(
        "schema",
        help="JSON Schema of the configuration file, for editors",
        description="Print the JSON Schema (2020-12) of the configuration file.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run(args: argparse.Namespace) -> int:  # noqa: ARG001  # every command has the same face
    """Print the schema."""
    sys.stdout.write(config.json_schema_text())
    return 0
