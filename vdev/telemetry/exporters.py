"""What an exporter shows: a table of metrics, their values, and the labels of a device.

The tables are files beside this one, with a line for each metric: its name, type and help, which value it shows, and
labels that it adds to those of the device.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from .sensors import Fixture, MeasuredDevice

Labels = tuple[tuple[str, str], ...]
Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of an exporter's table. `type` is counter or gauge; `value` is the name of what it shows.

    Rows of one name stand together; they differ in `labels`, which are added to those of the device.
    """

    name: str
    type: str
    help: str
    value: str
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter of one maker.

    `values` are those of a device, by the names that the table uses; what is missing or None is left out. Floats are
    written with six digits after the point, as DCGM's exporter does, and integers as they are. `labels` are called with
    a device, the node's name and the label for it, and yield the labels of the device once for each container that has
    it. With `sorts_labels` a line has all labels in the order of their names.
    """

    metrics: Sequence[Metric]
    values: Callable[[MeasuredDevice], Values]
    labels: Callable[[Fixture, str, str], Iterator[Labels]]
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
        "healthy": int(it.fixture.health.healthy),
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


def _labels(fixture: Fixture, node: str, _hostname_label: str) -> Iterator[Labels]:
    """The labels of a device, once for each container that has it; without any, those are empty."""
    device = fixture.device
    fixed = (
        ("device", device.id),
        ("entry", device.raw.entry),
        ("index", device.ordinal),
        ("profile", device.profile),
        ("resource", fixture.resource),
        ("node", node),
    )
    for user in fixture.users or (None,):
        names = (user.container, user.namespace, user.pod) if user else ("", "", "")
        yield (*fixed, *zip(("container", "namespace", "pod"), names, strict=True))


EXPORTER = Exporter(METRICS, _values, _labels)
