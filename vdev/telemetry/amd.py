"""AMD's devices as AMD's device-metrics-exporter writes them (ROCm/device-metrics-exporter afd0fe81,
pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go and docs/configuration/metricslist.md), under its default names.

Labels are sorted by name, all types are gauges. Of a device that is cut only the first partition has the sensors of the
device; the power of the others is 0, and what else they have no sensor of is left out, as the exporter's list says.
"""

import hashlib
import uuid
from collections.abc import Iterator, Sequence

from ..dra.attributes import DRIVER_VERSION
from ..model.geometry import PIN
from .exporters import Exporter, Labels, Metric, Value
from .sensors import Fixture, MeasuredDevice, User
from .simulation import Throttle

NAMESPACE = uuid.UUID("7eff74a0-0000-5000-808f-7e20764e2714")  # of numbers made here; must never change
_CARDS = {"0x74a1": "102-G30211-0C", "0x74a5": "102-G30212-0C"}  # the exporter's own board names, by PCI device id
SPEEDS = {3: 8, 4: 16, 5: 32, 6: 64}  # GT/s by generation of PCI Express
_BLOCKS = (
    *("sdma", "gfx", "mmhub", "athub", "bif", "hdp", "xgmi_wafl", "df", "smn", "sem", "mp0", "mp1", "fuse"),
    *("umc", "mca", "vcn", "jpeg", "ih", "mpio"),
)
_MEMORY_BLOCK = "umc"
GTT = 128 * 1024  # MB that the host lends
_NOBODY = User("", "", "")


def _first(it: MeasuredDevice) -> bool:
    """Whether it has the sensors of the whole device."""
    return not it.fixture.is_cut or it.fixture.device.part == 0


def _gauge(name: str, text: str, value: Value, more: Labels = ()) -> Metric:
    """Of a device that is lost, nothing but its health and its number is known."""
    return Metric(name, "gauge", text, lambda it: None if it.whole.lost else value(it), more)


def _sensor(name: str, text: str, value: Value, more: Labels = (), *, otherwise: float | None = None) -> Metric:
    """What the first partition alone has of a device that is cut."""
    return _gauge(name, text, lambda it: value(it) if _first(it) else otherwise, more)


def _link(number: int, name: str, text: str) -> Metric:
    def value(it: MeasuredDevice) -> float | None:
        links, total = it.fixture.physics.links, it.whole.nvlink_mb
        return None if total is None or number >= links else total * 1000 // (2 * links)

    return _sensor(name, text, value, (("link_index", str(number)),))


def _ecc(word: str, block: str) -> Metric:
    text = f"{'Correctable' if word == 'correct' else 'Uncorrectable'} error count in {block.upper()} block"

    def value(it: MeasuredDevice) -> float:
        counted = it.whole.ecc_corrected if word == "correct" else it.whole.ecc_uncorrected
        return counted if block == _MEMORY_BLOCK else 0

    return _sensor(f"gpu_ecc_{word}_{block}", text, value, otherwise=0)


def _clock(number: int, kind: str, name: str, text: str, value: Value) -> Metric:
    return _sensor(name, text, value, (("clock_index", str(number)), ("clock_type", kind)))


_NOW, _LEAST, _MOST = (f"List of current GPU {word}clock frequencies in MHz" for word in ("", "min ", "max "))

