"""Names, attributes and capacity of devices in ResourceSlices, and the base class for the modules of vendors."""

import functools
import re
from collections.abc import Iterable, Iterator, Mapping

from ..model import names
from ..model.device import Device
from ..model.dra import Attribute, AttributeKind, DeviceCapacity, Version
from ..model.entry import Entry
from ..model.names import digest, domain_and_name
from ..model.problem import Problem, warning
from ..model.template import Template
from ..planning.allocation import placeholders
from ..planning.partitions import Counters, counters
from ..planning.resources import Resource
from . import published_devices
from .published_devices import NO_COUNTERS, DraDevice

PCI_BUS_ID = "resource.kubernetes.io/pciBusID"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_PCI_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")

AttributeValue = bool | int | str | Version
Attributes = dict[str, AttributeValue]


@functools.lru_cache(maxsize=1024, typed=True)
def attribute(value: AttributeValue) -> Attribute:
    """The value with its type. A string is cut to the length that a ResourceSlice allows."""
    match value:
        case bool():
            return Attribute(AttributeKind.BOOL, value)
        case int():
            return Attribute(AttributeKind.INT, value)
        case Version():
            return Attribute(AttributeKind.VERSION, value.version)
        case str():
            text = value.encode()[: names.MAX_STRING].decode(errors="ignore")
            return Attribute(AttributeKind.STRING, text)


@functools.lru_cache(maxsize=256)
def semantic_version(text: str, fallback: str) -> Version:
    """A semantic version from a vendor's: `580.95.05` becomes 580.95.5, and `8.0` becomes 8.0.0."""
    parts = text.removeprefix("v").split(".")
    plain = all(part.isascii() and part.isdigit() for part in parts) and 1 <= len(parts) <= 3
    semantic = ".".join(str(int(part)) for part in (*parts, "0", "0")[:3]) if plain else text
    return Version(version=fallback if names.version_problem(semantic) else semantic)


def parsed(text: str) -> bool | int | str:
    """The value of an attribute that discovery found as text."""
    if _WHOLE.fullmatch(text):
        return int(text)
    return text == "true" if text in ("true", "false") else text


def standard_attributes(device: Device) -> Iterator[tuple[str, str | int]]:
    """Kubernetes' standard attributes for the known topology of the device."""
    raw = device.raw
    address = raw.attributes.get("pciBusID", "").lower()
    if _PCI_ADDRESS.fullmatch(address):
        yield PCI_BUS_ID, address
    root = raw.attributes.get("pcieRoot", "").lower()
    if _PCI_ROOT.fullmatch(root):
        yield PCIE_ROOT, root
    if len(raw.numa) == 1:
        yield NUMA_NODE, raw.numa[0]


_MAX_NAME = 63
_DIGEST = 8


