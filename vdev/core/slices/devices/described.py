"""The devices of a driver as if every one were well: names, attributes, capacity, counters.

How an entry's devices are described depends on their maker: NVIDIA's and AMD's as their drivers publish them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...inventory.resources import Resource
from ...model.device import Device
from ...model.dra import Attribute, DraPartitions, TaintPolicy
from ...model.problem import Problem, error, warning
from ...model.syntax import slice_syntax
from ...partitions.counters import Counters, counters
from ...partitions.geometry import Placement, Profile
from ...spec import EntrySpec, VirtualSource
from . import amd, attributes, nvidia, plain, shares
from .published import Consumption, CounterSet, DeviceCapacity, DraDevice, PublishedPool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an entry stands among those of a driver: the number of its first GPU, and how many GPUs there are."""

    first: int
    gpus: int


def described(driver: str, offered: Resource, _last: object = None) -> PublishedPool:
    """The pool as if every device were well."""
    problems: list[Problem] = []
    devices: dict[str, DraDevice] = {}
    sets: dict[str, CounterSet] = {}
    places = _places(offered.entries.values())
    for entry, members in _by_entry(offered):
        describe = _style(entry)(entry, offered, places[entry.name])
        left_out: attributes.LeftOut = {}
        for made in describe.ordered(members):
            if first := devices.get(made.name):
                both = f"{first.device.id!r} and {made.device.id!r}"
                message = f"{both} would both be the device {made.name!r} of {driver}; the first one is"
                problems.append(error(entry.where, message, "give one of the entries another name, or another driver"))
            else:
                told = _with_given(made, entry, driver, left_out, problems)
                devices[made.name] = made if told is made.attributes else replace(made, attributes=told)
        problems.extend(attributes.problems_of(entry, left_out))
        sets |= {each.name: each for each in describe.sets}
    specs = [entry.dra for entry in offered.entries.values() if entry.dra]
    fails = any(each.unhealthy is not TaintPolicy.NONE or each.lost is not TaintPolicy.NONE for each in specs)
    return PublishedPool(
        driver=driver,
        devices=tuple(devices.values()),
        counters=tuple(sets.values()),
        offered=offered,
        tight=fails or bool(sets),
        problems=tuple(dict.fromkeys(problems)),
    )


def _by_entry(offered: Resource) -> Iterator[tuple[EntrySpec, list[Device]]]:
    members: dict[str, list[Device]] = {name: [] for name in offered.entries}
    for slot in offered.slots:
        members[slot.device.raw.entry].append(slot.device)
    return ((entry, members[name]) for name, entry in offered.entries.items())


def _places(entries: Iterable[EntrySpec]) -> dict[str, _Place]:
    """GPUs are numbered over all entries of a maker, in the order of the file."""
    first: dict[str, int] = {}
    total: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for entry in entries:
        kind = kinds[entry.name] = _style(entry).__name__
        first[entry.name] = total.get(kind, 0)
        total[kind] = first[entry.name] + (entry.source.count if isinstance(entry.source, VirtualSource) else 0)
    return {name: _Place(number, total[kinds[name]]) for name, number in first.items()}


class _Describer:
    """Describes the devices of one entry, and collects their sets of counters."""

    slots = "slots"

    def __init__(self, entry: EntrySpec, offered: Resource, place: _Place) -> None:
        self.sets: list[CounterSet] = []
        self.entry = entry
        self.place = place
        self._offered = offered
        self.is_dynamic = entry.dra is not None and entry.dra.partitions is DraPartitions.DYNAMIC
        self.profiles = {profile.name: profile for profile in (entry.geometry.profiles if entry.geometry else ())}
        self._counters = self.counters() if self.is_dynamic and entry.geometry else None

    def ordered(self, devices: Iterable[Device]) -> Iterable[DraDevice]:
        """The devices in order of preference: whole ones first, then their partitions, as the entry lists them."""
        return map(self._device, devices)

    def _device(self, device: Device) -> DraDevice:
        sharing, capacity = self._offered.sharing, self.capacity(device)
        is_shared = sharing is not None and device.id in sharing.replicas
        if sharing is not None and is_shared:
            capacity = shares.shared(capacity, device, sharing, self.slots)
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
        if not device.is_partition:
            self.sets.append(CounterSet(name, self._counters.all))
            return (Consumption(name, self._counters.all),)
        placement = Placement(self.profiles[device.profile], device.slices.start, len(device.slices))
        return (Consumption(name, self._counters.taken_by(placement)),)

    def profile(self, device: Device) -> Profile | None:
        """The profile of a partition."""
        return self.profiles.get(device.profile)

    def counters(self) -> Counters:
        """The counters of each device."""
        assert self.entry.geometry is not None
        return counters(self.entry.geometry)

    def name(self, device: Device) -> str:
        """The device's name in the pool."""
        return plain.name(device)

    def counter_set(self, device: Device) -> str:
        """The name of its set of counters."""
        return plain.counter_set(device)

    def attributes(self, device: Device) -> attributes.Attributes:
        """Its attributes."""
        return plain.attributes_of(self.entry, device)

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        """Its capacity."""
        return plain.capacity_of(device)