METRICS: Sequence[Metric] = (
    Metric(
        "gpu_health",
        "gauge",
        "Health of the GPU (0 = Unhealthy | 1 = Healthy)",
        lambda it: int(it.fixture.health.healthy),
    ),
    _sensor("gpu_package_power", "Current socket power in Watts", lambda it: round(it.whole.power_w), otherwise=0),
    _sensor(
        "gpu_average_package_power", "Average socket power in Watts", lambda it: round(it.whole.power_w), otherwise=0
    ),
    _sensor("gpu_power_usage", "GPU Power usage in Watts", lambda it: round(it.whole.power_w), otherwise=0),
    _sensor("gpu_edge_temperature", "Current edge temperature in Celsius", lambda it: round(it.whole.temperature_c)),
    _sensor(
        "gpu_junction_temperature",
        "Current junction/hotspot temperature in Celsius",
        lambda it: round(it.whole.temperature_c),
    ),
    _sensor(
        "gpu_memory_temperature",
        "Current memory temperature in Celsius",
        lambda it: round(it.whole.memory_temperature_c or it.whole.temperature_c),
    ),
    _sensor(
        "gpu_hbm_temperature",
        "List of current HBM temperatures in Celsius",
        lambda it: None if it.whole.memory_temperature_c is None else round(it.whole.memory_temperature_c),
        (("hbm_index", "0"),),
    ),
    _sensor("gpu_gfx_activity", "Graphics engine usage in Percentage (0-100)", lambda it: round(it.whole.gpu_percent)),
    _sensor("gpu_umc_activity", "Memory engine usage in Percentage (0-100)", lambda it: round(it.whole.copy_percent)),
    _sensor(
        "gpu_mma_activity",
        "Average MultiMedia (MM) engine usage in Percentage (0-100)",
        lambda it: round(it.whole.decoder_percent),
    ),
    _sensor(
        "gpu_vcn_activity",
        "List of Video Core Next (VCN) encode/decode usage in percentage",
        lambda it: round(max(it.whole.encoder_percent, it.whole.decoder_percent)),
        (("vcn_index", "0"),),
    ),
    _gauge(
        "gpu_gfx_busy_instantaneous",
        "Gfx busy instantaneous per accelerated compute processor(xcp) per compute core (xcc), as per partitioning of "
        "the system",
        lambda it: round(it.own.gpu_percent),
        (("xcc_index", "0"),),
    ),
    _clock(0, "system", "gpu_clock", _NOW, lambda it: it.whole.sm_clock_mhz),
    _clock(8, "memory", "gpu_clock", _NOW, lambda it: it.whole.memory_clock_mhz),
    _clock(0, "system", "gpu_min_clock", _LEAST, lambda it: round(it.fixture.physics.idle_clock)),
    _clock(8, "memory", "gpu_min_clock", _LEAST, lambda it: round(it.fixture.physics.idle_memory_clock)),
    _clock(0, "system", "gpu_max_clock", _MOST, lambda it: round(it.fixture.physics.peak_clock)),
    _clock(8, "memory", "gpu_max_clock", _MOST, lambda it: round(it.fixture.physics.peak_memory_clock)),
    _sensor(
        "gpu_energy_consumed", "Accumulated energy consumed by the GPU in uJ", lambda it: it.whole.energy_mj * 1000
    ),
    _gauge("gpu_total_vram", "Total VRAM memory of the GPU (in MB)", lambda it: it.own.memory_total_mib),
    _gauge(
        "gpu_used_vram",
        "Used VRAM memory of the GPU (in MB)",
        lambda it: it.own.memory_used_mib + it.own.memory_reserved_mib,
    ),
    _gauge("gpu_free_vram", "Free VRAM memory of the GPU (in MB)", lambda it: it.own.memory_free_mib),
    _sensor(
        "gpu_total_visible_vram",
        "Total visible VRAM memory of the GPU (in MB)",
        lambda it: it.own.memory_total_mib,
        otherwise=0,
    ),
    _sensor(
        "gpu_used_visible_vram",
        "Used visible VRAM memory of the GPU (in MB)",
        lambda it: it.own.memory_used_mib + it.own.memory_reserved_mib,
        otherwise=0,
    ),
    _sensor(
        "gpu_free_visible_vram",
        "Free visible VRAM memory of the GPU (in MB)",
        lambda it: it.own.memory_free_mib,
        otherwise=0,
    ),
    _sensor(
        "gpu_total_gtt", "Total graphics translation table memory of the GPU (in MB)", lambda _it: GTT, otherwise=0
    ),
    _gauge("gpu_used_gtt", "Used graphics translation table memory of the GPU (in MB)", lambda _it: 0),
    _sensor("gpu_free_gtt", "Free graphics translation table memory of the GPU (in MB)", lambda _it: GTT, otherwise=0),
    _sensor("gpu_ecc_correct_total", "Total Correctable error count", lambda it: it.whole.ecc_corrected, otherwise=0),
    _sensor(
        "gpu_ecc_uncorrect_total", "Total Uncorrectable error count", lambda it: it.whole.ecc_uncorrected, otherwise=0
    ),
    _gauge("gpu_ecc_deferred_total", "Total accumulated deferred ECC errors across all GPU blocks", lambda _it: 0),
    *(_ecc(word, block) for word in ("correct", "uncorrect") for block in _BLOCKS),
    _sensor("pcie_speed", "Current PCIe speed in GT/s", lambda it: SPEEDS.get(it.fixture.physics.pcie_generation, 32)),
    _sensor(
        "pcie_max_speed", "Maximum PCIe speed in GT/s", lambda it: SPEEDS.get(it.fixture.physics.pcie_generation, 32)
    ),
    _sensor(
        "pcie_bandwidth",
        "Current PCIe bandwidth in Mb/s",
        lambda it: round((it.whole.pcie_rx_bytes_s + it.whole.pcie_tx_bytes_s) * 8 / 1e6),
    ),
    _sensor("pcie_replay_count", "Total number of PCIe replays", lambda it: it.whole.pcie_replays),
    _sensor("pcie_recovery_count", "Total number of PCIe recoveries", lambda _it: 0),
    _sensor("pcie_replay_rollover_count", "PCIe replay accumulated count", lambda _it: 0),
    _sensor("pcie_nack_sent_count", "PCIe NAK sent accumulated count", lambda it: it.whole.pcie_replays),
    _sensor("pcie_nack_received_count", "PCIe NAK received accumulated count", lambda it: it.whole.pcie_replays),
    *(_link(number, "gpu_xgmi_link_rx", "Accumulated XGMI Link Data Read in KB") for number in range(8)),
    *(_link(number, "gpu_xgmi_link_tx", "Accumulated XGMI Link Data Write in KB") for number in range(8)),
    _sensor(
        "gpu_violation_socket_thermal_residency_percentage",
        "Socket Thermal Residency Percentage Violation Counter",
        lambda it: 100 if it.whole.throttle & Throttle.SOFTWARE_THERMAL else 0,
    ),
)


