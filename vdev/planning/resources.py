"""What a node advertises at one moment: its resources, their slots, and the verdicts on them.

    inventory.arrange() configuration + raw devices  -> Inventory, as discovery sees it
    with_health()       Inventory + probes' verdicts -> Inventory
    diff()              old, new                     -> changes; none for a resource that stayed the same

What a pod may still hold is added by `retention.retain`, after health and before the difference is taken.
"""

from collections.abc import Callable, KeysView, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..model.device import HEALTHY, Device, Health, Slot
from ..model.entry import Entry
from ..model.problem import Problem
from ..model.spec import DEFAULT_FLAGS, Flags
from .list_size import list_size
from .sharing import Sharing


@dataclass(frozen=True)
class Resource:
    """One extended resource: its slots in order, and what answers for its devices need.

    `entries` maps an entry's name to its specification; several entries may feed one resource. `draining`: the
    configuration no longer has it, and it lives on only for what pods may hold. `pre_start_asked`: a fault rule is
    about PreStartContainer, which the kubelet must then call.
    """

    name: str
    slots: tuple[Slot, ...]
    entries: Mapping[str, Entry] = field(default_factory=dict)
    sharing: Sharing | None = None
    flags: Flags = DEFAULT_FLAGS
    draining: bool = False
    pre_start_asked: bool = False

    @cached_property
    def by_id(self) -> Mapping[str, Slot]:
        """Slots by id."""
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def by_device(self) -> Mapping[str, Device]:
        """Devices by id."""
        return {slot.device.id: slot.device for slot in self.slots}

    @cached_property
    def ids(self) -> KeysView[str]:
        """The ids of all slots."""
        return self.by_id.keys()

    @cached_property
    def raws(self) -> frozenset[str]:
        """The ids of all raw devices."""
        return frozenset(slot.device.raw.id for slot in self.slots)

    @cached_property
    def healthy(self) -> int:
        """How many slots are Healthy: the kubelet's allocatable."""
        return sum(slot.health.healthy for slot in self.slots)

    @cached_property
    def drilled(self) -> int:
        """How many slots are Unhealthy because a fault rule says so."""
        return sum(slot.health.drilled for slot in self.slots)

    def is_drilled(self, slot: str) -> bool:
        """Whether it lists that slot, as Unhealthy because a fault rule says so."""
        return slot in self.by_id and self.by_id[slot].health.drilled

    @cached_property
    def rendered(self) -> dict[str, Any]:
        """Room for what answers need of each device, by its id; filled by `allocation.of_devices`."""
        return {}

    @cached_property
    def acts_on_handovers(self) -> bool:
        """Whether anything is done when one of its devices changes hands."""
        return any(entry.acts_on_handovers for entry in self.entries.values())

    @property
    def pre_start_required(self) -> bool:
        """Whether the kubelet must call PreStartContainer before each container start."""
        return self.pre_start_asked or self.acts_on_handovers or any(entry.pre_start for entry in self.entries.values())

    @cached_property
    def only_claimed(self) -> "Resource":
        """Of what a driver offers, the devices that no resource lists; of one that claims may cut, only the whole."""
        entries = {name: entry.without_node for name, entry in self.entries.items() if not entry.listed}
        slots = [slot for slot in self.slots if slot.device.raw.entry in entries]
        uncut = {slot.device.raw.id for slot in slots if not slot.device.is_partition}
        kept = (slot for slot in slots if not slot.device.is_partition or slot.device.raw.id not in uncut)
        return replace(self, slots=tuple(kept), entries=entries)

    @cached_property
    def list_bytes(self) -> int:
        """Bytes of its device list on the wire."""
        return list_size(self.slots)


@dataclass(frozen=True)
class Inventory:
    """All resources of the node by name, and what a person should know about them.

    `claimable` is what Dynamic Resource Allocation offers, by driver; the same device may be in a resource, too.
    """

    resources: Mapping[str, Resource] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # device id -> its resource's name, and why
    left_out: frozenset[str] = frozenset()  # raw devices that were found and are not handed out; they are not probed
    claimable: Mapping[str, Resource] = field(default_factory=dict)

    @cached_property
    def size(self) -> int:
        """How many slots the resources have."""
        return sum(len(resource.slots) for resource in self.resources.values())

    @property
    def raws(self) -> frozenset[str]:
        """The ids of all raw devices that resources list."""
        return frozenset[str]().union(*(resource.raws for resource in self.resources.values()))

    @property
    def everything(self) -> Mapping[str, Resource]:
        """All that a pod can get, under the name of a resource or of a driver."""
        return {**self.resources, **self.claimable} if self.claimable else self.resources

    @cached_property
    def each_once(self) -> Mapping[str, Resource]:
        """All devices, each under one name: those that only claims get under that of their driver.

        Of a device that claims may cut, only the whole is there.
        """
        only_claimed = {name: offered.only_claimed for name, offered in self.claimable.items()}
        return {**self.resources, **{name: each for name, each in only_claimed.items() if each.slots}}

    def changed(self, change: Callable[[Resource], Resource]) -> "Inventory":
        """With what `change` makes of each resource, and of what each driver offers."""
        return replace(
            self,
            resources={name: change(each) for name, each in self.resources.items()},
            claimable={name: change(each) for name, each in self.claimable.items()},
        )


