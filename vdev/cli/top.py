"""`vdev top`: the sensors of the devices of the running plugin."""

import argparse
import asyncio
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..agent import command_socket
from ..errors import UsageError, VdevError
from ..model.problem import counted
from . import common, options

SORTS = {"load": "load", "memory": "memoryUsedMiB", "temperature": "temperature", "power": "power", "name": ""}
"""The sensor of each sort order; without one, devices are sorted by name."""

EPILOG = """examples:
  vdev top                           a view that refreshes every two seconds, until Ctrl-C
  vdev top --once                    once; the default if the output is not a terminal
  vdev top --sort temperature        the warmest first
  vdev top nvidia.com/gpu a100/3     a resource, an entry, devices, or pods as namespace/name
  vdev top --output json             once, for programs

Devices with faults come first. The configuration needs `telemetry`, such as telemetry: {}.
Exit code 0; 1 if telemetry is off or no plugin answers.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these resources, entries, devices and pods")
    options.add(parser, "run_dir")
    parser.add_argument("--once", action="store_true", help="show it once")
    parser.add_argument("--every", default="2", metavar="SECONDS", help="time between refreshes [default: 2]")
    parser.add_argument("--sort", choices=[*SORTS], default="load", help="order, after faulty devices [default: load]")
    parser.add_argument(
        "--rows", type=int, metavar="N", help="number of devices to show; 0: all [default: as many as fit, or 40]"
    )
    common.add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Print the sensors; 1 if telemetry is off."""
    run_dir, every = options.read(args).run_dir, common.seconds(args.every, "--every")
    if args.rows is not None and args.rows < 0:
        raise UsageError(f"--rows: expected a number of at least 0, got {args.rows}")
    document = asyncio.run(_document(run_dir, args.names))
    if args.output == "json" or args.once or not sys.stdout.isatty():
        common.show(args, document, lines(document, args.sort, common.SHOWN if args.rows is None else args.rows))
        return 0

    async def frame() -> Sequence[str]:
        now = await _document(run_dir, args.names)
        return list(lines(now, args.sort, args.rows))  # `watch` cuts what does not fit

    asyncio.run(common.watch(frame, every))
    return 0


async def _document(run_dir: Path, names: Sequence[str]) -> dict[str, Any]:
    document: dict[str, Any] = await command_socket.ask(run_dir, {"do": "top"})
    if not document["on"]:
        raise VdevError("telemetry is off: give telemetry in the configuration, such as telemetry: {}")
    if names:
        kept = [each for each in document["devices"] if names_of(each) & set(names)]
        if not kept:
            raise VdevError(f"no such device, resource, entry or pod: {' or '.join(names)}; see vdev top --once")
        document["devices"] = kept
    return document


# --- the text ---------------------------------------------------------------------------------------------------------

_BAR = 10  # characters
_FULL = 100.0
_Device = dict[str, Any]


def lines(document: dict[str, Any], sort: str, rows: int | None) -> Iterator[str]:
    """The document of `vdev top --output json` as lines for people, with at most `rows` devices; 0 or None for all."""
    devices: list[_Device] = document["devices"]
    yield _summary(document["node"], devices)
    yield ""
    devices = sorted(devices, key=lambda each: _order(each, sort))
    yield from common.table(_COLUMNS, devices, most=rows or None, indent="")


def names_of(device: _Device) -> set[str]:
    index = device["index"]
    return {device["id"], device["resource"], device["entry"], _selector(device), *_holders(device)} - {index}


def _summary(node: str, devices: Sequence[_Device]) -> str:
    held = sum(bool(each["holders"]) for each in devices)
    wrong = sum(bool(_trouble(each)) for each in devices)
    whole = {each["parent"] or each["id"]: each for each in devices}.values()
    power = sum(each["power"] for each in whole)
    load = sum(each["load"] for each in devices) / len(devices) if devices else 0.0
    state = f"{wrong or 'none'} with faults"
    count = counted(len(devices), "device")
    watts = f"{power / 1000:.1f} kW" if power >= 1000 else f"{power:.0f} W"
    return f"node {node}: {count}, {held} held by pods, {state}, load {load:.0f} %, {watts}"


def _trouble(each: _Device) -> str:
    parts = []
    if each["lost"]:
        parts.append("LOST")
    if each["xid"]:
        parts.append(f"Xid {each['xid']}")
    if each["health"] != "Healthy":
        parts.append(f"Unhealthy: {each['reason']}" if not each["xid"] and each["reason"] else "Unhealthy")
    if each["throttled"]:
        parts.append("throttled")
    if each["eccUncorrected"]:
        parts.append(f"{each['eccUncorrected']} ECC errors")
    drill = f" (drill: {each['injected']})" if each["injected"] else ""
    return ", ".join(parts) + drill if parts else ""


def _holders(each: _Device) -> list[str]:
    return list(dict.fromkeys(f"{one['namespace']}/{one['pod']}" for one in each["holders"]))


def _selector(each: _Device) -> str:
    return f"{each['entry']}/{each['deviceIndex']}"


def _name(each: _Device) -> str:
    return f"{_selector(each)} {each['profile']}" if each["profile"] else _selector(each)


def _reading(text_of: Callable[[_Device], str]) -> Callable[[_Device], str | None]:
    """A column with a metric. A lost device has no metrics."""
    return lambda each: None if each["lost"] else text_of(each)


def _memory(each: _Device) -> str:
    used, total = each["memoryUsedMiB"] / 1024, each["memoryTotalMiB"] / 1024
    return f"{used:.1f}/{total:.1f} GiB" if total else ""


_COLUMNS: common.Columns = {
    "DEVICE": _name,
    "LOAD": _reading(lambda each: f"{each['load']:3.0f} %"),
    "": _reading(lambda each: ("█" * round(each["load"] / _FULL * _BAR)).ljust(_BAR, "·")),
    "MEMORY": _reading(_memory),
    "TEMP": _reading(lambda each: f"{each['temperature']:.0f} °C"),
    "POWER": _reading(lambda each: f"{each['power']:.0f}/{each['powerLimit']:.0f} W"),
    "STATE": lambda each: _trouble(each) or ("busy" if each["load"] else "idle"),
    "HOLDERS": _holders,
}


def _order(each: _Device, sort: str) -> tuple[object, ...]:
    key = -each[SORTS[sort]] if SORTS[sort] else 0
    place = [int(part) for part in str(each["deviceIndex"]).split(":")]
    return (not each["lost"], each["health"] == "Healthy", not _trouble(each), key, each["entry"], place)
