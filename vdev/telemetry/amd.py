"""AMD's devices as AMD's device-metrics-exporter writes them (ROCm/device-metrics-exporter afd0fe81,
pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go and docs/configuration/metricslist.md), under its default names.

Labels are sorted by name, and all metrics are gauges. Only the first partition of a device has the device's sensors. As
the exporter's list of metrics says, the power and memory sizes of the other partitions are 0, and other sensors that
they lack are left out.
"""

import hashlib
import uuid
from collections.abc import Sequence

from ..dra.amd_devices import DRIVER_VERSION
from ..model.geometry import PIN
from .exporters import Exporter, Labels, Metric, Values, readings, table
from .simulation import DeviceInfo, MeasuredDevice, Throttle, User

NAMESPACE = uuid.UUID("7eff74a0-0000-5000-808f-7e20764e2714")  # of generated UUIDs; must never change
_CARDS = {"0x74a1": "102-G30211-0C", "0x74a5": "102-G30212-0C"}  # the exporter's own board names, by PCI device id
SPEEDS = {3: 8, 4: 16, 5: 32, 6: 64}  # GT/s by generation of PCI Express
_BLOCKS = (
    *("sdma", "gfx", "mmhub", "athub", "bif", "hdp", "xgmi_wafl", "df", "smn", "sem", "mp0", "mp1", "fuse"),
    *("umc", "mca", "vcn", "jpeg", "ih", "mpio"),
)
_MEMORY_BLOCK = "umc"
GTT = 128 * 1024  # MB of host memory that the GPU can use
_LINKS = 8

METRICS: Sequence[Metric] = (
    *table("amd.csv"),
    *(
        Metric(
            f"gpu_ecc_{word}_{block}",
            "gauge",
            f"{word.title()}able error count in {block.upper()} block",
            f"ecc_{word}ed" if block == _MEMORY_BLOCK else "none",
        )
        for word in ("correct", "uncorrect")
        for block in _BLOCKS
    ),
    *(
        Metric(f"gpu_xgmi_link_{way}", "gauge", f"Accumulated XGMI Link Data {word} in KB", f"link_{number}", labels)
        for way, word in (("rx", "Read"), ("tx", "Write"))
        for number in range(_LINKS)
        for labels in [(("link_index", str(number)),)]
    ),
)


def _values(it: MeasuredDevice) -> Values:
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
        "none": 0,
    }
    if it.info.device.is_partition and it.info.device.part > 0:
        return {**of_partition, **dict.fromkeys(of_device, 0)}
    linked = None if whole.nvlink_mb is None else whole.nvlink_mb * 1000 // (2 * physics.links)
    return {
        **readings(whole),
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


def _labels(info: DeviceInfo, user: User | None, node: str, _hostname_label: str) -> Labels:
    device, raw = info.device, info.device.raw
    known = raw.attributes
    compute, _, memory = device.profile.partition(PIN)[0].partition("_")
    model = known.get("pciDeviceId", "").lower()
    return (
        ("card_model", known.get("cardModel", _CARDS.get(model, "N/A"))),
        ("card_series", known.get("cardSeries", f"{known.get('model', raw.entry)} OAM")),
        ("card_vendor", "AMD"),
        ("cluster_name", ""),
        ("container", user.container if user else ""),
        ("deployment_mode", "baremetal"),
        ("driver_version", known.get("driverVersion", DRIVER_VERSION)),
        ("gpu_compute_partition_type", compute or "spx"),
        ("gpu_id", str(info.first + device.part)),
        ("gpu_memory_partition_type", memory or "nps1"),
        ("gpu_partition_id", str(device.part)),
        ("gpu_uuid", str(uuid.uuid5(NAMESPACE, device.id))),
        ("hostname", node),
        ("job_id", ""),
        ("job_partition", ""),
        ("job_user", ""),
        ("kfd_process_id", ""),
        ("namespace", user.namespace if user else ""),
        ("pod", user.pod if user else ""),
        ("serial_number", known.get("serialNumber", serial_number(raw.id))),
        ("vbios_version", known.get("vbiosVersion", "N/A")),
    )


def serial_number(raw: str) -> str:
    """A serial number derived from the id, for a device without the attribute serialNumber."""
    return str(int(hashlib.sha256(raw.encode()).hexdigest()[:10], 16))


EXPORTER = Exporter(METRICS, _values, _labels, sorts_labels=True)
