"""Devices as ResourceSlices describe them: names, attributes, capacity and counters, in the style of each maker."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ..model import names
from ..model.device import Device, bus_id, grouped, root
from ..model.dra import Attribute, AttributeKind, DeviceCapacity, Version
from ..model.entry import Entry
from ..model.geometry import Geometry, Placement, Profile
from ..model.names import digest, domain_and_name
from ..model.problem import Problem, error, warning
from ..model.template import Template
from ..planning.allocation import placeholders
from ..planning.partitions import Counters, Limit, counters
from ..planning.resources import Resource
from . import published_devices
from .published_devices import NO_COUNTERS, CounterSets, DraDevice, PublishedPool

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCI_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")

Attributes = dict[str, Attribute]


@functools.lru_cache(maxsize=256)
def string_attribute(text: str) -> Attribute:
    """A string, cut to the length that a ResourceSlice takes."""
    return Attribute(AttributeKind.STRING, text.encode()[: names.MAX_STRING].decode(errors="ignore"))


@functools.lru_cache(maxsize=256)
def number_attribute(value: int) -> Attribute:
    return Attribute(AttributeKind.INT, value)


@functools.lru_cache(maxsize=256)
def version_attribute(text: str, fallback: str) -> Attribute:
    """A version made of what a maker calls one: `580.95.05` is 580.95.5, and `8.0` is 8.0.0."""
    parts = text.removeprefix("v").split(".")
    plain = all(part.isascii() and part.isdigit() for part in parts) and 1 <= len(parts) <= 3
    said = ".".join(str(int(part)) for part in (*parts, "0", "0")[:3]) if plain else text
    return Attribute(AttributeKind.VERSION, fallback if names.version_problem(said) else said)


def text_attribute(text: str) -> Attribute:
    """The value of a device's own attribute, which is a text: what looks like a number, or is true or false, is one."""
    if _WHOLE.fullmatch(text):
        return number_attribute(int(text))
    if text in ("true", "false"):
        return Attribute(AttributeKind.BOOL, text == "true")
    return string_attribute(text)


def typed_attribute(value: bool | int | Version) -> Attribute:
    """A value that the file gives with its type."""
    if isinstance(value, Version):
        return Attribute(AttributeKind.VERSION, value.version)
    return Attribute(AttributeKind.BOOL, value) if isinstance(value, bool) else number_attribute(value)


def standard_attributes(device: Device) -> Iterator[tuple[str, Attribute]]:
    """Where the device is, as far as that is known."""
    raw = device.raw
    address = raw.attributes.get("pciBusID", "").lower()
    if _PCI_ADDRESS.fullmatch(address):
        yield PCI_BUS_ID, string_attribute(address)
    root = raw.attributes.get("pcieRoot", "").lower()
    if _PCI_ROOT.fullmatch(root):
        yield PCIE_ROOT, string_attribute(root)
    if len(raw.numa) == 1:
        yield NUMA_NODE, number_attribute(raw.numa[0])


_MAX_NAME = 63
_DIGEST = 8


