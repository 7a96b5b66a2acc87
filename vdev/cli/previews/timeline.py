"""`vdev plan --timeline`: what fault rules do to a node, and when, as text and JSON."""

from typing import Any

from ...core.faults.forecast import Forecast, ForecastEvent
from .. import common


def document(forecast: Forecast) -> dict[str, Any]:
    """The forecast as JSON; times in seconds from the start."""
    return {
        "happenings": [
            {
                "at": each.at,
                "rule": each.rule,
                "event": each.event,
                "kind": each.kind,
                "what": each.what,
                "devices": list(each.devices),
            }
            for each in forecast.happenings
        ],
        "waiting": [{"rule": rule, "for": why} for rule, why in forecast.waiting],
        "notForThisNode": list(forecast.elsewhere),
        "withoutDevice": list(forecast.without_device),
    }


def show(forecast: Forecast, until: float) -> None:
    """Print the forecast."""
    print(f"\nfaults in the first {clock(until)}:" + ("" if forecast.happenings else " none"))
    common.print_first(("AT", "RULE", "EVENT", "DEVICES", "WHAT"), _row, forecast.happenings)
    for rule, why in forecast.waiting:
        print(f"  {rule} {why}")
    if forecast.elsewhere:
        print(f"  not for this node: {', '.join(forecast.elsewhere)}")
    if forecast.without_device:
        print(f"  without a device here: {', '.join(forecast.without_device)}")


def _row(each: ForecastEvent) -> tuple[str, ...]:
    return (clock(each.at), each.rule, each.event, _devices(each.devices), each.what)


def clock(seconds: float) -> str:
    """A duration for people: `1h02m03s`, `4m05s`, `7.5s`."""
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m{whole % 60:02d}s"
    if whole >= 60:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{round(seconds, 1):g}s"


def _devices(devices: tuple[str, ...]) -> str:
    few = ", ".join(devices[:3])
    return f"{few} and {len(devices) - 3} more" if len(devices) > 3 else few or "-"
