"""What an exporter is: a table of metrics, and functions for the values and labels of a device.

The tables are CSV files in this directory. Each line is a metric: name, type, help, the name of its value, and labels
in addition to those of the device. `EXPORTER` is the one for devices of other makers than NVIDIA and AMD.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from .sensors import DeviceInfo, MeasuredDevice, User

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


@dataclass(frozen=True, slots=True)
class Exporter:
    """The exporter of one maker."""

    metrics: Sequence[Metric]
    values: Callable[[MeasuredDevice], Values]
    """The values of a device by the names in the table. A metric without a value, or with None, is left out."""
    labels: Callable[[DeviceInfo, User | None, str, str], Labels]
    """The labels of a device for one container that has it, or None if none has it. The last arguments are the node's
    name and the label that has this name."""
    sorts_labels: bool = False


def table(name: str) -> tuple[Metric, ...]:
    text = resources.files(__package__).joinpath(name).read_text("utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(Metric(row["name"], row["type"], row["help"], row["value"], _pairs(row["labels"])) for row in rows)


def _pairs(text: str) -> Labels:
    return tuple((name, value) for name, _, value in (pair.partition("=") for pair in text.split()))


_MIB = 2**20
METRICS = table("others.csv")


def _values(it: MeasuredDevice) -> Values:
    own, whole = it.own, it.whole
    return {
        "healthy": int(it.info.health.healthy),
        "load": own.gpu_percent / 100,
        "memory_bytes": own.memory_total_mib * _MIB,
        "used_bytes": own.memory_used_mib * _MIB,
        "free_bytes": own.memory_free_mib * _MIB,
        "temperature": round(whole.temperature_c, 1),
        "power": whole.power_w,
        "energy": whole.energy_mj / 1000,
        "clock": whole.sm_clock_mhz * 1_000_000,
        "throttled": int(whole.throttle > 1),
        "received": whole.pcie_rx_bytes_s,
        "sent": whole.pcie_tx_bytes_s,
        "corrected": whole.ecc_corrected,
        "uncorrected": whole.ecc_uncorrected,
    }


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
