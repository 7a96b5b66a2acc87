"""NVIDIA's devices as dcgm-exporter writes them (NVIDIA/dcgm-exporter d5e5f51, etc/default-counters.csv and
internal/pkg/rendermetrics/render_metrics.go).

Of a device that is cut, each instance has the lines, as under the exporter's default of `-d f`: what is its own, and
its device's sensors. What DCGM does not know of an instance, which is its utilisation in percent, is left out. A
device that is lost has no line but that of its Xid. A device that several containers have has a line for each of them.
"""

from collections.abc import Iterator, Sequence

from ..model.device import bus_id
from ..model.geometry import PIN, instance_id
from .exporters import Exporter, Labels, Metric, Value
from .sensors import Fixture, User

DRIVER = "580.95.05"  # of devices whose attributes say nothing
_HUNDRED = 100.0
_TENSOR = 0.65  # of the time that the engines work


def _gauge(name: str, text: str, value: Value) -> Metric:
    return Metric(name, "gauge", text, lambda it: None if it.whole.lost else value(it))


def _counter(name: str, text: str, value: Value) -> Metric:
    return Metric(name, "counter", text, lambda it: None if it.whole.lost else value(it))


def _utilization(name: str, text: str, value: Value) -> Metric:
    return _gauge(name, text, lambda it: None if it.fixture.is_cut else value(it))


METRICS: Sequence[Metric] = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda it: it.whole.sm_clock_mhz),
    _gauge("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", lambda it: it.whole.memory_clock_mhz),
    _gauge(
        "DCGM_FI_DEV_MEMORY_TEMP",
        "Memory temperature (in C).",
        lambda it: None if it.whole.memory_temperature_c is None else round(it.whole.memory_temperature_c),
    ),
    _gauge("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda it: round(it.whole.temperature_c)),
    _gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda it: it.whole.power_w),
    _counter(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "Total energy consumption since boot (in mJ).",
        lambda it: it.whole.energy_mj,
    ),
    _counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", lambda it: it.whole.pcie_replays),
    _utilization("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda it: round(it.own.gpu_percent)),
    _utilization("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", lambda it: round(it.own.copy_percent)),
    _utilization("DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", lambda it: round(it.own.encoder_percent)),
    _utilization("DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", lambda it: round(it.own.decoder_percent)),
    Metric("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", lambda it: it.whole.xid),
    _gauge("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", lambda it: it.own.memory_free_mib),
    _gauge("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", lambda it: it.own.memory_used_mib),
    _gauge("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", lambda it: it.own.memory_reserved_mib),
    _counter(
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
        "Total number of single-bit volatile ECC errors.",
        lambda it: it.whole.ecc_corrected,
    ),
    _counter(
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "Total number of double-bit volatile ECC errors.",
        lambda it: it.whole.ecc_uncorrected,
    ),
    _counter(
        "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
        "Total number of single-bit persistent ECC errors.",
        lambda it: it.whole.ecc_corrected,
    ),
    _counter(
        "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
        "Total number of double-bit persistent ECC errors.",
        lambda it: it.whole.ecc_uncorrected,
    ),
    _gauge(
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "Current clock throttle reasons (bitmask of nvmlClocksThrottleReasons).",
        lambda it: int(it.whole.throttle),
    ),
    _counter(
        "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "Number of remapped rows for uncorrectable errors",
        lambda it: it.whole.remapped_rows,
    ),
    _counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors", lambda _it: 0),
    _gauge(
        "DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed", lambda it: int(it.whole.remap_failed)
    ),
    _counter(
        "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "Total number of NVLink bandwidth counters for all lanes.",
        lambda it: it.whole.nvlink_mb,
    ),
    _gauge("DCGM_FI_DEV_VGPU_LICENSE_STATUS", "vGPU License status", lambda _it: 0),
    _gauge(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "Ratio of time the graphics engine is active.",
        lambda it: it.own.gpu_percent / _HUNDRED,
    ),
    _gauge(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "Ratio of cycles the tensor (HMMA) pipe is active.",
        lambda it: it.own.gpu_percent * _TENSOR / _HUNDRED,
    ),
    _gauge(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "Ratio of cycles the device memory interface is active sending or receiving data.",
        lambda it: it.own.copy_percent / _HUNDRED,
    ),
    _gauge(
        "DCGM_FI_PROF_PCIE_TX_BYTES",
        "The rate of data transmitted over the PCIe bus - including both protocol headers and data payloads - in bytes "
        "per second.",
        lambda it: round(it.whole.pcie_tx_bytes_s),
    ),
    _gauge(
        "DCGM_FI_PROF_PCIE_RX_BYTES",
        "The rate of data received over the PCIe bus - including both protocol headers and data payloads - in bytes "
        "per second.",
        lambda it: round(it.whole.pcie_rx_bytes_s),
    ),
)


def _labels(fixture: Fixture, node: str, hostname_label: str) -> Iterator[Labels]:
    """The labels of a device, once for each container that has it."""
    fixed = _of_device(fixture, node, hostname_label)
    for user in fixture.users or (None,):
        yield (*fixed, *_of_user(user, fixture)) if user else fixed


def _of_device(fixture: Fixture, node: str, hostname_label: str) -> Labels:
    device, raw = fixture.device, fixture.device.raw
    instance: Labels = ()
    if device.is_partition:
        profile = device.profile.partition(PIN)[0]
        instance = (("GPU_I_PROFILE", profile), ("GPU_I_ID", str(instance_id(fixture.slices, device.slices))))
    return (
        ("gpu", str(fixture.number)),
        ("UUID", raw.id),
        ("pci_bus_id", f"0000{bus_id(raw, fixture.number)}".upper()),
        ("device", f"nvidia{fixture.number}"),
        ("modelName", raw.attributes.get("model", raw.entry)),
        *instance,
        (hostname_label, node),
        ("DCGM_FI_DRIVER_VERSION", raw.attributes.get("driverVersion", DRIVER)),
    )


def _of_user(user: User, fixture: Fixture) -> Labels:
    pod = (("namespace", user.namespace), ("pod", user.pod))
    if not user.claim:
        return (("container", user.container), *pod)
    device = fixture.device
    found = [
        ("container", user.container),
        ("dra_claim_name", user.claim),
        ("dra_claim_namespace", user.namespace),
        ("dra_device_name", user.name),
        ("dra_driver_name", user.driver),
        ("dra_pool_name", user.pool),
        *pod,
    ]
    if device.is_partition:
        found += [("dra_mig_device_uuid", device.id), ("dra_mig_profile", device.profile.partition(PIN)[0])]
    return tuple(sorted(found))


EXPORTER = Exporter(METRICS, _labels)
