"""The metrics of devices as their vendors' exporters write them, in Prometheus' text format 0.0.4.

The tables are CSV files in this directory. Each line is a metric: name, type, help, value, scale, decimals, and labels
in addition to those of the device. The value is a sensor (a field of `SensorReading`), or another name that the
exporter's `values` have.

Prometheus' client library cannot write them, because it sorts labels and appends _total to the names of counters.
"""

import csv
import hashlib
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import NamedTuple

from ..dra.amd_devices import DRIVER_VERSION
from ..model.device import bus_id
from ..model.geometry import PIN, instance_id
from ..model.telemetry import SmiTool
from ..planning.in_use import Use
from .simulation import DeviceInfo, MeasuredDevice, SensorReading, Throttle
from .tool_data import packaged

Labels = tuple[tuple[str, str], ...]
Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Metric:
    """A row of an exporter's table. Rows with the same name are adjacent and differ in `labels`."""

    name: str
    type: str  # counter or gauge
    help: str
    value: str  # the key of its value in `Values`
    scale: float  # by which the value is multiplied
    decimals: int
    labels: Labels  # in addition to those of the device


@dataclass(frozen=True, slots=True)
class Exporter:
    metrics: Sequence[Metric]
    values: Callable[[MeasuredDevice], Values]
    """The values of a device by the names in the table. A metric without a value, or with None, is left out."""
    labels: Callable[[DeviceInfo, Use | None, str, str], Labels]
    """The labels of a device for one container that uses it, or for None if it is unused. The last arguments are the
    node's name and the label for it."""
    sorts_labels: bool = False


def _table(name: str) -> tuple[Metric, ...]:
    _head, *rows = csv.reader(packaged(name).splitlines())
    return tuple(
        Metric(name, type_, help_, value, float(scale or 1), int(decimals or 0), _pairs(labels))
        for name, type_, help_, value, scale, decimals, labels in rows
    )


def _pairs(text: str) -> Labels:
    return tuple((name, value) for name, _, value in (pair.partition("=") for pair in text.split()))


def _readings(measured: SensorReading) -> dict[str, float | None]:
    """Return the values of all sensors by name."""
    return {each.name: getattr(measured, each.name) for each in fields(measured)}


def _container_labels(user: Use | None) -> Labels:
    """The container and the pod; empty values if the device is unused."""
    namespace, _, pod = user.pod.partition("/") if user else ("", "", "")
    return (("container", user.container if user else ""), ("namespace", namespace), ("pod", pod))


# --- NVIDIA -----------------------------------------------------------------------------------------------------------

# As dcgm-exporter writes them (NVIDIA/dcgm-exporter d5e5f51, etc/default-counters.csv and
# internal/pkg/rendermetrics/render_metrics.go). Each MIG instance has its own lines, as with the exporter's default of
# `-d f`; sensors that it lacks are those of its device. The tensor cores are active for 0.65 of the time of the load. A
# device that several containers share has a line for each.

DRIVER = "580.95.05"  # without the attribute driverVersion


def _nvidia_values(it: MeasuredDevice) -> Values:
    """Return the values for DCGM's metrics: no utilization for MIG instances, and only the Xid for a lost device."""
    own = it.own
    if own.lost:
        return {"xid": own.xid}
    values = {**_readings(own), "zero": 0}
    if not it.info.device.is_partition:
        utilization = own.gpu_percent, own.copy_percent, own.encoder_percent, own.decoder_percent
        values |= zip(("utilization", "copy", "encoder", "decoder"), utilization, strict=True)
    return values


def _nvidia_labels(info: DeviceInfo, user: Use | None, node: str, hostname_label: str) -> Labels:
    device, raw = info.device, info.device.raw
    instance: Labels = ()
    if device.is_partition:
        profile = device.profile.partition(PIN)[0]
        instance = (("GPU_I_PROFILE", profile), ("GPU_I_ID", str(instance_id(info.slices, device.slices))))
    return (
        ("gpu", str(info.number)),
        ("UUID", raw.id),
        ("pci_bus_id", f"0000{bus_id(raw, info.number)}".upper()),
        ("device", f"nvidia{info.number}"),
        ("modelName", raw.attributes.get("model", raw.entry)),
        *instance,
        (hostname_label, node),
        ("DCGM_FI_DRIVER_VERSION", raw.attributes.get("driverVersion", DRIVER)),
        *(_user_labels(user, info) if user else ()),
    )


