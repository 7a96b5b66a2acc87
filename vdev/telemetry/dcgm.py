"""NVIDIA's devices as dcgm-exporter writes them (NVIDIA/dcgm-exporter d5e5f51, etc/default-counters.csv and
internal/pkg/rendermetrics/render_metrics.go).

Each MIG instance has its own lines, as under the exporter's default of `-d f`, with the sensors of its device where it
has none of its own. DCGM has no utilization of an instance in percent. A lost device has only the line of its Xid. A
device that several containers have has a line for each of them.
"""

from ..model.device import bus_id
from ..model.geometry import PIN, instance_id
from .exporters import Exporter, Labels, Values, table
from .sensors import DeviceInfo, MeasuredDevice, User

DRIVER = "580.95.05"  # without the attribute driverVersion
_TENSOR = 0.65  # time in which the tensor cores are active, as a fraction of the load
METRICS = table("dcgm.csv")


def _values(it: MeasuredDevice) -> Values:
    own, whole = it.own, it.whole
    if whole.lost:
        return {"xid": whole.xid}
    memory_c = whole.memory_temperature_c
    values: dict[str, float | None] = {
        "zero": 0,
        "sm_clock": whole.sm_clock_mhz,
        "memory_clock": whole.memory_clock_mhz,
        "memory_temperature": None if memory_c is None else round(memory_c),
        "temperature": round(whole.temperature_c),
        "power": whole.power_w,
        "energy_mj": whole.energy_mj,
        "replays": whole.pcie_replays,
        "xid": whole.xid,
        "free": own.memory_free_mib,
        "used": own.memory_used_mib,
        "reserved": own.memory_reserved_mib,
        "corrected": whole.ecc_corrected,
        "uncorrected": whole.ecc_uncorrected,
        "throttle": int(whole.throttle),
        "remapped": whole.remapped_rows,
        "remap_failed": int(whole.remap_failed),
        "nvlink_mb": whole.nvlink_mb,
        "busy_ratio": own.gpu_percent / 100,
        "tensor_ratio": own.gpu_percent * _TENSOR / 100,
        "copy_ratio": own.copy_percent / 100,
        "sent": round(whole.pcie_tx_bytes_s),
        "received": round(whole.pcie_rx_bytes_s),
    }
    if not it.info.device.is_partition:
        values |= {
            "utilization": round(own.gpu_percent),
            "copy": round(own.copy_percent),
            "encoder": round(own.encoder_percent),
            "decoder": round(own.decoder_percent),
        }
    return values


def _labels(info: DeviceInfo, user: User | None, node: str, hostname_label: str) -> Labels:
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


def _user_labels(user: User, info: DeviceInfo) -> Labels:
    pod = (("namespace", user.namespace), ("pod", user.pod))
    if not user.claim:
        return (("container", user.container), *pod)
    device = info.device
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


EXPORTER = Exporter(METRICS, _values, _labels)
