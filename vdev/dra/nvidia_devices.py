"""NVIDIA devices as NVIDIA's DRA driver publishes them: names, attributes, capacity and counters."""

import re
from collections.abc import Iterable

from ..model.device import Device, bus_id, root
from ..model.dra import DeviceCapacity
from ..model.geometry import Geometry, Limit, Profile
from ..planning.partitions import Counters, counters
from .attributes import (
    PCI_BUS_ID,
    PCIE_ROOT,
    Attributes,
    Describer,
    semantic_version,
    standard_attributes,
)
from .published_devices import DraDevice

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
        """NVIDIA's driver sorts the devices of each GPU by name."""
        return sorted(super().ordered(devices), key=lambda made: (self.gpu(made.device), made.name))

    def counters(self) -> Counters:
        """The counters of a GPU as NVIDIA's driver publishes them, and additional ones that the geometry needs."""
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
        known, minor = device.raw.attributes, self.gpu(device)
        model = known.get("model", "")
        own: Attributes = {"type": "gpu"}
        if device.is_partition:
            own = {
                "type": "mig",
                "parentUUID": device.raw.id,
                "profile": device.profile,
            }
        if not (self.is_dynamic and device.is_partition):
            own["uuid"] = device.id
        return {
            **own,
            "productName": model,
            "brand": known.get("brand", "Tesla" if model.startswith("Tesla") else "Nvidia"),
            "architecture": known.get("architecture", "").replace("-", " ").title(),
            "cudaComputeCapability": semantic_version(known.get("computeCapability", ""), "0.0.0"),
            "driverVersion": semantic_version(known.get("driverVersion", ""), _DRIVER_VERSION),
            "cudaDriverVersion": semantic_version(known.get("cudaVersion", ""), _CUDA_VERSION),
            PCI_BUS_ID: bus_id(device.raw, minor),
            PCIE_ROOT: root(minor),  # a separate root for each GPU
            **dict(standard_attributes(device)),
        }

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        """The capacity, with the memory slices of a static partition.

        A GPU that claims may partition has the capacity of its largest partition.
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
    """NVML's number of the profile; for an unknown profile, a number that NVML does not use."""
    found = geometry.profile(profile).id
    names = list(geometry.profiles)
    return 100 + names.index(profile) if found is None else found


def _amounts(profile: Profile) -> dict[str, int]:
    texts = {name: profile.attributes.get(key, "") for key, name in _CAPACITIES.items()}
    known = {name: int(text) for name, text in texts.items() if text.isdecimal()}
    return {**_ALWAYS_THERE, **known, "memory": profile.memory}


def limits(geometry: Geometry) -> list[Limit]:
    """The counters of a GPU as NVIDIA's driver publishes them, without those of memory slices."""
    return [Limit(_kebab(limit.name), limit.most, limit.takes) for limit in _maxima(geometry)]


def _maxima(geometry: Geometry) -> list[Limit]:
    amounts = {profile.name: _amounts(profile) for profile in geometry.profiles.values()}
    names = sorted({name for each in amounts.values() for name in each})
    takes = {name: {profile: each[name] for profile, each in amounts.items() if name in each} for name in names}
    return [Limit(name, max(each.values()), each) for name, each in takes.items()]


def _kebab(text: str) -> str:
    return re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", text).lower()
