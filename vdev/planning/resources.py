"""The inventory of a node: its resources, their slots, and the health of each.

inventory.arrange()    configuration + raw devices -> Inventory, as discovery sees it
as_observed()          Inventory + health          -> Inventory
retired.keep_in_use()  Inventory + devices in use  -> the lists
diff()                 old and new lists           -> the changed resources
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_
from typing import Any

from ..model.device import HEALTHY, Device, Health, Slot
from ..model.entry import Entry
from ..model.problem import Problem
from ..model.spec import DEFAULT_FLAGS, Flags, TimeSlicing
from .preferred import preferred

LIST_LIMIT = 4 * 1024 * 1024  # bytes; the receive limit of the kubelet (source: grpc-go's default)
_HEAD = 2  # bytes of a protobuf field before its content: its key, and a length below 128


def list_size(slots: Iterable[Slot], *, healthy: bool | None = None) -> int:
    """The bytes of a device list on the wire, with the health of each slot or with the given health."""
    size = 0
    for slot in slots:
        works = slot.health.healthy if healthy is None else healthy
        size += _HEAD + _HEAD + len(slot.id) + _HEAD + len("Healthy" if works else "Unhealthy")
        if numa := slot.device.raw.topology:
            size += _HEAD + sum(_HEAD + (2 if node else 0) for node in numa)  # protobuf does not send the default, 0
    return size


@dataclass(frozen=True)
class Resource:
    """One extended resource. A slot is one id in its device list: a device, a partition, or a replica of one."""

    name: str
    slots: tuple[Slot, ...]
    entries: Mapping[str, Entry] = field(default_factory=dict)
    """The entries that have its devices, by name."""
    sharing: TimeSlicing | None = None
    flags: Flags = DEFAULT_FLAGS
    draining: bool = False
    """Whether it was removed from the configuration and is listed only because pods may hold its devices."""
    pre_start_asked: bool = False
    """Whether a fault rule affects PreStartContainer, so that the kubelet must call it."""

    def with_slots(self, change: "SlotChange") -> "Resource":
        """Return the resource with `change` applied to each slot; the same object if nothing changed."""
        changed = [change(self.name, slot) for slot in self.slots]
        if all(map(is_, changed, self.slots)):
            return self
        return replace(self, slots=tuple(slot for slot in changed if slot is not None))

    @cached_property
    def by_id(self) -> Mapping[str, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def by_device(self) -> Mapping[str, Device]:
        return {slot.device.id: slot.device for slot in self.slots}

    @cached_property
    def raws(self) -> frozenset[str]:
        return frozenset(slot.device.raw.id for slot in self.slots)

    @cached_property
    def healthy(self) -> int:
        """The number of Healthy slots, which is the kubelet's allocatable."""
        return sum(slot.health.healthy for slot in self.slots)

    @cached_property
    def injected(self) -> int:
        """The number of slots that a fault rule made Unhealthy."""
        return sum(slot.health.is_injected for slot in self.slots)

    @cached_property
    def rendered(self) -> dict[str, Any]:
        """A cache of the container edits of each device, by id, for `allocation.container_edits`."""
        return {}

    def preferred(self, available: Iterable[str], must_include: Collection[str], size: int) -> list[str]:
        """The devices that a container should get, by links, NUMA nodes and the policy. See `preferred.preferred`."""
        raws = {(slot.device.raw.entry, slot.device.raw.index): slot.device.raw.id for slot in self.slots}
        links: dict[tuple[str, str], int] = {}
        for name, entry in self.entries.items():
            for (one, other), score in entry.virtual.links.items() if entry.virtual else ():
                if (name, one) in raws and (name, other) in raws:
                    links[raws[name, one], raws[name, other]] = score
        policy = self.flags.plugin.shared_devices_allocation_policy
        return preferred(self.slots, available, must_include, size, links=links, policy=policy)

    @cached_property
    def acts_on_handovers(self) -> bool:
        """Whether an action is configured for the allocation or release of its devices."""
        return any(entry.acts_on_handovers for entry in self.entries.values())

    @cached_property
    def pre_start_required(self) -> bool:
        """Whether the kubelet must call PreStartContainer before each container start."""
        return self.pre_start_asked or any(each.pre_start or each.acts_on_handovers for each in self.entries.values())

    @cached_property
    def only_claimed(self) -> "Resource":
        """The devices for claims that no resource lists; a device that claims may partition is included as a whole."""
        entries = {name: entry.without_node for name, entry in self.entries.items() if not entry.listed}
        slots = [slot for slot in self.slots if slot.device.raw.entry in entries]
        uncut = {slot.device.raw.id for slot in slots if not slot.device.is_partition}
        kept = (slot for slot in slots if not slot.device.is_partition or slot.device.raw.id not in uncut)
        return replace(self, slots=tuple(kept), entries=entries)

    @cached_property
    def list_bytes(self) -> int:
        return list_size(self.slots)


