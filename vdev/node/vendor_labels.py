"""The devices that labels describe, and the labels of AMD, Intel and GKE. `nvidia_labels` has those of NVIDIA."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model.device import RawDevice, grouped
from ..model.entry import Entry, MigStrategy
from ..model.geometry import Profile
from ..model.names import domain_and_name
from ..model.spec import SharedItem, SharingKind, Spec
from ..planning.naming import name_of
from ..planning.resources import Inventory


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine in labels: its model (empty: unknown), and the Unix time of the start (None: no label)."""

    product: str = ""
    started_at: int | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """One physical device of a vendor. `parts` are its partitions, which may be empty; None: it is not partitioned."""

    entry: Entry
    domain: str
    raw: RawDevice
    parts: tuple[Profile, ...] | None = None

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.raw.attributes

    def pci(self, key: str) -> str:
        """The first four hexadecimal digits of an attribute such as the PCI class; empty without it."""
        return self.attributes.get(key, "").lower().removeprefix("0x")[:4]


NVIDIA = "nvidia.com"


def vendor_domain(entry: Entry) -> str:
    """The domain under which the vendor of the entry's virtual devices advertises them, or empty for real devices.

    Real devices have their vendors' labelers. Without a preset, it is the domain of the entry's own resource, except
    nvidia.com: nothing is known about such a device.
    """
    if entry.virtual is None:
        return ""
    if entry.is_nvidia:
        return NVIDIA
    domain = domain_and_name(entry.virtual.model.resource or entry.resource)[0]
    return "" if domain == NVIDIA else domain


def hardware(
    spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], inventory: Inventory
) -> Iterator[Hardware]:
    """The virtual devices that have a `vendor_domain`, in the order of the file."""
    devices = (device for each in inventory.resources.values() for device in each.by_device.values())
    listed = grouped((device.raw.id, device.profile) for device in devices if device.profile)
    for entry in spec.on_node(node):
        if not (domain := vendor_domain(entry)):
            continue
        raws = [raw for raw in found.get(entry.name, ()) if raw.id not in inventory.left_out]
        # If some partitions of the entry are listed, the others were removed. If none of them is listed, their resource
        # is left out, or the strategy advertises whole devices.
        some_listed = any(raw.id in listed for raw in raws)
        for raw in raws:
            parts = entry.parts(raw.index)
            if parts is None or (geometry := entry.geometry) is None:
                yield Hardware(entry, domain, raw)
                continue
            if some_listed:
                parts = tuple(listed.get(raw.id, ()))
            elif geometry.first_mode and spec.flags.mig_strategy is MigStrategy.NONE:
                parts = (geometry.first_mode,)  # such hardware is always in one of its partition modes
            yield Hardware(entry, domain, raw, tuple(geometry.profiles[name] for name in parts))


def rule_for(spec: Spec, gpu: Hardware, profile: Profile | None = None) -> SharedItem | None:
    """The first item of `sharing` for whole devices like this one, or for its partitions of a profile."""
    named = name_of(spec, gpu.entry, profile.name if profile else "")
    if spec.sharing is None or named is None:
        return None
    return next((rule for rule in spec.sharing.resources if rule.name == named), None)


# --- AMD --------------------------------------------------------------------------------------------------------------

_PLAIN, _BETA = "amd.com/gpu", "beta.amd.com/gpu"
_MIB = 2**20
_SIMDS = 4  # of a compute unit, for every GPU that ROCm supports
_PRODUCT = str.maketrans({" ": "_", "(": None, ")": None})


def amd_labels(gpus: Sequence[Hardware]) -> dict[str, str]:
    """The labels of AMD's node labeler (ROCm/k8s-device-plugin ed76466, cmd/k8s-node-labeller).

    The labeler has a flag for each kind of label. This function sets all labels with known values. It sets no firmware
    labels, and driver labels only if the devices have such an attribute. Partitions are counted as devices, as the
    driver does; only the PCI id belongs to the whole GPU.
    """
    if not gpus:
        return {}
    units: list[tuple[int, Mapping[str, str]]] = []  # the memory and the attributes of each GPU or partition
    for gpu in gpus:
        if gpu.parts is None:
            units.append((gpu.raw.memory, gpu.attributes))
        else:
            units += ((each.memory, {**gpu.attributes, **each.attributes}) for each in gpu.parts)
    attributes = [own for _, own in units]
    compute_units = [own.get("computeUnits", "") for own in attributes]
    products = [own.get("product") or own.get("model", "") for own in attributes]
    values: dict[str, str] = {}
    for kind, texts in {
        "family": [own.get("family", "") for own in attributes],
        "device-id": [gpu.pci("pciDeviceId") for gpu in gpus],
        "product-name": [product.strip().translate(_PRODUCT) for product in products],
        # Whole MiB, rounded to GiB; half a GiB is rounded up.
        "vram": [f"{(memory // _MIB + 512) // 1024}G" if memory else "" for memory, _ in units],
        "simd-count": [str(int(each) * _SIMDS) if each.isdecimal() else "" for each in compute_units],
        "cu-count": compute_units,
    }.items():
        values |= _counted(kind, filter(None, texts))
    known = gpus[0].attributes
    for kind, key in (("driver-version", "driverVersion"), ("driver-src-version", "driverSrcVersion")):
        if key in known:
            values[f"{_PLAIN}.{kind}"] = known[key]
    return values | _partitioning(gpus)