class Describer:
    """Describes the devices of one entry.

    `first` is the number of the entry's first GPU among the `gpus` of its vendor.
    """

    slots = "slots"

    def __init__(self, entry: Entry, offered: Resource, first: int, gpus: int) -> None:
        assert entry.dra is not None, "only such entries offer devices to claims"
        self.entry = entry
        self.first, self.gpus = first, gpus
        self.flaws: dict[str, Problem] = {}  # for each attribute that is cut or left out, of any number of devices
        self.is_dynamic = entry.dra.is_dynamic
        self.profiles = entry.geometry.profiles if entry.geometry else {}
        self._dra, self._offered = entry.dra, offered
        self._prefix = f"{entry.dra.driver}/"
        self._given = {name.removeprefix(self._prefix): each.published for name, each in entry.dra.capacity.items()}
        self._counters = self.counters() if self.is_dynamic and entry.geometry else None

    def ordered(self, devices: Iterable[Device]) -> Iterable[DraDevice]:
        """The devices in order of preference: whole ones first, then their partitions, as the entry lists them."""
        return map(self._device, devices)

    def _device(self, device: Device) -> DraDevice:
        sharing = self._offered.sharing
        given = {} if device.is_partition else self._given
        capacity = {**self.capacity(device), **given}
        is_shared = any(each.policy for each in given.values())
        if sharing is not None and device.replicas:
            capacity, is_shared = published_devices.shared(capacity, device, sharing, self.slots), True
        elif is_shared:
            capacity = published_devices.free(capacity)
        consumes = sets = NO_COUNTERS
        if self._counters is not None:
            name = self.counter_set(device)
            consumes = sets = {name: self._counters.all}
            if device.is_partition:
                consumes = {name: self._counters.taken_by(device.profile, device.slices)}
        return DraDevice(
            name=self.name(device),
            device=device,
            attributes=self._published(device, names.MAX_ENTRIES - len(capacity)),
            capacity=capacity,
            consumes=consumes,
            sets=sets,
            shared=is_shared,
        )

    def _published(self, device: Device, most: int) -> Mapping[str, Attribute]:
        """The device's attributes with those of the file. If there are too many, the device's are left out first.

        The type always stays, because DeviceClasses select by it.
        """
        given: Attributes = {}
        shown = placeholders(self.entry.resource, device) if self._dra.attributes else {}
        for name, value in self._dra.attributes.items():
            rendered = value.render(shown) if isinstance(value, Template) else value
            if isinstance(rendered, str) and (why := names.string_problem(rendered)):
                message = f"the attribute {name} of {device.selector or device.id} is left out: {why}"
                self.flaws.setdefault(name, warning(f"{self.entry.where}.dra.attributes.{name}", message))
            else:
                given[name.removeprefix(self._prefix)] = rendered
        own = {key: value for key, value in self.attributes(device).items() if key not in given}
        for key, text in device.attributes.items():
            if (why := names.string_problem(text)) and text in own.values():
                message = f"the attribute {key} of {self.entry.name} is cut off in its ResourceSlices: {why}"
                self.flaws.setdefault(key, warning(self.entry.where, message))
        kept = {*[*dict.fromkeys(("type", *given, *own))][:most]}
        if (beyond := len(own) + len(given) - len(kept)) > 0:
            message = (
                f"{beyond} attributes of {self.entry.name} are left out of its ResourceSlices: a device has at most "
                f"{names.MAX_ENTRIES} attributes and capacities"
            )
            self.flaws.setdefault("", warning(self.entry.where, message))
        return {key: attribute(value) for key, value in {**own, **given}.items() if key in kept}

    def gpu(self, device: Device) -> int:
        """The number of the device's GPU among those of its vendor."""
        return self.first + device.raw.index

    def counters(self) -> Counters:
        assert self.entry.geometry is not None
        return counters(self.entry.geometry)

    def name(self, device: Device) -> str:
        """The device's name in the pool, a DNS label. Ids that would become the same label get a fingerprint."""
        return _label(device.id)

    def counter_set(self, device: Device) -> str:
        """The name of the counter set of a device that claims may partition."""
        return _label(f"{device.raw.id}-counter-set")

    def attributes(self, device: Device) -> Attributes:
        """The device's attributes, under names that a ResourceSlice allows."""
        known = {names.identifier(key): parsed(text) for key, text in device.attributes.items()}
        known.pop("", None)
        kind = domain_and_name(self.entry.resource)[1]
        own: Attributes = {"type": kind}
        if device.is_partition:
            own = {"type": f"{kind}-partition", "profile": device.profile, "parent": device.raw.id}
        own |= {"id": device.id, **dict(standard_attributes(device))}
        return own | {key: value for key, value in known.items() if key not in own}

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        return {"memory": DeviceCapacity(device.memory)} if device.memory else {}


def _label(text: str) -> str:
    """A DNS label. A '.' becomes '-' without a fingerprint, because it is common in ids."""
    label = names.dns_label(text)
    if label == text.replace(".", "-"):
        return label
    return f"{label[: _MAX_NAME - _DIGEST - 1].strip('-')}-{digest(text, _DIGEST)}".strip("-")
