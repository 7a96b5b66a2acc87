"""`vdev status`: what the running plugin serves."""

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..agent import command_socket
from . import common, options, status_text

DESCRIPTION = "Show the resources, devices, health, holders and last reload of the running plugin."
EPILOG = """examples:
  vdev status                        the plugin of this node
  vdev status --watch                again every two seconds, until Ctrl-C
  vdev status --run-dir /tmp/vdev    a plugin that was started with this --run-dir

DEVICE is how rules and `vdev device` name it: a100/2 is the third of the entry a100, a100/2:0 its first partition.
Exit code 0 if the plugin is ready, else 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_one(parser, "run_dir")
    parser.add_argument(
        "-w", "--watch", nargs="?", const="2", metavar="SECONDS", help="show it again and again [default: every 2 s]"
    )
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status; 1 if the plugin is not ready or does not answer."""
    run_dir = options.read(args).run_dir
    if args.watch is not None:
        every = common.seconds(args.watch, "--watch")
        asyncio.run(
            common.stream(lambda: _document(run_dir), every)
            if args.output == "json"
            else common.watch(lambda: _frame(run_dir), every)
        )
    status = asyncio.run(command_socket.ask(run_dir, {"do": "status"}))
    print(json.dumps(status, indent=2) if args.output == "json" else "\n".join(status_text.lines(status)))
    return 0 if status["ready"] else 1


async def _frame(run_dir: Path) -> Sequence[str]:
    status: dict[str, Any] = await command_socket.ask(run_dir, {"do": "status"})
    return list(status_text.lines(status))


async def _document(run_dir: Path) -> str:
    return json.dumps(await command_socket.ask(run_dir, {"do": "status"}))