def _counted(kind: str, texts: Iterable[str]) -> dict[str, str]:
    """The old labels count each value; the new ones do so if there are several."""
    count = Counter(texts)
    values = {f"{_BETA}.{kind}.{text}": str(number) for text, number in count.items()}
    if len(count) == 1:
        (text,) = count
        return {**values, f"{_BETA}.{kind}": text, f"{_PLAIN}.{kind}": text}
    return {**values, **{f"{_PLAIN}.{kind}.{text}": str(number) for text, number in count.items()}}


def _partitioning(gpus: Sequence[Hardware]) -> dict[str, str]:
    """The supported modes, and the mode in force if it is the same for all GPUs."""
    geometry = gpus[0].entry.geometry
    modes = set(geometry.profiles) if geometry else set()
    values = {
        f"{_PLAIN}.compute-partitioning-supported": str(bool(modes)).lower(),
        f"{_PLAIN}.memory-partitioning-supported": str(any("_" in mode for mode in modes)).lower(),
    }
    if in_force := _one(each.name for gpu in gpus for each in gpu.parts or ()):
        values[f"{_PLAIN}.compute-memory-partition"] = in_force
    return values


# --- Intel ------------------------------------------------------------------------------------------------------------

INTEL = ".intel.com"  # after the kind of the device, in the domain


def intel_labels(devices: Sequence[Hardware]) -> dict[str, str]:
    """The labels of Intel's rules for Node Feature Discovery, and of its GPU plugin's labeler."""
    values = {f"intel.feature.node.kubernetes.io/{each.domain.removesuffix(INTEL)}": "true" for each in devices}
    gpus = [each for each in devices if each.domain == "gpu.intel.com"]
    if not gpus:
        return values
    values["gpu.intel.com/device.count"] = str(len(gpus))
    for (pci_class, device), count in Counter((gpu.pci("pciClass"), gpu.pci("pciDeviceId")) for gpu in gpus).items():
        if pci_class and device:
            values[f"gpu.intel.com/device-id.{pci_class}-{device}.present"] = "true"
            values[f"gpu.intel.com/device-id.{pci_class}-{device}.count"] = str(count)
    for key in ("product", "family"):
        texts = [gpu.attributes[key] for gpu in gpus if gpu.attributes.get(key)]
        if texts:
            values[f"gpu.intel.com/{key}"] = texts[-1]
    return values


# --- GKE --------------------------------------------------------------------------------------------------------------

GKE = "google.com"  # of the resource of its TPU chips
_GKE_LABEL = "cloud.google.com/gke"
_SHARING = {SharingKind.TIME_SLICING: "time-sharing", SharingKind.MPS: "mps"}


def gke_gpu_labels(spec: Spec, gpus: Sequence[Hardware]) -> dict[str, str]:
    """The labels for these NVIDIA devices, if all have the same attribute gkeAccelerator (source: GKE's documentation).

    No preset has it. An entry sets it to ask for these labels.
    """
    accelerator = _one(gpu.attributes.get("gkeAccelerator", "") for gpu in gpus)
    if not accelerator:
        return {}
    values = {f"{_GKE_LABEL}-accelerator": accelerator}
    size = _one(profile.name for gpu in gpus for profile in gpu.parts or ())
    if size and all(gpu.parts for gpu in gpus):
        values[f"{_GKE_LABEL}-gpu-partition-size"] = size
    rules = [rule_for(spec, gpu, profile) for gpu in gpus for profile in _offered(gpu)]
    rule = rules[0] if rules else None
    if rule and spec.sharing and all(each == rule for each in rules) and all(_offered(gpu) for gpu in gpus):
        values[f"{_GKE_LABEL}-gpu-sharing-strategy"] = _SHARING[spec.sharing.kind]
        values[f"{_GKE_LABEL}-max-shared-clients-per-gpu"] = str(rule.replicas)
    return values


def _offered(gpu: Hardware) -> Sequence[Profile | None]:
    """What pods can get: the GPU's partitions, or the GPU itself (None)."""
    return (None,) if gpu.parts is None else gpu.parts


def gke_tpu_labels(chips: Sequence[Hardware]) -> dict[str, str]:
    keys = {"accelerator": f"{_GKE_LABEL}-tpu-accelerator", "topology": f"{_GKE_LABEL}-tpu-topology"}
    values = {label: _one(chip.attributes.get(key, "") for chip in chips) for key, label in keys.items()}
    return {label: value for label, value in values.items() if value}


def _one(texts: Iterable[str]) -> str:
    """The text, if all are the same; else the empty string."""
    every = set(texts)
    return every.pop() if len(every) == 1 else ""