def _user_labels(user: Use, info: DeviceInfo) -> Labels:
    container, *pod = _container_labels(user)
    if not user.claim:
        return (container, *pod)
    device = info.device
    found = [
        container,
        ("dra_claim_name", user.claim),
        ("dra_claim_namespace", user.pod.partition("/")[0]),
        ("dra_device_name", user.device),
        ("dra_driver_name", user.driver),
        ("dra_pool_name", user.pool),
        *pod,
    ]
    if device.is_partition:
        found += [("dra_mig_device_uuid", device.id), ("dra_mig_profile", device.profile.partition(PIN)[0])]
    return tuple(sorted(found))


# --- AMD --------------------------------------------------------------------------------------------------------------

# As AMD's device-metrics-exporter writes them (ROCm/device-metrics-exporter afd0fe81,
# pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go and docs/configuration/metricslist.md), under its default names.
#
# Labels are sorted by name, and all metrics are gauges. Only the first partition of a device has the device's sensors.
# As the exporter's list of metrics says, the power and memory sizes of the other partitions are 0, and other sensors
# that they lack are left out.

NAMESPACE = uuid.UUID("7eff74a0-0000-5000-808f-7e20764e2714")  # of generated UUIDs; must never change
_CARDS = {"0x74a1": "102-G30211-0C", "0x74a5": "102-G30212-0C"}  # the exporter's own board names, by PCI device id
SPEEDS = {3: 8, 4: 16, 5: 32, 6: 64}  # GT/s by generation of PCI Express
GTT = 128 * 1024  # MB of host memory that the GPU can use
_LINKS = 8  # of a device, in the table
_UNKNOWN = ("cluster_name", "job_id", "job_partition", "job_user", "kfd_process_id")  # labels that are empty


def _amd_values(it: MeasuredDevice) -> Values:
    own, whole, physics = it.own, it.whole, it.info.physics
    health: Values = {"healthy": it.info.health.healthy}
    if whole.lost:
        return health
    used = own.memory_used_mib + own.memory_reserved_mib
    of_partition: Values = {
        **health,
        "zero": 0,
        "busy": own.gpu_percent,
        "total": own.memory_total_mib,
        "used": used,
        "free": own.memory_free_mib,
    }
    of_device: Values = {
        "power_w": whole.power_w,
        "visible_total": own.memory_total_mib,
        "visible_used": used,
        "visible_free": own.memory_free_mib,
        "gtt": GTT,
        "free_gtt": GTT,
        "ecc_corrected": whole.ecc_corrected,
        "ecc_uncorrected": whole.ecc_uncorrected,
    }
    if it.info.device.is_partition and it.info.device.part > 0:
        return {**of_partition, **dict.fromkeys(of_device, 0)}
    linked = None if whole.nvlink_mb is None else whole.nvlink_mb * 1000 // (2 * physics.links)
    return {
        **_readings(whole),
        **of_partition,
        **of_device,
        "memory_temperature": whole.memory_temperature_c or whole.temperature_c,
        "video": max(whole.encoder_percent, whole.decoder_percent),
        "min_clock": physics.idle_clock,
        "min_memory_clock": physics.idle_memory_clock,
        "max_clock": physics.peak_clock,
        "max_memory_clock": physics.peak_memory_clock,
        "speed": SPEEDS.get(physics.pcie_generation, 32),
        "bandwidth": (whole.pcie_rx_bytes_s + whole.pcie_tx_bytes_s) * 8 / 1e6,
        "nothing": 0,
        "thermal": 100 if whole.throttle & Throttle.SOFTWARE_THERMAL else 0,
        **{f"link_{number}": linked for number in range(min(_LINKS, physics.links))},
    }


def _amd_labels(info: DeviceInfo, user: Use | None, node: str, _hostname_label: str) -> Labels:
    device, raw = info.device, info.device.raw
    known = raw.attributes
    compute, _, memory = device.profile.partition(PIN)[0].partition("_")
    model = known.get("pciDeviceId", "").lower()
    return (
        ("card_model", known.get("cardModel", _CARDS.get(model, "N/A"))),
        ("card_series", known.get("cardSeries", f"{known.get('model', raw.entry)} OAM")),
        ("card_vendor", "AMD"),
        *((name, "") for name in _UNKNOWN),
        *_container_labels(user),
        ("deployment_mode", "baremetal"),
        ("driver_version", known.get("driverVersion", DRIVER_VERSION)),
        ("gpu_compute_partition_type", compute or "spx"),
        ("gpu_id", str(info.first + device.part)),
        ("gpu_memory_partition_type", memory or "nps1"),
        ("gpu_partition_id", str(device.part)),
        ("gpu_uuid", str(uuid.uuid5(NAMESPACE, device.id))),
        ("hostname", node),
        ("serial_number", known.get("serialNumber", serial_number(raw.id))),
        ("vbios_version", known.get("vbiosVersion", "N/A")),
    )