@dataclass(frozen=True)
class Inventory:
    """All resources of the node."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    """The resources by name."""
    problems: tuple[Problem, ...] = ()
    """Problems of devices, names, partitions and sharing."""
    left_out: frozenset[str] = frozenset()
    """The raw devices that were found but are not handed out. They are not probed."""
    claimable: Mapping[str, Resource] = field(default_factory=dict)
    """The devices that claims can get, by driver, as a resource with the driver's name, so that health and faults apply
    to them as to resources. A device may also be in a resource."""

    @property
    def raws(self) -> frozenset[str]:
        """The ids of all raw devices that resources list."""
        return frozenset[str]().union(*(resource.raws for resource in self.resources.values()))

    @property
    def everything(self) -> Mapping[str, Resource]:
        """All devices that pods can get, by resource or driver."""
        return {**self.resources, **self.claimable} if self.claimable else self.resources

    @cached_property
    def each_once(self) -> Mapping[str, Resource]:
        """All devices, each under one name; devices that only claims can get have the name of their driver.

        A device that claims may partition is included as a whole.
        """
        only_claimed = {name: offered.only_claimed for name, offered in self.claimable.items()}
        return {**self.resources, **{name: each for name, each in only_claimed.items() if each.slots}}

    def with_slots(self, change: "SlotChange") -> "Inventory":
        """Return the inventory with `change` applied to each slot of resources and of devices for claims."""
        return replace(
            self,
            resources={name: each.with_slots(change) for name, each in self.resources.items()},
            claimable={name: each.with_slots(change) for name, each in self.claimable.items()},
        )


SlotChange = Callable[[str, Slot], Slot | None]
"""Returns the new slot for a slot of the named resource or driver; None removes it."""

EMPTY = Inventory()


def as_observed(inventory: Inventory, verdicts: Mapping[str, Health], without_tools: frozenset[str]) -> Inventory:
    """Set the health of raw devices, and take the vendor's tools from others, by the ids of raw devices.

    Both apply to all partitions and replicas of a device. A device that discovery found unhealthy stays so, with
    discovery's reason.
    """
    bad = {raw: verdict for raw, verdict in verdicts.items() if verdict != HEALTHY}

    def judged(_name: str, slot: Slot) -> Slot:
        raw = slot.device.raw
        if raw.id in bad and raw.health.healthy:
            slot = replace(slot, health=bad[raw.id])
        if raw.id in without_tools:
            slot = replace(slot, device=replace(slot.device, raw=replace(raw, tools="")))
        return slot

    return inventory.with_slots(judged) if bad or without_tools else inventory


def counts(inventory: Inventory) -> dict[str, int]:
    """The number of slots of each resource, and the number of devices that claims can get, by driver."""
    listed = {name: len(resource.slots) for name, resource in inventory.resources.items()}
    return listed | {driver: len(resource.raws) for driver, resource in inventory.claimable.items()}


def numbers(inventory: Inventory) -> dict[str, int]:
    """The number of each device among the devices of its vendor, as in the vendor's driver, by raw device id.

    Devices are numbered entry by entry, in the order of their indices.
    """
    of_entries: dict[tuple[str, str], dict[str, int]] = {}
    for resource in inventory.everything.values():
        for device in resource.by_device.values():
            entry = resource.entries.get(device.raw.entry)
            vendor = entry.virtual.model.resource if entry is not None and entry.virtual else ""
            of_entries.setdefault((vendor, device.raw.entry), {})[device.raw.id] = device.raw.index
    found: dict[str, int] = {}
    first = Counter[str]()  # by vendor: the next free number
    for (vendor, _), indices in of_entries.items():
        found |= {raw: first[vendor] + index for raw, index in indices.items()}
        first[vendor] += max(indices.values()) + 1
    return found


@dataclass(frozen=True, slots=True)
class Change:
    """A resource that was added (`old` is None), removed (`new` is None) or changed."""

    name: str
    old: Resource | None
    new: Resource | None
    added: Sequence[str]
    removed: Sequence[str]
    health: Sequence[tuple[str, Health, Health]]
    """The old and new health of each id whose health or reason changed."""


def diff(old: Inventory, new: Inventory) -> Sequence[Change]:
    """The changes from `old` to `new`: resources that are removed, then the others."""
    changes = []
    for name in (*sorted(old.resources.keys() - new.resources.keys()), *new.resources):
        before, after = old.resources.get(name), new.resources.get(name)
        if before == after:
            continue
        old_slots, new_slots = before.by_id if before else {}, after.by_id if after else {}
        added, health = [], []
        for each, slot in new_slots.items():
            if each not in old_slots:
                added.append(each)
            elif old_slots[each].health != slot.health:
                health.append((each, old_slots[each].health, slot.health))
        removed = [each for each in old_slots if each not in new_slots]
        changes.append(Change(name, before, after, added, removed, health))
    return changes
