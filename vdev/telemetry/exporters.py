"""Defines exporters: a table of metrics, and functions for the values and labels of a device.

The tables are CSV files in this directory. Each line is a metric: name, type, help, value, scale, decimals, and labels
in addition to those of the device. The value is a sensor (a field of `SensorReading`), or another name that the
exporter's `values` have. `EXPORTER` is the one for devices of other makers than NVIDIA and AMD.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources

from .simulation import DeviceInfo, MeasuredDevice, SensorReading, Throttle, User

Labels = tuple[tuple[str, str], ...]
Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of an exporter's table. Rows with the same name are adjacent and differ in `labels`."""

    name: str
    type: str  # counter or gauge
    help: str
    value: str  # the key of its value in `Values`
    labels: Labels = ()  # in addition to those of the device
    scale: float = 1  # by which the value is multiplied
    decimals: int = 0

    def text(self, value: float) -> str:
        return f"{value * self.scale:.{self.decimals}f}"


@dataclass(frozen=True, slots=True)
class Exporter:
    """The exporter of one maker."""

    metrics: Sequence[Metric]
    values: Callable[[MeasuredDevice], Values]
    """The values of a device by the names in the table. A metric without a value, or with None, is left out."""
    labels: Callable[[DeviceInfo, User | None, str, str], Labels]
    """The labels of a device for one container that uses it, or for None if it is unused. The last arguments are the
    node's name and the label for it."""
    sorts_labels: bool = False


def table(name: str) -> tuple[Metric, ...]:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    return tuple(
        Metric(
            row["name"],
            row["type"],
            row["help"],
            row["value"],
            _pairs(row["labels"]),
            float(row["scale"] or 1),
            int(row["decimals"] or 0),
        )
        for row in csv.DictReader(text.splitlines())
    )


def _pairs(text: str) -> Labels:
    return tuple((name, value) for name, _, value in (pair.partition("=") for pair in text.split()))


_SENSORS = [each.name for each in fields(SensorReading)]


def readings(measured: SensorReading) -> dict[str, float | None]:
    """The values of all sensors by name."""
    return {name: getattr(measured, name) for name in _SENSORS}


METRICS = table("others.csv")


def _values(it: MeasuredDevice) -> Values:
    return {**readings(it.own), "healthy": it.info.health.healthy, "throttled": it.own.throttle > Throttle.IDLE}


def _labels(info: DeviceInfo, user: User | None, node: str, _hostname_label: str) -> Labels:
    device = info.device
    return (
        ("device", device.id),
        ("entry", device.raw.entry),
        ("index", device.ordinal),
        ("profile", device.profile),
        ("resource", info.resource),
        ("node", node),
        ("container", user.container if user else ""),
        ("namespace", user.namespace if user else ""),
        ("pod", user.pod if user else ""),
    )


EXPORTER = Exporter(METRICS, _values, _labels)
