"""What an exporter is: a table of metrics, and functions for the values and labels of a device.

The tables are CSV files in this directory. Each line is a metric: name, type, help, the name of its value, and labels
in addition to those of the device. `EXPORTER` is the one for devices of other makers than NVIDIA and AMD.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from .sensors import DeviceInfo, MeasuredDevice

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
    labels: Callable[[DeviceInfo, str, str], Iterator[Labels]]
    """The labels of a device, once for each container that has it. Arguments: the device, the node's name, and the
    label that has this name."""
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


def _labels(info: DeviceInfo, node: str, _hostname_label: str) -> Iterator[Labels]:
    """The labels for each container that has the device; with empty names if none has it."""
    device = info.device
    fixed = (
        ("device", device.id),
        ("entry", device.raw.entry),
        ("index", device.ordinal),
        ("profile", device.profile),
        ("resource", info.resource),
        ("node", node),
    )
    for user in info.users or (None,):
        names = (user.container, user.namespace, user.pod) if user else ("", "", "")
        yield (*fixed, *zip(("container", "namespace", "pod"), names, strict=True))


EXPORTER = Exporter(METRICS, _values, _labels)
