"""The devices of a driver as if every one were well: names, attributes, capacity, counters.

How an entry's devices are described depends on their maker: NVIDIA's and AMD's as their drivers publish them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ...grouping import grouped
from ...inventory.resources import Resource
from ...model.device import Device
from ...model.dra import Attribute, TaintPolicy
from ...model.problem import Problem, error, warning
from ...model.syntax import slice_syntax
from ...spec import EntrySpec, VirtualSource
from . import attributes
from .amd import Amd, is_amd
from .nvidia import Nvidia
from .plain import Describer, EntryPlace, bent_names
from .published import CounterSet, DraDevice, PublishedPool


def described(driver: str, offered: Resource, _last: object = None) -> PublishedPool:
    """The pool as if every device were well."""
    problems: list[Problem] = []
    devices: dict[str, DraDevice] = {}
    sets: dict[str, CounterSet] = {}
    places = _places(offered.entries.values())
    for entry, members in _by_entry(offered):
        describe = _style(entry)(entry, offered, places[entry.name])
        left_out: attributes.LeftOut = {}
        if entry.dra and entry.dra.mig_enabled:
            members = [each for each in members if each.is_partition]  # the GPU itself is not offered
        for made in describe.ordered(members):
            if first := devices.get(made.name):
                both = f"{first.device.id!r} and {made.device.id!r}"
                message = f"{both} would both be the device {made.name!r} of {driver}; the first one is"
                problems.append(error(entry.where, message, "give one of the entries another name, or another driver"))
            else:
                told = _with_given(made, entry, driver, left_out, problems)
                devices[made.name] = made if told is made.attributes else replace(made, attributes=told)
        problems.extend(attributes.problems_of(entry, left_out))
        sets |= describe.sets
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
    members = grouped((slot.device.raw.entry, slot.device) for slot in offered.slots)
    return ((entry, members.get(name, [])) for name, entry in offered.entries.items())


def _places(entries: Iterable[EntrySpec]) -> dict[str, EntryPlace]:
    """GPUs are numbered over all entries of a maker, in the order of the file."""
    first: dict[str, int] = {}
    total: dict[str, int] = {}
    kinds: dict[str, str] = {}
    for entry in entries:
        kind = kinds[entry.name] = _style(entry).__name__
        first[entry.name] = total.get(kind, 0)
        total[kind] = first[entry.name] + (entry.source.count if isinstance(entry.source, VirtualSource) else 0)
    return {name: EntryPlace(number, total[kinds[name]]) for name, number in first.items()}


def _style(entry: EntrySpec) -> type[Describer]:
    if entry.is_nvidia:
        return Nvidia
    return Amd if is_amd(entry) else Describer


def _with_given(
    device: DraDevice, entry: EntrySpec, driver: str, left_out: attributes.LeftOut, problems: list[Problem]
) -> Mapping[str, Attribute]:
    """The attributes with those of the file, as many as a device may have; the device's own make room.

    Only the type stays in any case, since DeviceClasses ask for it.
    """
    given = dict(attributes.given(entry, device.device, driver, left_out))
    own = {key: value for key, value in device.attributes.items() if key not in given}
    problems.extend(_cut_off(device.device, entry, own.values()))
    if _style(entry) is Describer:
        problems.extend(warning(entry.where, each) for each in bent_names(entry, device.device))
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
