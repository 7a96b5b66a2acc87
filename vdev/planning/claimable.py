"""The devices that claims can get, by the driver that publishes them, with the partitions that claims may get.

The devices of each driver are a Resource with the driver's name, so that health and faults apply to it as to the
resources of the device plugin. MIG strategies and name patterns do not apply to claims.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ..model.device import Device, RawDevice, Slot, grouped
from ..model.entry import Entry
from ..model.problem import Problem, warning
from ..model.spec import Spec
from . import naming, sharing
from .partitions import placements
from .resources import Resource


def by_driver(
    problems: list[Problem], spec: Spec, entries: Sequence[Entry], found: Mapping[str, Sequence[RawDevice]]
) -> Mapping[str, Resource]:
    """The devices of these entries that claims can get, by driver. A driver may currently have no device."""
    of_driver: dict[str, dict[str, Entry]] = {}
    slots: dict[str, list[Slot]] = defaultdict(list)
    replicas: dict[str, dict[str, int]] = defaultdict(dict)  # of the shared devices
    ordinals: dict[str, int] = {}  # the next free ordinal of each resource
    for entry in entries:
        raws, first = found.get(entry.name, ()), ordinals.get(entry.resource, 0)
        ordinals[entry.resource] = first + max((raw.index + 1 for raw in raws), default=0)
        if entry.dra:
            driver = entry.dra.driver
            devices = [each for raw in raws for each in _devices(problems, entry, raw, first + raw.index)]
            of_driver.setdefault(driver, {})[entry.name] = entry
            slots[driver] += (Slot(device.id, device, None, device.health) for device in devices)
            replicas[driver] |= _replicas(problems, spec, entry, devices)
    return {
        driver: Resource(
            name=driver,
            slots=tuple(slots[driver]),
            entries=own,
            sharing=sharing.sharing_of(spec.sharing, replicas[driver]),
            flags=spec.flags,
        )
        for driver, own in of_driver.items()
    }


def _devices(problems: list[Problem], entry: Entry, raw: RawDevice, ordinal: int) -> Iterator[Device]:
    assert entry.dra is not None
    wanted = None if entry.dra.mig_enabled is False else entry.parts(raw.index)
    is_dynamic = entry.dra.is_dynamic and entry.dra.mig_enabled is not False
    if wanted is None or (is_dynamic and entry.geometry):
        yield naming.whole_device(raw, ordinal)
    if is_dynamic and entry.geometry:
        for number, placement in enumerate(placements(entry.geometry)):
            yield naming.partition(entry, raw, f"{ordinal}:{number}", placement)
    elif wanted is not None:
        yield from naming.listed_partitions(problems, entry, raw, ordinal, wanted)


def _replicas(problems: list[Problem], spec: Spec, entry: Entry, devices: Sequence[Device]) -> dict[str, int]:
    """The number of claims that may use each device at the same time, if the section `sharing` names its resource."""
    if spec.sharing is None or not devices:
        return {}
    named = ((naming.name_of(spec, entry, device.profile), device) for device in devices)
    by_name = grouped((name[0], device) for name, device in named if not isinstance(name, Problem))
    found: dict[str, int] = {}
    for name, members in by_name.items():
        rules = [rule for rule in spec.sharing.resources if rule.name == name]
        if not rules:
            continue
        entries = frozenset(each.name for each in spec.entries)
        is_dynamic = entry.dra is not None and entry.dra.is_dynamic
        chosen = sharing.chosen([] if is_dynamic else problems, name, members, rules, entries)
        shared = {each: rule.replicas for each, rule in chosen.items() if rule.replicas > 1}
        if is_dynamic and shared:
            message = f"claims do not share {name} of {entry.name}, whose partitions are dynamic"
            hint = "set dra.partitions to static where claims are to share devices"
            problems.append(warning(rules[0].where, message, hint))
        elif not is_dynamic:
            found |= shared
    return found