EMPTY = Inventory()


def with_health(inventory: Inventory, verdicts: Mapping[str, Health]) -> Inventory:
    """The inventory with probes' (or faults') verdicts by raw device id; a failed device fails all its replicas and
    partitions.

    A device that discovery found broken stays broken, with discovery's reason.
    """
    bad = {raw: verdict for raw, verdict in verdicts.items() if verdict != HEALTHY}

    def judged(slot: Slot) -> Slot:
        raw = slot.device.raw
        return replace(slot, health=bad[raw.id]) if raw.id in bad and raw.health.healthy else slot

    return inventory.changed(
        lambda each: each if bad.keys().isdisjoint(each.raws) else replace(each, slots=tuple(map(judged, each.slots)))
    )


def without_tools(inventory: Inventory, raws: frozenset[str]) -> Inventory:
    """The inventory where the containers of these raw devices do without the tools of their maker."""

    def bare(slot: Slot) -> Slot:
        raw = slot.device.raw
        return replace(slot, device=replace(slot.device, raw=replace(raw, tools=""))) if raw.id in raws else slot

    return inventory.changed(
        lambda each: each if raws.isdisjoint(each.raws) else replace(each, slots=tuple(map(bare, each.slots)))
    )


def counts(inventory: Inventory) -> dict[str, int]:
    """The devices that are listed, by resource."""
    return {name: len(resource.slots) for name, resource in inventory.resources.items()}


def for_claims(inventory: Inventory) -> dict[str, int]:
    """The devices that claims can get whole or in parts, by driver."""
    return {driver: len(resource.raws) for driver, resource in inventory.claimable.items()}


def summary(inventory: Inventory) -> str:
    """The counts in a line, as in `acme.dev/npu 2; for claims gpu.nvidia.com 4`."""
    parts = {"": counts(inventory), "for claims ": for_claims(inventory)}
    told = (what + ", ".join(f"{name} {count}" for name, count in of.items()) for what, of in parts.items() if of)
    return "; ".join(told) or "no devices"


def numbers(inventory: Inventory) -> dict[str, int]:
    """The number of each device among those of its maker on the node, as a driver counts them, by raw device id.

    Entry after entry, in the order of their indices.
    """
    indices: dict[tuple[str, str], dict[str, int]] = {}
    for resource in inventory.everything.values():
        for device in resource.by_device.values():
            entry = resource.entries.get(device.raw.entry)
            maker = entry.virtual.maker_resource if entry is not None and entry.virtual else ""
            indices.setdefault((maker, device.raw.entry), {})[device.raw.id] = device.raw.index
    found: dict[str, int] = {}
    first: dict[str, int] = {}
    for (maker, _), mine in indices.items():
        offset = first.get(maker, 0)
        found |= {raw: offset + index for raw, index in mine.items()}
        first[maker] = offset + max(mine.values()) + 1
    return found


@dataclass(frozen=True, slots=True)
class Added:
    """A resource that must be served and registered."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class RemovedResource:
    """A resource that nothing needs any more."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class ChangedResource:
    """A resource whose devices, or what they give to containers, changed; its open stream carries the news."""

    old: Resource
    new: Resource

    @property
    def added(self) -> tuple[str, ...]:
        """Ids that are new."""
        return tuple(each for each in self.new.ids if each not in self.old.ids)

    @property
    def removed(self) -> tuple[str, ...]:
        """Ids that are gone."""
        return tuple(each for each in self.old.ids if each not in self.new.ids)

    @property
    def health(self) -> tuple[tuple[str, Health], ...]:
        """Ids whose health or its reason changed, with the new one."""
        old = self.old.by_id
        return tuple(
            (slot.id, slot.health)
            for slot in self.new.slots
            if (before := old.get(slot.id)) and before.health != slot.health
        )


Change = Added | RemovedResource | ChangedResource


def diff(old: Inventory, new: Inventory) -> tuple[Change, ...]:
    """What must be done to get from `old` to `new`; empty for equal inventories."""
    changes: list[Change] = [
        RemovedResource(resource) for name, resource in old.resources.items() if name not in new.resources
    ]
    for name, resource in new.resources.items():
        before = old.resources.get(name)
        if before is None:
            changes.append(Added(resource))
        elif before != resource:
            changes.append(ChangedResource(before, resource))
    return tuple(changes)
