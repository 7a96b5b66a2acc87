"""What an exporter shows: a table of metrics, and the labels of a device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .sensors import Fixture, MeasuredDevice

Labels = tuple[tuple[str, str], ...]
Value = Callable[[MeasuredDevice], float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of an exporter's table. `type` is counter or gauge; a `value` of None is left out.

    Floats are written with six digits after the point, as DCGM's exporter does, and integers as they are. Rows of one
    name stand together; they differ in `labels`, which are added to those of the device.
    """

    name: str
    type: str
    help: str
    value: Value
    labels: Labels = ()


@dataclass(frozen=True, slots=True)
class Exporter:
    """An exporter of one maker.

    `labels` are called with a device, the node's name and the label for it, and yield the labels of the device once for
    each container that has it. With `sorts_labels` a line has all labels in the order of their names.
    """

    metrics: Sequence[Metric]
    labels: Callable[[Fixture, str, str], Iterator[Labels]]
    sorts_labels: bool = False


_MIB = 2**20
_HUNDRED = 100.0
_MHZ = 1_000_000

METRICS: Sequence[Metric] = (
    Metric(
        "vdev_device_healthy",
        "gauge",
        "Whether the device works (1) or not (0)",
        lambda it: int(it.fixture.health.healthy),
    ),
    Metric(
        "vdev_device_utilization_ratio", "gauge", "Load of the device, 0 to 1", lambda it: it.own.gpu_percent / _HUNDRED
    ),
    Metric("vdev_device_memory_bytes", "gauge", "Memory of the device", lambda it: it.own.memory_total_mib * _MIB),
    Metric("vdev_device_memory_used_bytes", "gauge", "Memory in use", lambda it: it.own.memory_used_mib * _MIB),
    Metric("vdev_device_memory_free_bytes", "gauge", "Memory that is free", lambda it: it.own.memory_free_mib * _MIB),
    Metric("vdev_device_temperature_celsius", "gauge", "Temperature", lambda it: round(it.whole.temperature_c, 1)),
    Metric("vdev_device_power_watts", "gauge", "Power draw", lambda it: it.whole.power_w),
    Metric(
        "vdev_device_energy_joules_total", "counter", "Energy since vdev started", lambda it: it.whole.energy_mj / 1000
    ),
    Metric("vdev_device_clock_hertz", "gauge", "Clock of the compute units", lambda it: it.whole.sm_clock_mhz * _MHZ),
    Metric(
        "vdev_device_throttled",
        "gauge",
        "Whether heat lowers the clock (1) or not (0)",
        lambda it: int(it.whole.throttle > 1),
    ),
    Metric(
        "vdev_device_pcie_receive_bytes_per_second",
        "gauge",
        "Traffic to the device",
        lambda it: it.whole.pcie_rx_bytes_s,
    ),
    Metric(
        "vdev_device_pcie_transmit_bytes_per_second",
        "gauge",
        "Traffic from the device",
        lambda it: it.whole.pcie_tx_bytes_s,
    ),
    Metric(
        "vdev_device_memory_errors_total",
        "counter",
        "Errors of the memory since vdev started",
        lambda it: it.whole.ecc_corrected,
        (("corrected", "true"),),
    ),
    Metric(
        "vdev_device_memory_errors_total",
        "counter",
        "Errors of the memory since vdev started",
        lambda it: it.whole.ecc_uncorrected,
        (("corrected", "false"),),
    ),
)


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


EXPORTER = Exporter(METRICS, _labels)
