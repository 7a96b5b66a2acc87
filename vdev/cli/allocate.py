"""`vdev allocate`: the exact answer that a container's request would get."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..core import allocate, inject
from ..core.inject import ContainerEdits
from ..core.problem import did_you_mean
from ..errors import AllocationError, UsageError
from . import common
from .preview import Preview, add_arguments

EXTRA = "ids"
"""Where the positional arguments after `--resource` go."""

EPILOG = """examples:
  vdev allocate vdev.yaml --resource example.com/uart uart-ttyUSB0
  vdev allocate vdev.yaml --resource nvidia.com/gpu 0 1        devices by their index
  vdev allocate vdev.yaml --resource nvidia.com/gpu --size 2   what the preferred allocation would choose
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "allocate",
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
        edits = inject.inject(allocate.allocate(resource, chosen))
    except AllocationError as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    document = _document(args.resource, chosen, edits)
    if args.output == "json":
        print(json.dumps(document, indent=2))
    else:
        _print(document)
    return 0


def _split(arguments: list[Path], ids: list[str]) -> tuple[list[Path], list[str]]:
    """Files and ids; when the ids were given straight after the files, what is or looks like a file is one."""
    files = [each for each in arguments if each.exists() or each.suffix in (".yaml", ".yml", ".json")] or arguments[:1]
    return files, [*(str(each) for each in arguments if each not in files), *ids]


def _chosen(seen: Preview, name: str, ids: list[str], size: int | None) -> list[str]:
    resource = seen.inventory.resources[name]
    if size is not None:
        if ids:
            raise UsageError("give ids or --size, not both")
        from ..core.preferred import allocator_for  # only this option needs it

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
    print(f"{document['resource']}: {' '.join(document['devices_ids'])}")
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
