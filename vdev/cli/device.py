"""`vdev device`: say that a device of the running plugin is well or not, for a while."""

import argparse
import asyncio
import json
from typing import Any

from .. import config
from ..control import command_socket
from ..errors import UsageError
from . import common, fault, options

EPILOG = """examples:
  vdev device set acme-0 --health Unhealthy --reason "XID 79" --for 30s
  vdev device clear acme-0

An id is one that vdev status shows, or that of the physical device, whose replicas and partitions fail with it. The
plugin takes this only when it runs with --enable-fault-injection.
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "device",
        help="set a device's health in the running plugin",
        description="Set the health of a device in the running plugin.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    put = actions.add_parser("set", help="say that it is Healthy or Unhealthy", description="Set a device's health.")
    put.add_argument("id", metavar="ID", help="the device")
    put.add_argument("--health", choices=("Healthy", "Unhealthy"), required=True, help="what the kubelet is told")
    put.add_argument("--reason", default="", metavar="TEXT", help="why, for pods and people")
    put.add_argument(
        "--for", dest="lasts", metavar="TIME", help="for how long, such as 30s (default: until it is cleared)"
    )
    clear = actions.add_parser("clear", help="let it be what it is", description="End what was set.")
    clear.add_argument("id", metavar="ID", help="the device")
    for each in (put, clear):
        options.add_one(each, "run_dir")
        common.add_output(each)


def run(args: argparse.Namespace) -> int:
    """Ask the running plugin; 0 when it did as asked."""
    match args.action:
        case "set":
            seconds = None if args.lasts is None else config.duration(args.lasts, "--for")
            request = {"do": "device-set", "id": args.id, "health": args.health, "reason": args.reason, "for": seconds}
        case "clear":
            request = {"do": "device-clear", "id": args.id}
        case _:
            raise UsageError("which action? expected set or clear; see vdev device --help")
    answer = asyncio.run(command_socket.ask(options.read(args).run_dir, request))
    print(json.dumps(answer, indent=2) if args.output == "json" else fault.done(answer))
    return 0