def serial_number(raw: str) -> str:
    """A serial number derived from the id, for a device without the attribute serialNumber."""
    return str(int(hashlib.sha256(raw.encode()).hexdigest()[:10], 16))


# --- other vendors ----------------------------------------------------------------------------------------------------


def _other_values(it: MeasuredDevice) -> Values:
    return {**_readings(it.own), "healthy": it.info.health.healthy, "throttled": it.own.throttle > Throttle.IDLE}


def _other_labels(info: DeviceInfo, user: Use | None, node: str, _hostname_label: str) -> Labels:
    device = info.device
    return (
        ("device", device.id),
        ("entry", device.raw.entry),
        ("index", device.ordinal),
        ("profile", device.profile),
        ("resource", info.resource),
        ("node", node),
        *_container_labels(user),
    )


# --- the page ---------------------------------------------------------------------------------------------------------


EXPORTERS: Mapping[SmiTool | None, Exporter] = {
    SmiTool.NVIDIA: Exporter(_table("dcgm.csv"), _nvidia_values, _nvidia_labels),
    SmiTool.AMD: Exporter(_table("amd.csv"), _amd_values, _amd_labels, sorts_labels=True),
    None: Exporter(_table("others.csv"), _other_values, _other_labels),
}


class _Row(NamedTuple):
    """The values of a device for one container."""

    values: Values
    labels: Labels
    text: str  # the labels as text, which most metrics share


def page(
    nodes: Iterable[tuple[str, Iterable[MeasuredDevice]]], hostname_label: str, *, node_label: bool = False
) -> str:
    """Return the metrics of these nodes. With `node_label`, each line has the label `node`."""
    rows: dict[SmiTool | None, list[_Row]] = {vendor: [] for vendor in EXPORTERS}
    amd_nodes = []
    for node, measured in nodes:
        more: Labels = (("node", node),) if node_label else ()
        devices = list(measured)
        for each in devices:
            vendor = each.info.vendor
            exporter, users = EXPORTERS[vendor], each.info.users or (None,)
            values = exporter.values(each)
            # A container may have several claims on the device. If the labels do not name claims, it gets one line.
            for labels in dict.fromkeys(exporter.labels(each.info, user, node, hostname_label) for user in users):
                whole = labels if vendor is None else (*labels, *more)
                rows[vendor].append(_Row(values, whole, _text(exporter, whole)))
        if amd_devices := {each.info.device.raw.id for each in devices if each.info.vendor is SmiTool.AMD}:
            text = _text(EXPORTERS[SmiTool.AMD], (("hostname", node), *more))
            amd_nodes.append(f"gpu_nodes_total{{{text}}} {len(amd_devices)}\n")
    families = [family for vendor, exporter in EXPORTERS.items() for family in _families(exporter, rows[vendor])]
    if amd_nodes:
        families.append(_family("gpu_nodes_total", "gauge", "Number of GPUs in the node", amd_nodes))
    return "".join(families)


def escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _families(exporter: Exporter, rows: Sequence[_Row]) -> Iterator[str]:
    for name, metrics in groupby(exporter.metrics, key=lambda metric: metric.name):
        lines = []
        for metric in metrics:
            for row in rows:
                value = row.values.get(metric.value)
                if value is not None:
                    text = _text(exporter, (*row.labels, *metric.labels)) if metric.labels else row.text
                    lines.append(f"{name}{{{text}}} {value * metric.scale:.{metric.decimals}f}\n")
        if lines:
            yield _family(name, metric.type, metric.help, lines)


def _family(name: str, type_: str, help_: str, lines: Iterable[str]) -> str:
    return f"# HELP {name} {help_}\n# TYPE {name} {type_}\n{''.join(lines)}"


def _text(exporter: Exporter, labels: Labels) -> str:
    ordered = sorted(labels) if exporter.sorts_labels else labels
    return ",".join(f'{name}="{escaped(value)}"' for name, value in ordered)
