"""What NVIDIA's driver publishes (kubernetes-sigs/dra-driver-nvidia-gpu 9593204, cmd/gpu-kubelet-plugin).

A GPU is `gpu-<minor>`, a partition `gpu-<minor>-mig-<profile>-<profile's id>-<start>`. What nothing is known of has a
likely value: expressions that ask for an attribute which a device lacks are errors that stop the allocation.
"""

import re

from ...model.device import Device
from ...model.pci import bus_id, root
from ...partitions.counters import Limit
from ...partitions.geometry import Geometry, Profile
from . import attributes
from .attributes import Attributes, string, version
from .published import DeviceCapacity

_DRIVER_VERSION = "580.95.5"
_CUDA_VERSION = "13.0.0"
_CAPACITIES = {  # by the key of a profile's attributes
    "multiprocessors": "multiprocessors",
    "engines.copy": "copyEngines",
    "engines.decoder": "decoders",
    "engines.encoder": "encoders",
    "engines.jpeg": "jpegEngines",
    "engines.ofa": "ofaEngines",
}
_ALWAYS_THERE = {"encoders": 0}


def name(device: Device, minor: int, geometry: Geometry | None) -> str:
    """The device's name."""
    whole = f"gpu-{minor}"
    if not device.is_partition or geometry is None:
        return whole
    profile = re.sub(r"[^a-z0-9-]", "-", device.profile.lower().replace(".", "")).strip("-")
    return f"{whole}-mig-{profile}-{_id(geometry, device.profile)}-{device.slices.start}"


def _id(geometry: Geometry, profile: str) -> int:
    """NVML's number of the profile; for one that has none, numbers that NVML does not use."""
    found = geometry.profile(profile).id
    names = [each.name for each in geometry.profiles]
    return 100 + names.index(profile) if found is None else found


def attributes_of(device: Device, minor: int) -> Attributes:
    """The device's attributes, under the names that they have in the driver's domain."""
    known = device.raw.attributes
    model = known.get("model", "")
    shared = {
        "productName": string(model),
        "brand": string(known.get("brand", "Tesla" if model.startswith("Tesla") else "Nvidia")),
        "architecture": string(known.get("architecture", "").replace("-", " ").title()),
        "cudaComputeCapability": version(known.get("computeCapability", ""), "0.0.0"),
        "driverVersion": version(known.get("driverVersion", ""), _DRIVER_VERSION),
        "cudaDriverVersion": version(known.get("cudaVersion", ""), _CUDA_VERSION),
        attributes.PCI_BUS_ID: string(bus_id(device.raw, minor)),
        attributes.PCIE_ROOT: string(root(minor)),  # each GPU below one of its own
        **dict(attributes.standard(device)),
    }
    if device.is_partition:
        own = {"type": string("mig"), "parentUUID": string(device.raw.id), "profile": string(device.profile)}
    else:
        own = {"type": string("gpu")}
    return {**own, "uuid": string(device.id), **shared}


def capacity_of(device: Device, profile: Profile | None, *, slices: bool) -> dict[str, DeviceCapacity]:
    """The device's capacity; with the memory slices that a partition covers, where it stays as it is."""
    if profile is None:
        return {"memory": DeviceCapacity(device.memory)} if device.memory else {}
    amounts = _amounts(profile)
    if slices:
        amounts |= {f"memorySlice{number}": 1 for number in device.slices}
    return {key: DeviceCapacity(value) for key, value in amounts.items()}


def _amounts(profile: Profile) -> dict[str, int]:
    told = {name: profile.attributes.get(key, "") for key, name in _CAPACITIES.items()}
    known = {name: int(text) for name, text in told.items() if text.isdecimal()}
    return {**_ALWAYS_THERE, **known, "memory": profile.memory}


def whole_capacity(geometry: Geometry) -> dict[str, DeviceCapacity]:
    """The capacity of a GPU that claims may cut: as much of everything as its largest partition has."""
    return {limit.name: DeviceCapacity(limit.most) for limit in _maxima(geometry)}


def limits(geometry: Geometry) -> list[Limit]:
    """The counters that the driver has for a GPU, beside those of the memory slices."""
    return [Limit(_kebab(limit.name), limit.most, limit.takes) for limit in _maxima(geometry)]


def _maxima(geometry: Geometry) -> list[Limit]:
    amounts = {profile.name: _amounts(profile) for profile in geometry.profiles}
    names = sorted({name for each in amounts.values() for name in each})
    takes = {name: {profile: each[name] for profile, each in amounts.items() if name in each} for name in names}
    return [Limit(name, max(each.values()), each) for name, each in takes.items()]


def _kebab(text: str) -> str:
    return re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", text).lower()


def counter_set(minor: int) -> str:
    """The name of a GPU's set of counters."""
    return f"gpu-{minor}-counter-set"
