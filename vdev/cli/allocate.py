"""`vdev allocate`: the exact answer that a container's request would get."""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.allocation import cdi, request
from ..core.allocation.edits import ContainerEdits, cdi_documents, container_edits
from ..core.inventory.resources import Inventory, Resource
from ..core.model.problem import did_you_mean
from ..core.spec import DeviceListStrategy
from ..errors import AllocationError, UsageError
from . import common
from .preview import Preview, add_arguments

EXTRA = "ids"
"""Where the positional arguments after `--resource` go."""

EPILOG = """examples:
  vdev allocate vdev.yaml --resource example.com/uart uart-ttyUSB0
  vdev allocate vdev.yaml --resource nvidia.com/gpu 0 1        devices by their index
  vdev allocate vdev.yaml --resource nvidia.com/gpu --size 2   what the preferred allocation would choose
  vdev allocate vdev.yaml --resource nvidia.com/gpu 0 --all-strategies   the answer under each device-list strategy
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "allocate",
        usage="vdev allocate [option ...] --resource NAME FILE [FILE ...] [ID ...]",
        help="the exact response that a container would get",
        description="Show what a container gets when the kubelet allocates these devices to it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.add_argument("--resource", required=True, metavar="NAME", help="the extended resource that is asked for")
    parser.add_argument(
        "--size", type=int, metavar="N", help="instead of ids: let the preferred allocation choose N devices"
    )
    parser.add_argument(
        "--all-strategies",
        action="store_true",
        help="show the answer under each device-list strategy, instead of those that are on",
    )
    common.add_flags(parser)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the answer; 2 for a bad configuration or an unknown resource, 1 when the request is refused."""
    files, ids = _split(args.files, args.ids)
    seen = common.previewed(args, files)
    if code := common.exit_code(seen.problems):
        for problem in seen.problems:
            print(problem, file=sys.stderr)
        return code
    resource = seen.inventory.resources.get(args.resource)
    if resource is None:
        known = ", ".join(seen.inventory.resources) or "nothing"
        hint = did_you_mean(args.resource, seen.inventory.resources)
        raise UsageError(
            f"node {seen.node} does not advertise {args.resource!r}; it advertises {known}" + f"; {hint}" * bool(hint)
        )
    chosen = _chosen(seen, args.resource, ids, args.size)
    try:
        if args.all_strategies:
            answers = {each.value: _answer(_under(resource, each), chosen) for each in DeviceListStrategy}
        else:
            answers = {"": _answer(resource, chosen)}
    except AllocationError as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    if args.output == "json":
        print(json.dumps({"strategies": answers} if args.all_strategies else answers[""], indent=2))
        return 0
    print(f"{args.resource}: {' '.join(chosen)}")
    for strategy, answer in answers.items():
        if strategy:
            print(f"{strategy}:")
        _print(answer)
    return 0


def _under(resource: Resource, strategy: DeviceListStrategy) -> Resource:
    """The resource as it would be if that strategy alone were on."""
    return replace(resource, flags=replace(resource.flags, device_list_strategies=(strategy,)))


def _answer(resource: Resource, ids: list[str]) -> dict[str, Any]:
    """The answer as a document; what the runtime finds behind CDI names goes with it."""
    edits = container_edits(request.allocate(resource, ids))
    documents = cdi_documents(Inventory({resource.name: resource}))
    behind = {
        cdi.qualified(kind, device["name"]): cdi.edits_of(document, device)
        for kind, document in documents.items()
        for device in document["devices"]
    }
    named = dict.fromkeys(
        [*edits.cdi_devices, *(name for names in edits.annotations.values() for name in names.split(","))]
    )
    return _document(resource.name, ids, edits) | {"cdi": {name: behind[name] for name in named if name in behind}}


def _split(arguments: list[Path], ids: list[str]) -> tuple[list[Path], list[str]]:
    """Files and ids; when the ids were given straight after the files, what is or looks like a file is one."""
    files = [each for each in arguments if _is_file(each)] or arguments[:1]
    return files, [*(str(each) for each in arguments if each not in files), *ids]


def _is_file(path: Path) -> bool:
    return os.path.exists(path) or path.suffix in (".yaml", ".yml", ".json")  # noqa: PTH110  # which raises for ids


def _chosen(seen: Preview, name: str, ids: list[str], size: int | None) -> list[str]:
    resource = seen.inventory.resources[name]
    if size is not None:
        if ids:
            raise UsageError("give ids or --size, not both")
        from ..core.allocation.preferred import allocator_for  # only this option needs it

        free = [slot.id for slot in resource.slots if slot.health.healthy]
        chosen = allocator_for(resource).prefer(free, (), size)
        if not chosen:
            raise UsageError(f"{size} devices of {name} cannot be had; {len(free)} are healthy")
        return list(chosen)
    by_index: dict[str, str] = {}
    for slot in resource.slots:
        by_index.setdefault(slot.device.ordinal, slot.id)
    return [each if each in resource.by_id else by_index.get(each, each) for each in ids]


def _document(resource: str, ids: list[str], edits: ContainerEdits) -> dict[str, Any]:
    """The names are those of `v1beta1.ContainerAllocateResponse`."""
    return {
        "resource": resource,
        "devices_ids": ids,
        "envs": edits.env,
        "mounts": [
            {"container_path": each.container_path, "host_path": each.host_path, "read_only": each.read_only}
            for each in edits.mounts.values()
        ],
        "devices": [
            {"container_path": each.container_path, "host_path": each.host_path, "permissions": each.permissions}
            for each in edits.nodes.values()
        ],
        "annotations": edits.annotations,
        "cdi_devices": [{"name": each} for each in edits.cdi_devices],
    }


def _print(document: dict[str, Any]) -> None:
    for key, value in document["envs"].items():
        print(f"  env         {key}={value}")
    for each in document["devices"]:
        print(f"  device      {each['host_path']} -> {each['container_path']} ({each['permissions']})")
    for each in document["mounts"]:
        print(f"  mount       {each['host_path']} -> {each['container_path']} ({'ro' if each['read_only'] else 'rw'})")
    for key, value in document["annotations"].items():
        print(f"  annotation  {key}={value}")
    for each in document["cdi_devices"]:
        print(f"  cdi         {each['name']}")
    for name, edits in document["cdi"].items():
        print(f"  {name} stands for")
        for text in edits.get("env", ()):
            print(f"    env       {text}")
        for node in edits.get("deviceNodes", ()):
            print(f"    device    {node.get('hostPath', node['path'])} -> {node['path']} ({node['permissions']})")
        for mount in edits.get("mounts", ()):
            print(f"    mount     {mount['hostPath']} -> {mount['containerPath']} ({mount['options'][-1]})")
