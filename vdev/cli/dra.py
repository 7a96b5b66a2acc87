"""`vdev dra`: the objects that the cluster needs for claims of devices."""

import argparse
import asyncio
import contextlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from ..api_server import ApiServerAddress
from ..dra.device_classes import DeviceClass, device_classes
from ..kube.api import Api
from ..kube.connection import Connection
from ..kube.objects import DEVICE_CLASSES
from . import common, options

EPILOG = """examples:
  vdev dra classes vdev.yaml
  vdev dra classes vdev.yaml --extended-resources
  vdev dra classes vdev.yaml --apply --kubeconfig ~/.kube/config

A claim names a DeviceClass. Classes for NVIDIA and AMD have the names of their drivers. Other devices have a class
for each resource: npu.acme.dev for acme.dev/npu. Classes are cluster-wide, so entries for other nodes are included.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = common.add_actions(parser, "classes")
    classes = common.add_action(
        actions, "classes", "print the DeviceClasses as YAML or JSON, or apply them", "kubeconfig", "context"
    )
    classes.add_argument("files", nargs="+", type=Path, metavar="FILE", help="configuration files, joined by section")
    classes.add_argument(
        "--extended-resources",
        action="store_true",
        help="set extendedResourceName in each class, so that pods that request the entry's resource need no claim; "
        "default: dra.extendedResource of the entry",
    )
    classes.add_argument("--apply", action="store_true", help="apply them to a cluster instead of printing them")
    common.add_flags(classes)


def run(args: argparse.Namespace) -> int:
    chosen = options.read(args)
    loaded = chosen.load(args.files)
    classes, problems = device_classes(loaded.spec, extended=args.extended_resources)
    common.complain(problems)
    if not classes:
        print("no entry is advertised by DRA", file=sys.stderr)
    if args.apply:
        asyncio.run(_apply(chosen.needed_api_server, classes))
        print("".join(f"applied DeviceClass {each.name}\n" for each in classes), end="")
    elif args.output == "json":
        print(json.dumps([each.document for each in classes], indent=2))
    elif classes:
        print(yaml.safe_dump_all([each.document for each in classes], sort_keys=False, width=160), end="")
    return 0


async def _apply(server: ApiServerAddress, classes: Sequence[DeviceClass]) -> None:
    async with contextlib.aclosing(Connection(server)) as connection:
        for each in classes:
            await Api(connection).apply(DEVICE_CLASSES, each.name, each.document)
