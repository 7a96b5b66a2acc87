"""What NVIDIA's driver publishes (kubernetes-sigs/dra-driver-nvidia-gpu 9593204, cmd/gpu-kubelet-plugin).

A GPU is `gpu-<minor>`, a partition `gpu-<minor>-mig-<profile>-<profile's id>-<start>`. What nothing is known of has a
likely value: expressions that ask for an attribute which a device lacks are errors that stop the allocation.
"""

import re
from collections.abc import Iterable

from ...model.device import Device
from ...model.dra import DeviceCapacity
from ...model.pci import bus_id, root
from ...partitions.counters import Counters, Limit, counters
from ...partitions.geometry import Geometry, Profile
from .attributes import PCI_BUS_ID, PCIE_ROOT, Attributes, standard, string, version
from .plain import Describer
from .published import DraDevice

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


class Nvidia(Describer):
    """Describes the devices of one entry as NVIDIA's driver does."""

    slots = "shares"

    def ordered(self, devices: Iterable[Device]) -> Iterable[DraDevice]:
        """NVIDIA's driver sorts those of each GPU by name."""
        return sorted(super().ordered(devices), key=lambda made: (self.gpu(made.device), made.name))

    def counters(self) -> Counters:
        """Those that the driver has for a GPU, and as many more as its geometry needs."""
        assert self.entry.geometry is not None
        return counters(self.entry.geometry, limits(self.entry.geometry))

    def name(self, device: Device) -> str:
        whole = f"gpu-{self.gpu(device)}"
        if not device.is_partition or self.entry.geometry is None:
            return whole
        profile = re.sub(r"[^a-z0-9-]", "-", device.profile.lower().replace(".", "")).strip("-")
        return f"{whole}-mig-{profile}-{_id(self.entry.geometry, device.profile)}-{device.slices.start}"

    def counter_set(self, device: Device) -> str:
        return f"gpu-{self.gpu(device)}-counter-set"

    def attributes(self, device: Device) -> Attributes:
        """The device's attributes, under the names that they have in the driver's domain."""
        known, minor = device.raw.attributes, self.gpu(device)
        model = known.get("model", "")
        own = {"type": string("gpu")}
        if device.is_partition:
            own = {"type": string("mig"), "parentUUID": string(device.raw.id), "profile": string(device.profile)}
        if not (self.is_dynamic and device.is_partition):
            own["uuid"] = string(device.id)
        return {
            **own,
            "productName": string(model),
            "brand": string(known.get("brand", "Tesla" if model.startswith("Tesla") else "Nvidia")),
            "architecture": string(known.get("architecture", "").replace("-", " ").title()),
            "cudaComputeCapability": version(known.get("computeCapability", ""), "0.0.0"),
            "driverVersion": version(known.get("driverVersion", ""), _DRIVER_VERSION),
            "cudaDriverVersion": version(known.get("cudaVersion", ""), _CUDA_VERSION),
            PCI_BUS_ID: string(bus_id(device.raw, minor)),
            PCIE_ROOT: string(root(minor)),  # each GPU below one of its own
            **dict(standard(device)),
        }

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        """With the memory slices that a partition covers, where it stays as it is.

        A GPU that claims may cut has as much of everything as its largest partition.
        """
        if self.is_dynamic and self.entry.geometry and not device.is_partition:
            return {limit.name: DeviceCapacity(limit.most) for limit in _maxima(self.entry.geometry)}
        profile = self.profiles.get(device.profile)
        if profile is None:
            return super().capacity(device)
        amounts = _amounts(profile)
        if not self.is_dynamic:
            amounts |= {f"memorySlice{number}": 1 for number in device.slices}
        return {key: DeviceCapacity(value) for key, value in amounts.items()}


def _id(geometry: Geometry, profile: str) -> int:
    """NVML's number of the profile; for one that has none, numbers that NVML does not use."""
    found = geometry.profile(profile).id
    names = [each.name for each in geometry.profiles]
    return 100 + names.index(profile) if found is None else found


def _amounts(profile: Profile) -> dict[str, int]:
    told = {name: profile.attributes.get(key, "") for key, name in _CAPACITIES.items()}
    known = {name: int(text) for name, text in told.items() if text.isdecimal()}
    return {**_ALWAYS_THERE, **known, "memory": profile.memory}


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
