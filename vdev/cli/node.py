"""`vdev node`: what vdev has written on Nodes through the API server."""

import argparse
import asyncio
import json
from dataclasses import asdict
from typing import Any

from ..api_server import needed_server
from ..errors import UsageError
from ..kube import Api
from ..node.cleaning import OwnedFields, all_owned_fields, clean, owned_fields
from . import common, options

DESCRIPTION = "Show or remove what vdev wrote on a Node: labels, extended resources, conditions."
EPILOG = """examples:
  vdev node show --kubeconfig ~/.kube/config --node-name worker-1
  vdev node clean --kubeconfig ~/.kube/config --node-name worker-1
  vdev node clean --kubeconfig ~/.kube/config --all --dry-run

What vdev wrote stays when vdev ends, so that a restart does not affect scheduling. Remove it when you remove vdev from
a node; end vdev first, because a running vdev writes it again. Fields of other owners are never touched.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    show = actions.add_parser("show", help="show what vdev wrote", description="Show what vdev wrote on Nodes.")
    take = actions.add_parser("clean", help="remove it", description="Remove what vdev wrote on Nodes.")
    for each in (show, take):
        options.add_one(each, "node_name")
        each.add_argument("--all", action="store_true", help="all Nodes on which vdev wrote something")
        options.add_one(each, "kubeconfig")
        options.add_one(each, "context")
        common.add_output(each)
    take.add_argument("--dry-run", action="store_true", help="only show what would be removed")


def run(args: argparse.Namespace) -> int:
    """Show it, and take it away where that is asked for."""
    if args.action is None:
        raise UsageError("no action given; expected show or clean; see vdev node --help")
    chosen = options.read(args)
    if args.all and chosen.named_node:
        raise UsageError("--all and --node-name exclude each other")
    takes = args.action == "clean" and not args.dry_run
    server = needed_server(kubeconfig=chosen.kubeconfig, context=chosen.context)
    found = asyncio.run(_found(Api(server), "" if args.all else chosen.node_name, takes=takes))
    if args.output == "json":
        print(json.dumps({"cleaned": takes, "nodes": [_document(each) for each in found]}, indent=2))
    else:
        _print(found, takes=takes)
    return 0


async def _found(api: Api, node: str, *, takes: bool) -> tuple[OwnedFields, ...]:
    async with api:
        found = (await owned_fields(api, node),) if node else await all_owned_fields(api)
        if takes:
            for each in found:
                await clean(api, each)
        return found


def _document(fields: OwnedFields) -> dict[str, Any]:
    return asdict(fields)


def _print(found: tuple[OwnedFields, ...], *, takes: bool) -> None:
    for each in found:
        print(f"{each.node}: {'taken away' if takes and each else 'vdev has written'}" + ("" if each else " nothing"))
        for what, names in (("label", each.labels), ("resource", each.resources), ("condition", each.conditions)):
            for name in names:
                print(f"  {what} {name}")
    if not found:
        print("no Node has anything of vdev's")