class _Nvidia(_Describer):
    slots = "shares"

    def ordered(self, devices: Iterable[Device]) -> Iterable[DraDevice]:
        """NVIDIA's driver sorts those of each GPU by name."""
        found = list(super().ordered(devices))
        return sorted(found, key=lambda made: (self._minor(made.device), made.name))

    def _minor(self, device: Device) -> int:
        return self.place.first + device.raw.index

    def counters(self) -> Counters:
        assert self.entry.geometry is not None
        return counters(self.entry.geometry, nvidia.limits(self.entry.geometry))

    def name(self, device: Device) -> str:
        return nvidia.name(device, self._minor(device), self.entry.geometry)

    def counter_set(self, device: Device) -> str:
        return nvidia.counter_set(self._minor(device))

    def attributes(self, device: Device) -> attributes.Attributes:
        found = nvidia.attributes_of(device, self._minor(device))
        if self.is_dynamic and device.is_partition:
            del found["uuid"]
        return found

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        if self.is_dynamic and self.entry.geometry and not device.is_partition:
            return nvidia.whole_capacity(self.entry.geometry)
        return nvidia.capacity_of(device, self.profile(device), slices=not self.is_dynamic)


class _Amd(_Describer):
    def _card(self, device: Device) -> int:
        slices = self.entry.geometry.slices if self.entry.geometry else 1
        return amd.card(device, self.place.first + device.raw.index, self.place.gpus, slices)

    def name(self, device: Device) -> str:
        return amd.name(self._card(device))

    def attributes(self, device: Device) -> attributes.Attributes:
        return amd.attributes_of(device, self.place.first + device.raw.index, self._card(device))

    def capacity(self, device: Device) -> dict[str, DeviceCapacity]:
        return amd.capacity_of(device)


def _style(entry: EntrySpec) -> type[_Describer]:
    if entry.is_nvidia:
        return _Nvidia
    return _Amd if amd.is_amd(entry) else _Describer


def _with_given(
    device: DraDevice, entry: EntrySpec, driver: str, left_out: attributes.LeftOut, problems: list[Problem]
) -> Mapping[str, Attribute]:
    """The attributes with those of the file, as many as a device may have; the device's own make room.

    Only the type stays in any case, since DeviceClasses ask for it.
    """
    given = dict(attributes.given(entry, device.device, driver, left_out))
    own = {key: value for key, value in device.attributes.items() if key not in given}
    problems.extend(_cut_off(device.device, entry, own.values()))
    if _style(entry) is _Describer:
        problems.extend(warning(entry.where, each) for each in plain.bent_names(entry, device.device))
    room = slice_syntax.MAX_ENTRIES - len(device.capacity)
    if not given and len(own) <= room:
        return device.attributes
    beyond = len(own) + len(given) - room
    if beyond <= 0:
        return {**own, **given}
    message = (
        f"{beyond} attributes of {entry.name} are left out of its ResourceSlices: a device has at most "
        f"{slice_syntax.MAX_ENTRIES} attributes and capacities"
    )
    problems.append(warning(entry.where, message))
    kept = list(dict.fromkeys(("type", *given, *own)))[:room]
    return {key: value for key, value in {**own, **given}.items() if key in kept}


def _cut_off(device: Device, entry: EntrySpec, published: Iterable[Attribute]) -> Iterator[Problem]:
    """What to say of the device's own texts that are too long for a ResourceSlice."""
    for key, text in device.attributes.items():
        if (why := slice_syntax.string_problem(text)) and attributes.string(text) in published:
            message = f"the attribute {key} of {entry.name} is cut off in its ResourceSlices: {why}"
            yield warning(entry.where, message)
