"""`vdev node`: shows or removes the fields that vdev wrote on Nodes."""

import argparse
import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import asdict

from ..errors import UsageError
from ..kube.api import Api
from ..kube.connection import Connection
from ..node.ownership import OwnedFields, clean, owned_fields
from . import common, options

EPILOG = """examples:
  vdev node show --kubeconfig ~/.kube/config --node-name worker-1
  vdev node clean --kubeconfig ~/.kube/config --node-name worker-1
  vdev node clean --kubeconfig ~/.kube/config --all --dry-run

What vdev wrote stays when vdev ends, so that a restart does not affect scheduling. Remove it when you remove vdev from
a node; end vdev first, because a running vdev writes it again. Fields of other owners are never touched.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = common.add_actions(parser, "show", "clean")
    fields = ("node_name", "kubeconfig", "context")
    show = common.add_action(actions, "show", "show what vdev wrote on Nodes", *fields)
    remove = common.add_action(actions, "clean", "remove what vdev wrote on Nodes", *fields)
    for each in (show, remove):
        each.add_argument("--all", action="store_true", help="all Nodes on which vdev wrote something")
    remove.add_argument("--dry-run", action="store_true", help="only show what would be removed")


def run(args: argparse.Namespace) -> int:
    chosen = options.read(args)
    if args.all and chosen.named_node:
        raise UsageError("--all and --node-name exclude each other")
    removes = args.action == "clean" and not args.dry_run
    connection = Connection(chosen.needed_api_server)
    found = asyncio.run(_found(connection, "" if args.all else chosen.node_name, removes=removes))
    document = {"cleaned": removes, "nodes": [asdict(each) for each in found]}
    common.show(args, document, _lines(found, removes=removes))
    return 0


async def _found(connection: Connection, node: str, *, removes: bool) -> tuple[OwnedFields, ...]:
    async with contextlib.aclosing(connection):
        api = Api(connection)
        found = await owned_fields(api, node)
        if removes:
            for each in found:
                await clean(api, each)
        return found


def _lines(found: tuple[OwnedFields, ...], *, removes: bool) -> Iterator[str]:
    for each in found:
        yield f"{each.node}: {'removed' if removes and each else 'vdev wrote'}" + ("" if each else " nothing")
        for what, names in (("label", each.labels), ("resource", each.resources), ("condition", each.conditions)):
            yield from (f"  {what} {name}" for name in names)
    if not found:
        yield "vdev wrote nothing on any Node"
