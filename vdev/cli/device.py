"""`vdev device`: set the health of a device in the running plugin."""

import argparse

from . import common, fault

EPILOG = """examples:
  vdev device set acme-0 --health Unhealthy --reason "XID 79" --for 30s
  vdev device clear acme-0
  vdev device set a100/2:0 --health Unhealthy    the first partition of the third device of the entry a100
  vdev device set a100/2 --health Unhealthy --node gpu-17    with vdev fleet

An ID is one that vdev status shows, or <entry>/<index> as in rules, which includes replicas and partitions. `clear`
takes the ID that `set` was given.
The plugin accepts this only if it runs with --enable-fault-injection.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = common.add_actions(parser, "set", "clear")
    put = common.add_action(actions, "set", "set a device's health", "run_dir")
    clear = common.add_action(actions, "clear", "clear a health that was set", "run_dir")
    for each in (put, clear):
        each.add_argument("id", metavar="ID", help="the device: an id, or <entry>/<index>")
        each.add_argument("--node", default="", metavar="NODE", help="the node, with vdev fleet")
    put.add_argument("--health", choices=("Healthy", "Unhealthy"), required=True, help="the health to report")
    put.add_argument("--reason", default="", metavar="TEXT", help="the reason to show in status and logs")
    put.add_argument("--for", dest="lasts", metavar="TIME", help="for how long, such as 30s [default: until cleared]")


def run(args: argparse.Namespace) -> int:
    """Send the request to the running plugin, and print its answer."""
    request = {"do": f"device-{args.action}", "id": args.id, "node": args.node}
    if args.action == "set":
        request |= {"health": args.health, "reason": args.reason, "for": args.lasts}
    answer = common.ask(args, request)
    common.show(args, answer, fault.done(answer))
    return 0
