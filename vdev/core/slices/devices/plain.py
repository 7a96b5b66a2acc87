"""How an entry's devices are described, as those of a maker whose driver we do not know: by their own fields."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...inventory.resources import Resource
from ...model.device import Device
from ...model.dra import DeviceCapacity
from ...model.syntax import slice_syntax
from ...model.syntax.names import digest, domain_and_name
from ...partitions.counters import Counters, counters
from ...partitions.geometry import Placement
from ...spec import EntrySpec
from . import shares
from .attributes import Attributes, of_text, standard, string
from .published import Consumption, CounterSet, DraDevice

_MAX_NAME = 63
_DIGEST = 8


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """Where an entry stands among those of a driver: the number of its first GPU, and how many GPUs there are."""

    first: int
    gpus: int


class Describer:
    """Describes the devices of one entry, and collects their sets of counters."""

    slots = "slots"

    def __init__(self, entry: EntrySpec, offered: Resource, place: EntryPlace) -> None:
        self.sets: dict[str, CounterSet] = {}
        self.entry = entry
        self.place = place
        self._offered = offered
        driver, declared = (entry.dra.driver, entry.dra.capacity) if entry.dra else ("", {})
        self._given = {name.removeprefix(f"{driver}/"): each for name, each in declared.items()}
        self.is_dynamic = entry.dra is not None and entry.dra.is_dynamic
        self.profiles = {profile.name: profile for profile in (entry.geometry.profiles if entry.geometry else ())}
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
            capacity, is_shared = shares.shared(capacity, device, sharing, self.slots), True
        elif is_shared:
            capacity = shares.free(capacity)
        return DraDevice(
            name=self.name(device),
            device=device,
            attributes=self.attributes(device),
            capacity=capacity,
            consumes=self._consumes(device),
            shared=is_shared,
        )

    def _consumes(self, device: Device) -> tuple[Consumption, ...]:
        if self._counters is None:
            return ()
        name = self.counter_set(device)
        if name not in self.sets:
            self.sets[name] = CounterSet(name, self._counters.all)
        if not device.is_partition:
            return (Consumption(name, self._counters.all),)
        placement = Placement(self.profiles[device.profile], device.slices.start, len(device.slices))
        return (Consumption(name, self._counters.taken_by(placement)),)

    def gpu(self, device: Device) -> int:
        """The number of the device's GPU among those of its maker."""
        return self.place.first + device.raw.index

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
        known = {slice_syntax.identifier(key): of_text(text) for key, text in device.attributes.items()}
        known.pop("", None)
        kind = domain_and_name(self.entry.resource)[1]
        own = {"type": kind}
        if device.is_partition:
            own = {"type": f"{kind}-partition", "profile": device.profile, "parent": device.raw.id}
        own["id"] = device.id
        said = {**{key: string(text) for key, text in own.items()}, **dict(standard(device))}
        return said | {key: value for key, value in known.items() if key not in said}

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        return {"memory": DeviceCapacity(device.memory)} if device.memory else {}


def _label(text: str) -> str:
    """A '.' becomes '-' like everything that no label has, but is too common in ids to need a fingerprint."""
    label = slice_syntax.dns_label(text)
    if label == text.replace(".", "-"):
        return label
    return f"{label[: _MAX_NAME - _DIGEST - 1].strip('-')}-{digest(text, _DIGEST)}".strip("-")


def bent_names(entry: EntrySpec, device: Device) -> Iterator[str]:
    """What to say of names of the device's own attributes that two share in a ResourceSlice, or that are too long."""
    first: dict[str, str] = {}
    for key in device.attributes:
        name = slice_syntax.identifier(key)
        if (other := first.setdefault(name, key)) != key:
            both = f"the attributes {other} and {key} of {entry.name}"
            yield f"{both} are both {name} in its ResourceSlices; the last one is published"
        elif len(key) > slice_syntax.MAX_IDENTIFIER:
            longest = f"where a name has at most {slice_syntax.MAX_IDENTIFIER} characters"
            yield f"the attribute {key} of {entry.name} is {name} in its ResourceSlices, {longest}"