def _labels(fixture: Fixture, node: str, _hostname_label: str) -> Iterator[Labels]:
    """The labels of a device, once for each container that has it; without any, those are empty."""
    fixed = dict(_of_device(fixture, node))
    for user in fixture.users or (_NOBODY,):
        pod = {"container": user.container, "namespace": user.namespace, "pod": user.pod}
        yield tuple({**fixed, **pod}.items())


def _of_device(fixture: Fixture, node: str) -> Labels:
    device, raw = fixture.device, fixture.device.raw
    known = raw.attributes
    compute, _, memory = device.profile.partition(PIN)[0].partition("_")
    model = known.get("pciDeviceId", "").lower()
    return (
        ("card_model", known.get("cardModel", _CARDS.get(model, "N/A"))),
        ("card_series", known.get("cardSeries", f"{known.get('model', raw.entry)} OAM")),
        ("card_vendor", "AMD"),
        ("cluster_name", ""),
        ("deployment_mode", "baremetal"),
        ("driver_version", known.get("driverVersion", DRIVER_VERSION)),
        ("gpu_compute_partition_type", compute or "spx"),
        ("gpu_id", str(fixture.first + device.part)),
        ("gpu_memory_partition_type", memory or "nps1"),
        ("gpu_partition_id", str(device.part)),
        ("gpu_uuid", str(uuid.uuid5(NAMESPACE, device.id))),
        ("hostname", node),
        ("job_id", ""),
        ("job_partition", ""),
        ("job_user", ""),
        ("kfd_process_id", ""),
        ("serial_number", known.get("serialNumber", serial_number(raw.id))),
        ("vbios_version", known.get("vbiosVersion", "N/A")),
    )


def serial_number(raw: str) -> str:
    """One for a device of this id whose attributes give none."""
    return str(int(hashlib.sha256(raw.encode()).hexdigest()[:10], 16))


EXPORTER = Exporter(METRICS, _labels, sorts_labels=True)
