"""`vdev status`: the state of the running plugin, with problems first."""

import argparse
import asyncio
import functools
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..agent import command_socket
from ..model.problem import counted
from . import common, options

EPILOG = """examples:
  vdev status                        the plugin of this node
  vdev status --watch                again every two seconds, until Ctrl-C
  vdev status --run-dir /tmp/vdev    a plugin that was started with this --run-dir

DEVICE is how rules and `vdev device` name it: a100/2 is the third of the entry a100, a100/2:0 its first partition.
Exit code 0 if the plugin is ready, else 1.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add(parser, "run_dir")
    parser.add_argument("-w", "--watch", nargs="?", const="2", metavar="SECONDS", help="repeat [default: every 2 s]")
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status; 1 if the plugin is not ready or does not answer."""
    as_json = args.output == "json"
    ask = functools.partial(command_socket.ask, options.read(args).run_dir, {"do": "status"})

    async def frame() -> Sequence[str]:
        return [json.dumps(await ask())] if as_json else list(lines(await ask()))

    if args.watch is not None:
        asyncio.run(common.watch(frame, common.seconds(args.watch, "--watch"), as_json=as_json))
    status = asyncio.run(ask())
    common.show(args, status, lines(status))
    return 0 if status["ready"] else 1


# --- the text ---------------------------------------------------------------------------------------------------------

_ACTIONS = 3  # failed ones that are shown


def lines(status: dict[str, Any]) -> Iterator[str]:
    """The document of `vdev status --output json` as lines for people."""
    yield from _state(status)
    missing = not status["kubelet"]["present"] and not status["standBy"]  # a stand-by does not need it
    if status["resources"] or not (missing or status["standBy"]):  # a stand-by has no devices yet
        yield from _devices_in_short(status["node"], status["resources"], status["dra"])
    yield f"the kubelet's socket {status['kubelet']['socket']}" + " (not there)" * missing
    yield from _holders(status["podResources"], status["record"])
    yield from _node(status["nodeApi"])
    yield from _drivers(status["dra"], status["nodeApi"]["apiServer"])
    yield from _config(status["config"])
    for problem in status["problems"]:
        hint = f"; {problem['hint']}" if problem["hint"] else ""
        yield f"  {problem['severity']}: {problem['where']}: {problem['message']}{hint}"
    yield from _actions(status["actions"])
    yield from _drill(status["faults"])
    for resource in sorted(status["resources"], key=_is_well):
        yield from _resource(resource)


def _state(status: dict[str, Any]) -> Iterator[str]:
    well = "stand-by" if status["standBy"] else "ready"
    yield f"node {status['node']}, vdev {status['version']}, {well if status['ready'] else 'NOT READY'}"
    if status["standBy"]:
        yield f"  {status['standBy']}"
    for reason in status["notReady"]:
        yield f"  {reason}"


def _devices_in_short(node: str, resources: list[dict[str, Any]], drivers: list[dict[str, Any]]) -> Iterator[str]:
    devices = [device for resource in resources for device in resource["devices"]]
    if not devices:
        if not any(each["devices"] for each in drivers):
            yield f"no devices; vdev plan FILE --node-name {node} --explain says why"
        return
    bad = sum(each["health"] != "Healthy" for each in devices)
    unhealthy = f"{bad} unhealthy" if bad else "all healthy"
    offered = f"{counted(len(resources), 'resource')}, {counted(len(devices), 'device')}"
    held = sum(bool(device["holder"]) for device in devices)
    yield f"{offered}: {unhealthy}, {held} held by pods"


def _holders(source: dict[str, Any], record: dict[str, Any]) -> Iterator[str]:
    """The source of the information about which pod holds which device."""
    doubted = f"; {counted(source['doubted'], 'device')} may be held by pods that are not listed there"
    since = f"holders known from {source['knownFrom']}, since {_ago(source['knownFromSince'])}"
    yield since + doubted * bool(source["doubted"])
    if source["checkpointProblem"]:
        yield f"  not used: {source['checkpointProblem']}"
    yield f"record {record['file'] or 'off'}" + f": {record['problem']}" * bool(record["problem"])


def _node(node: dict[str, Any]) -> Iterator[str]:
    """The parts of the Node that do not match the configuration yet, and the problem."""
    labels, status = node["labels"], node["status"]
    if len(labels["written"]) < len(labels["wanted"]):
        yield f"labels of the Node: {len(labels['written'])} of {len(labels['wanted'])} written"
    if (status["capacity"] or status["conditions"]) and not status["written"]:
        yield "status of the Node: NOT WRITTEN yet"
    if status["capacity"] and status["kubeletDecidesAllocatable"]:
        yield "  the kubelet computes what is allocatable; unhealthy devices stay in it"
    if node["problem"]:
        yield f"  {node['problem']}"


