"""`vdev top`: what the devices of the running plugin measure."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..agent import command_socket
from ..errors import UsageError, VdevError
from . import common, options, top_text

DESCRIPTION = "Show who holds the devices of the running plugin, their load, memory, temperature, power and faults."
EPILOG = """examples:
  vdev top                           a view that refreshes every two seconds, until Ctrl-C
  vdev top --once                    once; also where the output is no terminal
  vdev top --sort temperature        the warmest first
  vdev top nvidia.com/gpu a100/3     a resource, an entry, devices, or pods as namespace/name
  vdev top --output json             once, for programs

What is wrong comes first. It needs `telemetry` in the configuration, such as telemetry: {}.
Exit code 0; 1 where nothing is measured, or no plugin answers.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these resources, entries, devices and pods")
    options.add_one(parser, "run_dir")
    parser.add_argument("--once", action="store_true", help="show it once")
    parser.add_argument("--every", default="2", metavar="SECONDS", help="time from view to view [default: 2]")
    parser.add_argument(
        "--sort", choices=top_text.SORTS, default="load", help="what the order goes by, after faults [default: load]"
    )
    parser.add_argument(
        "--rows", type=int, metavar="N", help="show so many devices at most; 0: all [default: as many as fit, or 40]"
    )
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print what devices measure; 1 where nothing does."""
    run_dir, every = options.read(args).run_dir, common.seconds(args.every, "--every")
    if args.rows is not None and args.rows < 0:
        raise UsageError(f"--rows: expected a number from 0 on, got {args.rows}")
    told = asyncio.run(_told(run_dir, args.names))
    if args.output == "json":
        print(json.dumps(told, indent=2))
        return 0
    rows = common.SHOWN if args.rows is None else args.rows or None
    if args.once or not sys.stdout.isatty():
        print("\n".join(top_text.lines(told, args.sort, rows)))
        return 0

    async def frame() -> Sequence[str]:
        now = await _told(run_dir, args.names)
        if args.rows is None:
            return top_text.fitting(now, args.sort, common.height())
        return list(top_text.lines(now, args.sort, rows))

    asyncio.run(common.watch(frame, every))
    return 0


async def _told(run_dir: Path, names: Sequence[str]) -> dict[str, Any]:
    told: dict[str, Any] = await command_socket.ask(run_dir, {"do": "top"})
    if not told["on"]:
        raise VdevError("nothing is measured: give telemetry in the configuration, such as telemetry: {}")
    if names:
        kept = [each for each in told["devices"] if top_text.names_of(each) & set(names)]
        if not kept:
            raise VdevError(f"no device, resource, entry or pod is called {' or '.join(names)}; see vdev top --once")
        told["devices"] = kept
    return told