class Describer:
    """Describes the devices of one entry, and collects their sets of counters.

    `first` is the number of the entry's first GPU among the `gpus` of its maker.
    """

    slots = "slots"

    def __init__(self, entry: Entry, offered: Resource, first: int, gpus: int) -> None:
        self.sets: dict[str, Mapping[str, int]] = {}
        self.entry = entry
        self.first, self.gpus = first, gpus
        self._offered = offered
        driver, declared = (entry.dra.driver, entry.dra.capacity) if entry.dra else ("", {})
        self._given = {name.removeprefix(f"{driver}/"): each.published for name, each in declared.items()}
        self.is_dynamic = entry.dra is not None and entry.dra.is_dynamic
        self.profiles = entry.geometry.profiles if entry.geometry else {}
        self._counters = self.counters() if self.is_dynamic and entry.geometry else None

    def ordered(self, devices: Iterable[Device]) -> Iterable[DraDevice]:
        """The devices in order of preference: whole ones first, then their partitions, as the entry lists them."""
        return map(self._device, devices)

    def _device(self, device: Device) -> DraDevice:
        sharing = self._offered.sharing
        given = {} if device.is_partition else self._given
        capacity = {**self.capacity(device), **given}
        is_shared = any(each.policy for each in given.values())
        if sharing is not None and device.id in sharing.replicas:
            capacity, is_shared = published_devices.shared(capacity, device, sharing, self.slots), True
        elif is_shared:
            capacity = published_devices.free(capacity)
        return DraDevice(
            name=self.name(device),
            device=device,
            attributes=self.attributes(device),
            capacity=capacity,
            consumes=self._consumes(device),
            shared=is_shared,
        )

    def _consumes(self, device: Device) -> CounterSets:
        if self._counters is None:
            return NO_COUNTERS
        name = self.counter_set(device)
        everything = self.sets.setdefault(name, self._counters.all)
        if not device.is_partition:
            return {name: everything}
        placement = Placement(self.profiles[device.profile], device.slices.start, len(device.slices))
        return {name: self._counters.taken_by(placement)}

    def gpu(self, device: Device) -> int:
        """The number of the device's GPU among those of its maker."""
        return self.first + device.raw.index

    def counters(self) -> Counters:
        assert self.entry.geometry is not None
        return counters(self.entry.geometry)

    def name(self, device: Device) -> str:
        """The device's name in the pool: a DNS label; a fingerprint keeps ids apart that would be the same label."""
        return _label(device.id)

    def counter_set(self, device: Device) -> str:
        """The name of the set of counters of a device that claims may cut."""
        return _label(f"{device.raw.id}-counter-set")

    def attributes(self, device: Device) -> Attributes:
        """The device's attributes: what it is, and its own, by names that a ResourceSlice takes."""
        known = {names.identifier(key): text_attribute(text) for key, text in device.attributes.items()}
        known.pop("", None)
        kind = domain_and_name(self.entry.resource)[1]
        own = {"type": kind}
        if device.is_partition:
            own = {"type": f"{kind}-partition", "profile": device.profile, "parent": device.raw.id}
        own["id"] = device.id
        said = {**{key: string_attribute(text) for key, text in own.items()}, **dict(standard_attributes(device))}
        return said | {key: value for key, value in known.items() if key not in said}

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        return {"memory": DeviceCapacity(device.memory)} if device.memory else {}


