"""NVIDIA's devices as dcgm-exporter writes them (NVIDIA/dcgm-exporter d5e5f51, etc/default-counters.csv and
internal/pkg/rendermetrics/render_metrics.go).

Each MIG instance has its own lines, as with the exporter's default of `-d f`; sensors that it lacks are those of its
device. DCGM has no utilization of an instance in percent. The tensor cores are active for 0.65 of the time of the load.
A lost device has only the line of its Xid. A device that several containers share has a line for each.
"""

from ..model.device import bus_id
from ..model.geometry import PIN, instance_id
from .exporters import Exporter, Labels, Values, readings, table
from .simulation import DeviceInfo, MeasuredDevice, User

DRIVER = "580.95.05"  # without the attribute driverVersion
METRICS = table("dcgm.csv")


def _values(it: MeasuredDevice) -> Values:
    own = it.own
    if own.lost:
        return {"xid": own.xid}
    values = {**readings(own), "zero": 0}
    if not it.info.device.is_partition:
        utilization = own.gpu_percent, own.copy_percent, own.encoder_percent, own.decoder_percent
        values |= zip(("utilization", "copy", "encoder", "decoder"), utilization, strict=True)
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
