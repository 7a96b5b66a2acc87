"""`vdev status`: what the running plugin serves."""

import argparse
import asyncio
import json
import time
from typing import Any

from ...control import command_socket
from .. import common, options

DESCRIPTION = "Show the resources, devices, health, holders and last reload of the running plugin."
EPILOG = """example:
  vdev status                        the plugin of this node
  vdev status --run-dir /tmp/vdev    a plugin that was started with this --run-dir
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_one(parser, "run_dir")
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the status; 1 if the plugin is not ready or does not answer."""
    status = asyncio.run(command_socket.ask(options.read(args).run_dir, {"do": "status"}))
    if args.output == "json":
        print(json.dumps(status, indent=2))
    else:
        _print(status)
    return 0 if status["ready"] else 1


def _print_holders(source: dict[str, Any], record: dict[str, Any]) -> None:
    """How the plugin knows which pod holds which device."""
    print(f"holders known from {source['knownFrom']}, since {_ago(source['knownFromSince'])}", end="")
    doubted = f"{source['doubted']} device{'s' * (source['doubted'] != 1)}"
    print(f"; {doubted} may be held by pods that are not listed there" if source["doubted"] else "")
    if source["checkpointProblem"]:
        print(f"  not used: {source['checkpointProblem']}")
    print(f"record {record['file'] or 'off'}{': ' if record['problem'] else ''}{record['problem']}")


def _print_node(node: dict[str, Any]) -> None:
    """What the Node has from here; nothing where nothing is asked for."""
    labels, status, features = node["labels"], node["status"], node["features"]["file"]
    if features:
        print(f"labels in {features}")
    if labels["wanted"] or labels["written"]:
        kept = f", {len(labels['keptBy'])} kept by others" if labels["keptBy"] else ""
        print(f"labels of the Node: {len(labels['written'])} of {len(labels['wanted'])} written{kept}")
    if status["capacity"] or status["conditions"]:
        written = "written" if status["written"] else "NOT WRITTEN yet"
        parts = ((len(status["capacity"]), "resource"), (len(status["conditions"]), "condition"))
        what = ", ".join(f"{number} {each}{'s' * (number != 1)}" for number, each in parts if number)
        print(f"status of the Node: {what}, {written}")
    if status["capacity"] and status["kubeletDecidesAllocatable"]:
        print("  the kubelet computes what is allocatable; unhealthy devices stay in it")
    for each in status["conditions"]:
        print(f"  {each['type']} {each['status']}: {each['message']}")
    events = node["events"]
    if events["written"] or events["dropped"]:
        print(f"events: {events['written']} written" + (f", {events['dropped']} lost" if events["dropped"] else ""))
    if node["problem"]:
        print(f"  {node['problem']}")


def _print_drivers(drivers: list[dict[str, Any]]) -> None:
    """The drivers of Dynamic Resource Allocation, and the claims that they prepared."""
    for each in drivers:
        slices, claims = each["slices"], each["claims"]
        published = f"{slices} ResourceSlice{'s' * (slices != 1)}" if slices else "no slice: NOT PUBLISHED"
        devices = f"{each['devices']} device{'s' * (each['devices'] != 1)}"
        print(f"DRA driver {each['name']}: {each['state']}, {devices} in {published}")
        for claim in claims[: common.SHOWN]:
            print(f"  claim {claim['namespace']}/{claim['name']}: {', '.join(claim['devices'])}")
        if len(claims) > common.SHOWN:
            print(f"  … and {len(claims) - common.SHOWN} more claims; --output json lists all")


def _print(status: dict[str, Any]) -> None:
    is_there = "" if status["kubelet"]["present"] else " (not there)"
    well = "stand-by" if status["standBy"] else "ready"
    print(f"node {status['node']}, vdev {status['version']}, {well if status['ready'] else 'NOT READY'}")
    if status["standBy"]:
        print(f"  {status['standBy']}")
    for reason in status["notReady"]:
        print(f"  {reason}")
    print(f"the kubelet's socket {status['kubelet']['socket']}{is_there}")
    _print_holders(status["podResources"], status["record"])
    _print_node(status["nodeApi"])
    _print_drivers(status["dra"])
    config = status["config"]
    print(f"configuration {', '.join(config['files'])}: applied {_ago(config['appliedAt'])}", end="")
    print(
        ""
        if config["lastReloadSuccessful"]
        else f"; a later one was REFUSED {_ago(config['failedAt'])}, this one stays in force"
    )
    if config["keptAt"]:
        print(f"  it is not what the files say: they are bad since the start, and it was kept in {config['keptFile']}")
    if config["choice"]:
        print(f"  chosen: {config['choice']}")
    faults = status["faults"]
    if faults["active"]:
        names = ", ".join(each["name"] for each in faults["rules"] if each["state"] == "active")
        print(
            f"DRILL: {faults['active']} injected fault{'s' * (faults['active'] != 1)} active ({names}); "
            "see vdev fault list"
        )
    for problem in status["problems"]:
        hint = f"; {problem['hint']}" if problem["hint"] else ""
        print(f"  {problem['severity']}: {problem['where']}: {problem['message']}{hint}")
    for resource in status["resources"]:
        trouble = f" ({resource['problem']})" if resource["problem"] else ""
        drain = ", draining" if resource["draining"] else ""
        print(
            f"\n{resource['name']}: {resource['allocatable']}/{resource['capacity']} allocatable, "
            f"{resource['state']}{trouble}{drain}"
        )
        rows = [
            (each["id"], each["health"], _reason(each), each["holder"] or "-", _ago(each["changedAt"]))
            for each in resource["devices"][: common.SHOWN]
        ]
        if rows:
            common.print_table(("ID", "HEALTH", "REASON", "HELD BY", "CHANGED"), rows, indent="  ")
        if len(resource["devices"]) > common.SHOWN:
            print(f"  … and {len(resource['devices']) - common.SHOWN} more; --output json lists all")


def _reason(device: dict[str, Any]) -> str:
    mark = f"injected by {device['injected']}" if device["injected"] else ""
    return "; ".join(filter(None, (device["reason"], mark))) or "-"


def _ago(moment: float | None) -> str:
    if moment is None:
        return "never"
    seconds = max(0, int(time.time() - moment))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