def _label(text: str) -> str:
    """A '.' becomes '-' like everything that no label has, but is too common in ids to need a fingerprint."""
    label = names.dns_label(text)
    if label == text.replace(".", "-"):
        return label
    return f"{label[: _MAX_NAME - _DIGEST - 1].strip('-')}-{digest(text, _DIGEST)}".strip("-")


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
        own = {"type": string_attribute("gpu")}
        if device.is_partition:
            own = {
                "type": string_attribute("mig"),
                "parentUUID": string_attribute(device.raw.id),
                "profile": string_attribute(device.profile),
            }
        if not (self.is_dynamic and device.is_partition):
            own["uuid"] = string_attribute(device.id)
        return {
            **own,
            "productName": string_attribute(model),
            "brand": string_attribute(known.get("brand", "Tesla" if model.startswith("Tesla") else "Nvidia")),
            "architecture": string_attribute(known.get("architecture", "").replace("-", " ").title()),
            "cudaComputeCapability": version_attribute(known.get("computeCapability", ""), "0.0.0"),
            "driverVersion": version_attribute(known.get("driverVersion", ""), _DRIVER_VERSION),
            "cudaDriverVersion": version_attribute(known.get("cudaVersion", ""), _CUDA_VERSION),
            PCI_BUS_ID: string_attribute(bus_id(device.raw, minor)),
            PCIE_ROOT: string_attribute(root(minor)),  # each GPU below one of its own
            **dict(standard_attributes(device)),
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
    names = list(geometry.profiles)
    return 100 + names.index(profile) if found is None else found


def _amounts(profile: Profile) -> dict[str, int]:
    told = {name: profile.attributes.get(key, "") for key, name in _CAPACITIES.items()}
    known = {name: int(text) for name, text in told.items() if text.isdecimal()}
    return {**_ALWAYS_THERE, **known, "memory": profile.memory}


def limits(geometry: Geometry) -> list[Limit]:
    """The counters that the driver has for a GPU, beside those of the memory slices."""
    return [Limit(_kebab(limit.name), limit.most, limit.takes) for limit in _maxima(geometry)]


def _maxima(geometry: Geometry) -> list[Limit]:
    amounts = {profile.name: _amounts(profile) for profile in geometry.profiles.values()}
    names = sorted({name for each in amounts.values() for name in each})
    takes = {name: {profile: each[name] for profile, each in amounts.items() if name in each} for name in names}
    return [Limit(name, max(each.values()), each) for name, each in takes.items()]


def _kebab(text: str) -> str:
    return re.sub(r"([a-z0-9])([A-Z])", r"\1-\2", text).lower()


FIRST_RENDER = 128
"""The number of the first render node, `/dev/dri/renderD128` (source: the amdgpu driver)."""
_CARDS = 64  # numbers of cards, in steps of which there is room for GPUs
_SIMDS = 4  # of a compute unit
DRIVER_VERSION = "6.14.14"
"""Of devices whose attribute driverVersion says nothing."""

_FULL = "spx"


def card(device: Device, index: int, gpus: int, slices: int) -> int:
    """The number of the device's card node; `index` is that of its GPU, of `gpus` on the node.

    The nodes of further partitions begin at a round number, so that one GPU more renames no partition.
    """
    start = device.slices.start if device.is_partition else 0
    first = -(-gpus // _CARDS) * _CARDS
    return index if start == 0 else first + index * (slices - 1) + start - 1


class Amd(Describer):
    """Describes the devices of one entry as AMD's driver does."""

    def _card(self, device: Device) -> int:
        slices = self.entry.geometry.slices if self.entry.geometry else 1
        return card(device, self.gpu(device), self.gpus, slices)

    def name(self, device: Device) -> str:
        card = self._card(device)
        return f"gpu-{card}-{FIRST_RENDER + card}"

    def attributes(self, device: Device) -> Attributes:
        """The device's attributes, under the names that they have in the driver's domain."""
        known, index, number_of_card = device.raw.attributes, self.gpu(device), self._card(device)
        full = not device.is_partition or device.profile.startswith(_FULL)
        unique = str(int(digest(device.raw.id, 16), 16))  # as the number that the kernel driver gives each GPU
        found = dict(standard_attributes(device))
        address = found.pop(PCI_BUS_ID, string_attribute(bus_id(device.raw, index)))
        return {
            "type": string_attribute("amdgpu" if full else "amdgpu-partition"),
            "pciAddr" if full else "parentPciAddr": address,
            "cardIndex": number_attribute(number_of_card),
            "renderIndex": number_attribute(FIRST_RENDER + number_of_card),
            "deviceID" if full else "parentDeviceID": string_attribute(unique),
            "family": string_attribute(known.get("family", "")),
            "productName": string_attribute(known.get("product") or known.get("model", "")),
            "driverVersion": version_attribute(known.get("driverVersion", ""), DRIVER_VERSION),
            "driverSrcVersion": string_attribute(known.get("driverSrcVersion", "")),
            "partitionProfile": string_attribute(device.profile),
            PCIE_ROOT: string_attribute(root(index)),
            **found,
        }

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        """With the compute units, where they are known."""
        amounts = {"memory": device.memory}
        units = device.attributes.get("computeUnits", "")
        if units.isdecimal():
            amounts |= {"computeUnits": int(units), "simdUnits": int(units) * _SIMDS}
        return {key: DeviceCapacity(value) for key, value in amounts.items()}


def is_amd(entry: Entry) -> bool:
    """Whether the entry's devices are published as AMD's driver does: those of AMD's presets."""
    return entry.virtual is not None and domain_and_name(entry.virtual.maker_resource)[0] == "amd.com"


def described(driver: str, offered: Resource) -> PublishedPool:
    """The pool as if every device were well."""
    problems: list[Problem] = []
    devices: dict[str, DraDevice] = {}
    sets: dict[str, Mapping[str, int]] = {}
    places = _places(offered.entries.values())
    members_of = grouped((slot.device.raw.entry, slot.device) for slot in offered.slots)
    for name, entry in offered.entries.items():
        flaws: dict[str, Problem] = {}
        describe, members = _style(entry)(entry, offered, *places[name]), members_of.get(name, [])
        if entry.dra and entry.dra.mig_enabled:
            members = [each for each in members if each.is_partition]  # the GPU itself is not offered
        for made in describe.ordered(members):
            if first := devices.get(made.name):
                both = f"{first.device.id!r} and {made.device.id!r}"
                message = f"{both} would both be the device {made.name!r} of {driver}; the first one is"
                problems.append(error(entry.where, message, "give one of the entries another name, or another driver"))
            else:
                devices[made.name] = replace(made, attributes=_with_given(made, entry, driver, flaws))
        problems.extend(flaws.values())
        sets |= describe.sets
    return PublishedPool(
        driver=driver,
        devices=tuple(devices.values()),
        counters=sets,
        offered=offered,
        problems=tuple(dict.fromkeys(problems)),
    )


def _places(entries: Iterable[Entry]) -> dict[str, tuple[int, int]]:
    """The number of each entry's first GPU, and how many GPUs its maker has.

    They are numbered over all entries of a maker, in the order of the file.
    """
    first: dict[str, int] = {}
    total: dict[type[Describer], int] = {}
    for entry in entries:
        first[entry.name] = total.get(_style(entry), 0)
        count = entry.virtual.count if entry.virtual else 0
        total[_style(entry)] = first[entry.name] + count
    return {entry.name: (first[entry.name], total[_style(entry)]) for entry in entries}


def _style(entry: Entry) -> type[Describer]:
    if entry.is_nvidia:
        return Nvidia
    return Amd if is_amd(entry) else Describer


def _with_given(device: DraDevice, entry: Entry, driver: str, flaws: dict[str, Problem]) -> Mapping[str, Attribute]:
    """The attributes with those of the file, as many as a device may have; the device's own make room.

    Only the type stays in any case, since DeviceClasses ask for it. `flaws` gets one problem for each attribute that is
    not published as it is, however many devices have it.
    """
    given = _given(entry, device.device, driver, flaws)
    own = {key: value for key, value in device.attributes.items() if key not in given}
    for key, text in device.device.attributes.items():
        if (why := names.string_problem(text)) and string_attribute(text) in own.values():
            message = f"the attribute {key} of {entry.name} is cut off in its ResourceSlices: {why}"
            flaws.setdefault(key, warning(entry.where, message))
    kept = [*dict.fromkeys(("type", *given, *own))][: names.MAX_ENTRIES - len(device.capacity)]
    if (beyond := len(own) + len(given) - len(kept)) > 0:
        message = (
            f"{beyond} attributes of {entry.name} are left out of its ResourceSlices: a device has at most "
            f"{names.MAX_ENTRIES} attributes and capacities"
        )
        flaws.setdefault("", warning(entry.where, message))
    return {key: value for key, value in {**own, **given}.items() if key in kept}


def _given(entry: Entry, device: Device, driver: str, flaws: dict[str, Problem]) -> dict[str, Attribute]:
    """The attributes that the file gives the device."""
    found: dict[str, Attribute] = {}
    if entry.dra is None or not entry.dra.attributes:
        return found
    shown = placeholders(entry.resource, device)
    for name, value in entry.dra.attributes.items():
        key = name.removeprefix(f"{driver}/")
        if not isinstance(value, Template):
            found[key] = typed_attribute(value)
        elif problem := names.string_problem(text := value.render(shown)):
            message = f"the attribute {name} of {device.selector or device.id} is left out: {problem}"
            flaws.setdefault(name, warning(f"{entry.where}.dra.attributes.{name}", message))
        else:
            found[key] = Attribute(AttributeKind.STRING, text)
    return found