def _drivers(drivers: list[dict[str, Any]], server: str) -> Iterator[str]:
    for each in drivers:
        why = "" if server else " (no API server is known)"
        published = counted(each["slices"], "ResourceSlice") if each["slices"] else f"no slice: NOT PUBLISHED{why}"
        devices = counted(each["devices"], "device")
        tainted = [device for device in each["deviceList"] if device["taints"] or not _is_healthy(device)]
        unhealthy = f", {each['unhealthy']} unhealthy" if each["unhealthy"] else ""
        yield f"DRA driver {each['name']}: {each['state']}, {devices} in {published}{unhealthy}"
        columns: common.Columns = {"DEVICE": "name", "HEALTH": "health", "REASON": _why}
        yield from common.table(columns, tainted, most=common.SHOWN)
        for claim in each["claims"][: common.SHOWN]:
            yield f"  claim {claim['namespace']}/{claim['name']}: {', '.join(claim['devices'])}"
        yield from common.more(each["claims"])


def _config(config: dict[str, Any]) -> Iterator[str]:
    files = ", ".join(config["files"])
    applied = f"configuration {files}: applied {_ago(config['appliedAt'])}"
    if config["lastReloadSuccessful"]:
        yield applied
    else:
        yield f"{applied}; a later one was REFUSED {_ago(config['failedAt'])}, this one stays in force"
        yield f"  vdev validate {files} shows what is wrong with it"
    if config["keptAt"]:
        yield f"  it is the last good one, from {config['keptFile']}: the files have had errors since the start"
    if config["choice"]:
        yield f"  chosen: {config['choice']}"


def _actions(actions: dict[str, Any]) -> Iterator[str]:
    if not actions["failed"]:
        return
    counts = f"actions: {actions['failed']} failed, {actions['done']} done"
    yield f"{counts}; mend the commands and files that the configuration has for them"
    to_do = {(each["resource"], each["device"]) for each in actions["releasesToDo"] if each["reason"]}

    def reason(action: dict[str, Any]) -> str:
        is_again = action["occasion"] == "onRelease" and (action["resource"], action["device"]) in to_do
        return f"{action['reason']}" + "; it is tried again, and until then no pod starts with it" * is_again

    yield from common.table({**_ACTION, "REASON": reason}, actions["failures"][:_ACTIONS])
    if len(actions["failures"]) > _ACTIONS:
        yield f"  … and others; --output json lists the last {len(actions['failures'])} failures"


def _drill(faults: dict[str, Any]) -> Iterator[str]:
    if faults["active"]:
        names = ", ".join(each["name"] for each in faults["rules"] if each["state"] == "active")
        active = f"DRILL: {counted(faults['active'], 'injected fault')} active ({names})"
        yield f"{active}; see vdev fault list, and vdev fault clear NAME to end one"


def _is_well(resource: dict[str, Any]) -> bool:
    every = resource["allocatable"] == resource["capacity"]
    return every and resource["state"] == "registered" and not resource["problem"] and not resource["draining"]


def _resource(resource: dict[str, Any]) -> Iterator[str]:
    trouble = f" ({resource['problem']})" if resource["problem"] else ""
    drain = ", draining" if resource["draining"] else ""
    count = f"{resource['allocatable']}/{resource['capacity']} allocatable"
    yield ""
    yield f"{resource['name']}: {count}, {resource['state']}{trouble}{drain}"
    yield from common.table(_DEVICE, sorted(resource["devices"], key=_is_healthy), most=common.SHOWN)


def _is_healthy(device: dict[str, Any]) -> bool:
    return bool(device["health"] == "Healthy")


def _why(device: dict[str, Any]) -> str:
    """Why a device is unhealthy, which rule causes it, and the taints of a published device."""
    injected = f"injected by {device['injected']}" if device["injected"] else ""
    taints = f"taint {', '.join(device['taints'])}" if device.get("taints") else ""
    return "; ".join(filter(None, (device["reason"], injected, taints)))


def _ago(moment: float | None) -> str:
    if moment is None:
        return "never"
    seconds = max(0, int(time.time() - moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


_ACTION: common.Columns = {
    "ACTION": "occasion",
    "RESOURCE": "resource",
    "DEVICE": "device",
    "POD": "pod",
    "FAILED": lambda action: _ago(action["at"]),
}
_DEVICE: common.Columns = {
    "ID": "id",
    "DEVICE": "selector",
    "PROFILE": "profile",
    "HEALTH": "health",
    "HELD BY": "holder",
    "CHANGED": lambda device: _ago(device["changedAt"]),
    "REASON": _why,
}
