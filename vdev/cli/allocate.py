"""`vdev allocate`: the exact response to an allocation."""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import AllocationError, ConfigError, UsageError
from ..model.entry import DeviceListStrategy
from ..model.problem import counted, did_you_mean
from ..planning import allocation, cdi
from ..planning.allocation import cdi_documents, container_edits
from ..planning.resources import Inventory, Resource
from . import common, options, plan

EPILOG = """examples:
  vdev allocate vdev.yaml --resource example.com/uart uart-ttyUSB0
  vdev allocate vdev.yaml --resource nvidia.com/gpu 0 1        devices by index
  vdev allocate vdev.yaml --resource nvidia.com/gpu --size 2   the devices that the preferred allocation chooses
  vdev allocate vdev.yaml --resource nvidia.com/gpu 0 --all-strategies   the response for each device-list strategy
  vdev allocate vdev.yaml --claim claim.yaml                   the devices of a claim (DRA), and what containers get
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    plan.add_node(parser)
    parser.usage = (
        "vdev allocate [option ...] (--resource NAME FILE [FILE ...] [ID ...] | --claim CLAIM FILE [FILE ...])"
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--resource", metavar="NAME", help="the extended resource of the devices ID …; vdev plan lists them"
    )
    what.add_argument(
        "--claim",
        type=Path,
        metavar="CLAIM",
        help="a file with ResourceClaims or ResourceClaimTemplates, and DeviceClasses that the configuration does "
        "not define; claims without an allocation get the first devices that fit",
    )
    parser.add_argument(
        "--size", type=int, metavar="N", help="let the preferred allocation choose N devices, instead of IDs"
    )
    parser.add_argument(
        "--all-strategies",
        action="store_true",
        help="show the response for every device-list strategy, not only the configured ones",
    )


def run(args: argparse.Namespace) -> int:
    """Print the response; 2 for a wrong configuration or an unknown resource, 1 if the allocation is refused."""
    if args.claim is not None and (args.size is not None or args.all_strategies):
        raise UsageError("--size and --all-strategies need --resource; the requests of a claim select its devices")
    files, ids = (args.files, []) if args.claim else _split(args.files)
    seen = plan.preview(files, options.read(args))
    if common.exit_code(seen.problems):
        raise ConfigError(seen.problems)
    try:
        if args.claim is not None:
            from . import allocate_claims  # not needed for a resource

            document, lines = allocate_claims.answers(args.claim, seen)
        else:
            document, lines = _answers(args, ids, seen)
    except AllocationError as refused:
        print(f"refused: {refused}", file=sys.stderr)
        return 1
    common.show(args, document, lines)
    return 0


def _answers(args: argparse.Namespace, ids: list[str], seen: plan.Preview) -> tuple[dict[str, Any], Iterator[str]]:
    """The response for each strategy, or the only one; and the same as lines for people. Raises AllocationError."""
    resource = seen.plan.devices.resources.get(args.resource)
    if resource is None:
        known = seen.plan.devices.resources
        hint = f"{did_you_mean(args.resource, known)} it advertises {', '.join(known) or 'nothing'}".lstrip()
        common.complain(seen.problems)
        raise UsageError(f"node {seen.node} does not advertise {args.resource!r}; {hint}")
    chosen = _chosen(resource, ids, args.size)
    strategies = DeviceListStrategy if args.all_strategies else [None]
    documents = {str(each or ""): _answer(resource, chosen, each) for each in strategies}
    lines = (_lines(strategy, document) for strategy, document in documents.items())
    title = f"{args.resource}: {' '.join(chosen)}"
    document = {"strategies": documents} if args.all_strategies else documents[""]
    return document, itertools.chain([title], *lines)


def _split(arguments: list[Path]) -> tuple[list[Path], list[str]]:
    """Split the arguments into files and ids. An argument is a file if it exists or has a suffix of YAML or JSON."""
    suffixes = (".yaml", ".yml", ".json")
    # Path.exists raises for some ids.
    files = [each for each in arguments if os.path.exists(each) or each.suffix in suffixes] or arguments[:1]
    return files, [str(each) for each in arguments if each not in files]


def _chosen(resource: Resource, ids: list[str], size: int | None) -> list[str]:
    """Return `size` preferred ids, or `ids` with each index replaced by the id of that device or its first replica."""
    if size is None:
        by_index: dict[str, str] = {}
        for slot in resource.slots:
            by_index.setdefault(slot.device.ordinal, slot.id)
        return [name if name in resource.by_id else by_index.get(name, name) for name in ids]
    if ids:
        raise UsageError("give ids or --size, not both")
    healthy = [slot.id for slot in resource.slots if slot.health.healthy]
    chosen = list(resource.preferred(healthy, (), size))
    if not chosen:
        found = counted(len(resource.slots), "device")
        raise UsageError(f"--size {size} is not possible: {resource.name} has {found}, {len(healthy)} healthy")
    return chosen


def _answer(resource: Resource, ids: Sequence[str], strategy: DeviceListStrategy | None) -> dict[str, Any]:
    """Return the `v1beta1.ContainerAllocateResponse` in JSON form, with the edits of the CDI devices that it names.

    `strategy` replaces the strategies of the file. Raises AllocationError.
    """
    if strategy:
        resource = replace(resource, flags=resource.flags.with_plugin(device_list_strategy=(strategy,)))
    edits = container_edits(resource, allocation.allocate(resource, ids))
    known: dict[str, Any] = {}
    for document in cdi_documents(Inventory({resource.name: resource})).values():
        known |= cdi.edits_by_name(document)
    annotated = (name for names in edits.annotations.values() for name in names.split(","))
    named = dict.fromkeys((*edits.cdi_devices, *annotated))
    return {
        "resource": resource.name,
        "devicesIds": ids,
        "envs": edits.env,
        "mounts": [
            {"containerPath": each.container_path, "hostPath": each.host_path, "readOnly": each.read_only}
            for each in edits.mounts.values()
        ],
        "devices": [
            {"containerPath": each.container_path, "hostPath": each.host_path, "permissions": each.permissions}
            for each in edits.nodes.values()
        ],
        "annotations": edits.annotations,
        "cdiDevices": [{"name": each} for each in edits.cdi_devices],
        "cdi": {name: known[name] for name in named if name in known},
    }


def _lines(strategy: str, document: dict[str, Any]) -> Iterator[str]:
    if strategy:
        yield f"{strategy}:"
    for key, value in document["envs"].items():
        yield f"  env         {key}={value}"
    for each in document["devices"]:
        yield f"  device      {each['hostPath']} -> {each['containerPath']} ({each['permissions']})"
    for each in document["mounts"]:
        yield f"  mount       {each['hostPath']} -> {each['containerPath']} ({'ro' if each['readOnly'] else 'rw'})"
    for key, value in document["annotations"].items():
        yield f"  annotation  {key}={value}"
    for each in document["cdiDevices"]:
        yield f"  cdi         {each['name']}"
    yield from common.cdi_lines(document["cdi"])
