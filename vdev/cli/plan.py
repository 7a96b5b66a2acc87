"""`vdev plan`: what a node would advertise and why, and what a reload would change."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import loading
from ..dra import slices as cutting
from ..dra.published_devices import DraDevice, Pools
from ..errors import UsageError
from ..hostfs.files import is_directory
from ..model.device import Slot, device_document, problem_document
from ..model.problem import Problem, errors
from ..model.quantity import written
from ..node.conditions import condition_document
from ..planning.resources import Added, Change, ChangedResource, RemovedResource, Resource, diff
from ..preview import Preview
from . import common

DESCRIPTION = "Show what a node would advertise for a configuration, without a kubelet, changing nothing."
EPILOG = """examples:
  vdev plan vdev.yaml                          what this host would advertise
  vdev plan vdev.yaml --node npu-7             what the node npu-7 would advertise
  vdev plan configs/ --node npu-7              the same, with a directory that has a file for each node
  vdev plan new.yaml --against old.yaml        what replacing old.yaml with new.yaml would change
  vdev plan vdev.yaml --label nvidia.com/mig.config=all-balanced    with the layout that this label selects
  vdev plan vdev.yaml --explain                why each candidate device matched or did not
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "vdev plan [option ...] FILE [FILE ...]"
    common.add_node(parser)
    parser.add_argument(
        "--against",
        nargs="+",
        metavar="OLD",
        help="the present configuration: show what changes from it to FILE",
    )
    parser.add_argument(
        "--explain", action="store_true", help="show every candidate, and the condition that it did not meet"
    )
    parser.add_argument(
        "--label",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a label of the Node that selects a layout (partitions.fromLabel); may be repeated",
    )
    common.add_flags(parser)
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the plan; 2 if the configuration has errors."""
    labels = dict(map(_label, args.label))
    new = common.previewed(args, args.files, labels)
    old = common.previewed(args, args.against, labels) if args.against else None
    files = [str(each) for each in loading.files_of_node([Path(each) for each in args.files], new.node, labels)]
    if args.output == "json":
        print(json.dumps(_document(new, old) | {"files": files}, indent=2))
    else:
        chosen = files if any(is_directory(Path(each)) for each in args.files) else []
        _print(new, old, chosen, explain=args.explain)
    return common.exit_code(_problems(new, old))


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UsageError(f"--label: expected KEY=VALUE such as nvidia.com/mig.config=all-balanced, got {text!r}")
    return key, value


def _problems(new: Preview, old: Preview | None) -> tuple[Problem, ...]:
    """The problems and notices of the new files, and the errors of the old ones."""
    return (*new.problems, *new.notices, *(errors(old.problems) if old else ()))


def _changes(new: Preview, old: Preview) -> tuple[Change, ...]:
    """What a reload would change; nothing if the old or the new configuration is refused."""
    return () if new.refused or old.refused else tuple(diff(old.inventory, new.inventory))


def _label_changes(new: Preview, old: Preview) -> list[dict[str, str | None]]:
    """The labels that a reload would change, with the old and the new value; None for no label."""
    if new.refused or old.refused:
        return []
    keys = sorted({*old.labels, *new.labels})
    changes = [{"label": key, "old": old.labels.get(key), "new": new.labels.get(key)} for key in keys]
    return [change for change in changes if change["old"] != change["new"]]


def _slice_changes(new: Preview, old: Preview) -> list[dict[str, Any]]:
    return [] if new.refused or old.refused else list(_pool_changes(old.pools, new.pools))


def _document(new: Preview, old: Preview | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "node": new.node,
        "resources": [_resource(resource) for resource in new.inventory.resources.values()],
        "nodeLabels": dict(new.labels),
        "nodeStatus": {name: asdict(amount) for name, amount in new.capacity.items()},
        "conditions": [condition_document(each) for each in new.conditions],
        "resourceSlices": _slice_documents(new.pools, new.node),
        "problems": [problem_document(problem) for problem in _problems(new, old)],
        "candidates": {
            name: [{"path": each.path, "matched": each.matched, "why": list(each.why)} for each in found.candidates]
            for name, found in new.found.items()
            if found.candidates
        },
    }
    if old is not None:
        document["changes"] = [_change(change) for change in _changes(new, old)]
        document["labelChanges"] = _label_changes(new, old)
        document["sliceChanges"] = _slice_changes(new, old)
    return document


def _resource(resource: Resource) -> dict[str, Any]:
    return {
        "name": resource.name,
        "devices": [device_document(slot) for slot in resource.slots],
        "listBytes": resource.list_bytes,
    }


def _change(change: Change) -> dict[str, Any]:
    match change:
        case Added(resource):
            return {"resource": resource.name, "change": "added", "devices": [slot.id for slot in resource.slots]}
        case RemovedResource(resource):
            return {"resource": resource.name, "change": "removed", "devices": [slot.id for slot in resource.slots]}
        case ChangedResource():
            return {
                "resource": change.resource.name,
                "change": "changed",
                "added": list(change.added),
                "removed": list(change.removed),
                "health": {each: "Healthy" if health.healthy else "Unhealthy" for each, health in change.health},
            }


def _print(new: Preview, old: Preview | None, chosen: Sequence[str], *, explain: bool) -> None:
    """Print the plan for people. `chosen` are the files that were chosen from directories."""
    print(f"node {new.node}" + (f", with {', '.join(chosen)}" if chosen else "") + _summary(new))
    for resource in new.inventory.resources.values():
        _print_resource(new, resource)
    if new.refused:
        more = "; the resources above have no errors" if new.inventory.resources else ""
        print(f"\na running vdev would refuse this configuration as a whole{more}")
    elif not new.inventory.resources and not new.pools:
        print("  advertises nothing")
    _print_slices(new.pools, new.node)
    _print_node(new)
    if explain:
        for name, found in new.found.items():
            print(f"\ncandidates of {name}:" + ("" if found.candidates else " none"))
            for candidate in found.candidates:
                print(
                    f"  {'+' if candidate.matched else '-'} {candidate.path}: {'; '.join(candidate.why) or 'matched'}"
                )
    if old is not None:
        _print_changes(old, new)
    common.complain(_problems(new, old))


def _summary(new: Preview) -> str:
    resources = new.inventory.resources.values()
    devices = sum(len(each.slots) for each in resources)
    unhealthy = devices - sum(each.healthy for each in resources)
    parts = [f"{common.counted(len(resources), 'resource')} with {common.counted(devices, 'device')}"] * bool(resources)
    parts += [f"{unhealthy} unhealthy"] * bool(unhealthy)
    parts += [common.counted(len(new.pools), "DRA driver")] * bool(new.pools)
    return f": {', '.join(parts)}" if parts else ""


def _print_node(new: Preview) -> None:
    if new.labels:
        print("\nlabels of the node")
        common.print_table(("LABEL", "VALUE"), list(new.labels.items()), indent="  ")
    if new.capacity:
        print("\nresources in the node's status, which no device plugin serves")
        amounts = [(name, str(each.capacity), str(each.allocatable)) for name, each in new.capacity.items()]
        common.print_table(("RESOURCE", "CAPACITY", "ALLOCATABLE"), amounts, indent="  ")
    if new.conditions:
        print("\nconditions of the node")
        rows = [(each.type, each.word, each.reason, each.message) for each in new.conditions]
        common.print_table(("TYPE", "STATUS", "REASON", "MESSAGE"), rows, indent="  ")


def _reason(new: Preview, resource: Resource, slot: Slot) -> str:
    """Why the resource of a slot has its name; empty if its entry names it."""
    name, why = new.inventory.reasons.get(slot.device.id, (resource.name, ""))
    because = f"because {why}" if why else ""
    if name == resource.name or slot.replica is None:
        return because
    return f"by sharing, which renames {name}" + (f" (named {because})" if why else "")


def _print_resource(new: Preview, resource: Resource) -> None:
    count, healthy = common.counted(len(resource.slots), "device"), resource.healthy
    head = f"{resource.name}: {count}, {healthy} healthy, {resource.list_bytes} bytes per list"
    print(f"\n{common.fitted(head, common.width())}")
    for reason in sorted({_reason(new, resource, slot) for slot in resource.slots} - {""}):
        print(f"  named {reason}")
    common.print_first(("ID", "INDEX", "HEALTH", "NUMA", "PROFILE", "PATHS"), _row, resource.slots)
    for slot in [slot for slot in resource.slots[: common.SHOWN] if not slot.health.healthy]:
        print(common.fitted(common.printable(f"  {slot.id} is unhealthy: {slot.health.reason}"), common.width()))


def _row(slot: Slot) -> tuple[str, ...]:
    device = slot.device
    health = "healthy" if slot.health.healthy else "unhealthy"
    numa = ",".join(map(str, device.raw.topology)) or "-"
    return (slot.id, device.ordinal, health, numa, device.profile or "-", " ".join(device.raw.paths) or "-")


def _print_changes(old: Preview, new: Preview) -> None:
    changes, labels, slices = _changes(new, old), _label_changes(new, old), _slice_changes(new, old)
    if new.refused:
        print("\na reload would change nothing: it would be refused")
    elif old.refused:
        print("\nwhat a reload would change is unknown: OLD has errors")
    else:
        print("\na reload would change:" if changes or labels or slices else "\na reload would change nothing")
    for change in changes:
        match change:
            case Added(resource):
                _print_count(resource.name, None, len(resource.slots))
            case RemovedResource(resource):
                print(f"  - {resource.name}: removed; devices that pods may hold stay listed as Unhealthy")
            case ChangedResource(before, after):
                _print_count(after.name, len(before.slots), len(after.slots))
                health = [f"{each}: {health.reason or 'healthy'}" for each, health in change.health]
                _print_differences(change.added, change.removed, health)
                if not (change.added or change.removed or health):
                    print("      the same devices, but containers get something else from them")
    for each in slices:
        driver, count = each["driver"], {name: len(pool.devices) for name, pool in old.pools.items()}
        if driver in new.pools:
            _print_count(driver, count.get(driver), len(new.pools[driver].devices), " for claims")
        else:
            print(f"  - {driver}: no ResourceSlices any more; devices that claims have are kept")
        if driver in old.pools and driver in new.pools:
            _print_differences(each["added"], each["removed"], each["changed"])
    for label in labels:
        key, was, will = label["label"], label["old"], label["new"]
        if was is None:
            print(f"  + label {key}: {will}")
        else:
            print(f"  - label {key}" if will is None else f"  ~ label {key}: {was} -> {will}")


def _print_count(name: str, before: int | None, after: int, what: str = "") -> None:
    count = common.counted(after, "device") + what
    print(f"  + {name}: new, {count}" if before is None else f"  ~ {name}: {before} -> {count}")


def _print_differences(added: Sequence[str], removed: Sequence[str], changed: Sequence[str]) -> None:
    for sign, texts in (("+", added), ("-", removed), ("~", changed)):
        for line in common.signed_lines(sign, texts):
            print(line)


# --- ResourceSlices -------------------------------------------------------------------------------------------------

_FIRST_CAPACITIES = ("memory", "slots", "shares")  # the ones in the table
_SLICE_HEAD = ("DEVICE", "TYPE", "CAPACITY", "CONSUMES", "TAINTS")


def _slice_documents(pools: Pools, node: str) -> list[dict[str, Any]]:
    return [document for pool in pools.values() for document in cutting.objects(pool, node)]


def _print_slices(pools: Pools, node: str) -> None:
    for pool in pools.values():
        count, slices = len(pool.devices), len(cutting.specifications(pool, node))
        healthy = sum(device.health.healthy for device in pool.devices)
        of = f"{common.counted(count, 'device')} for claims in {common.counted(slices, 'ResourceSlice')}"
        print(f"\n{pool.driver}: {of}, {healthy} healthy")
        common.print_first(_SLICE_HEAD, _slice_row, pool.devices)


def _slice_row(device: DraDevice) -> tuple[str, ...]:
    kind = device.attributes.get("type")
    words = (str(kind.value) if kind else "", device.device.profile)
    return (
        device.name,
        " ".join(filter(None, words)) or "-",
        _capacity(device) or "-",
        ", ".join(device.consumes) or "-",
        ", ".join(f"{each.key}{'=' if each.value else ''}{each.value}:{each.effect}" for each in device.taints) or "-",
    )


def _capacity(device: DraDevice) -> str:
    shown = [f"{name} {written(device.capacity[name].value)}" for name in _FIRST_CAPACITIES if name in device.capacity]
    more = len(device.capacity) - len(shown)
    return ", ".join([*shown, *([f"{more} more"] if more else [])])


def _pool_changes(before: Pools, after: Pools) -> Iterator[dict[str, Any]]:
    """The changes of each driver's published devices, by name."""
    for driver in sorted({*before, *after}):
        old = before[driver].by_name if driver in before else {}
        new = after[driver].by_name if driver in after else {}
        change = {
            "driver": driver,
            "added": [name for name in new if name not in old],
            "removed": [name for name in old if name not in new],
            "changed": [
                name
                for name in new
                if name in old and cutting.device_document(old[name]) != cutting.device_document(new[name])
            ],
        }
        if (driver in before) != (driver in after) or change["added"] or change["removed"] or change["changed"]:
            yield change
