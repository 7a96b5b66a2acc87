"""What a node advertises at one moment: its resources, their slots, and the verdicts on them.

    arrange.arrange()   configuration + raw devices  -> Inventory, as discovery sees it   (slow road)
    with_health()       Inventory + probes' verdicts -> Inventory                         (fast road)
    difference.diff()   old, new                     -> changes; none for a resource that stayed the same

What a pod may still hold is added by `retention.retain`, after health and before the difference is taken.
"""

from collections.abc import Callable, KeysView, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import is_
from typing import Any

from ..memory import Memory
from ..model import spans
from ..model.device import HEALTHY, Device, Health, Slot
from ..model.problem import Problem
from ..spec import EntrySpec, Flags
from . import list_size
from .listed.sharing import Sharing


@dataclass(frozen=True)
class Resource:
    """One extended resource: its slots in order, and what answers for its devices need.

    `entries` maps an entry's name to its specification; several entries may feed one resource. `draining`: the
    configuration no longer has it, and it lives on only for what pods may hold. `pre_start_asked`: a fault rule is
    about PreStartContainer, which the kubelet must then call.
    """

    name: str
    slots: tuple[Slot, ...]
    entries: Mapping[str, EntrySpec] = field(default_factory=dict)
    sharing: Sharing | None = None
    flags: Flags = Flags()
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
    def raws(self) -> AbstractSet[str]:
        """The ids of all raw devices."""
        return frozenset(slot.device.raw.id for slot in self.slots)

    @cached_property
    def by_raw(self) -> Mapping[str, tuple[int, ...]]:
        """Positions in `slots` by raw device id."""
        positions: dict[str, list[int]] = {}
        for position, slot in enumerate(self.slots):
            positions.setdefault(slot.device.raw.id, []).append(position)
        return {raw: tuple(where) for raw, where in positions.items()}

    @cached_property
    def healthy(self) -> int:
        """How many slots are Healthy: the kubelet's allocatable."""
        return sum(slot.health.healthy for slot in self.slots)

    def has_all_of(self, other: "Resource") -> bool:
        """Whether it has every id that the other one has."""
        own, theirs = self.ids, other.ids
        if own is theirs:
            return True
        pairs = zip(spans.batches(theirs), spans.batches(own), strict=False)  # most are where they were
        return len(own) >= len(theirs) and all(
            some == same or all(each in own for each in some) for some, same in pairs
        )

    @cached_property
    def drilled(self) -> int:
        """How many slots are Unhealthy because a fault rule says so."""
        return sum(slot.health.drilled for slot in self.slots)

    def is_drilled(self, slot: str) -> bool:
        """Whether it lists that slot, as Unhealthy because a fault rule says so."""
        return slot in self.by_id and self.by_id[slot].health.drilled

    @cached_property
    def prepared(self) -> dict[str, Any]:
        """Room for what answers need of each device, by its id; see `allocation.device_edits`."""
        return {}

    @cached_property
    def ready(self) -> dict[bytes, tuple[str, bytes]]:
        """Room for answers to requests for one slot, by the request: the slot's id, and the answer (`plugin.encode`).

        The bytes are those of the kubelet's messages. Whether the slot is healthy is another matter.
        """
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
        return list_size.list_size(self.slots)

    def having(self, slots: Sequence[Slot]) -> "Resource":
        """The resource with these slots; itself, where they are the very ones that it has."""
        same = len(slots) == len(self.slots) and all(map(is_, slots, self.slots))
        return self if same else replace(self, slots=tuple(slots))

    def with_slots(self, others: Mapping[int, Slot]) -> "Resource":
        """The same resource with other slots at these positions, each for the same id of the same device.

        What is known of all slots is brought up to date instead of being counted again: one device among 70 000 may
        change many times.
        """
        slots = list(self.slots)
        for position, slot in others.items():
            slots[position] = slot
        pairs = [(self.slots[position], slot) for position, slot in others.items()]
        changed = replace(self, slots=tuple(slots))
        changed.__dict__.update(  # where cached properties keep their values
            prepared=self.prepared,
            ready=self.ready,
            ids=self.ids,
            raws=self.raws,
            by_raw=self.by_raw,
            by_id={**self.by_id, **{slot.id: slot for slot in others.values()}},
            healthy=self.healthy + sum(new.health.healthy - old.health.healthy for old, new in pairs),
            drilled=self.drilled + sum(new.health.drilled - old.health.drilled for old, new in pairs),
            list_bytes=self.list_bytes + sum(list_size.slot_size(new) - list_size.slot_size(old) for old, new in pairs),
        )
        return changed


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
    def raws(self) -> AbstractSet[str]:
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


def with_health(inventory: Inventory, verdicts: Mapping[str, Health], memory: Memory | None = None) -> Inventory:
    """The inventory with probes' (or faults') verdicts by raw device id; a failed device fails all its replicas and
    partitions.

    A device that discovery found broken stays broken, with discovery's reason. Resources without a bad verdict are the
    same objects as before; with the `memory` of the last call, so are those whose verdicts are the same.
    """
    memory = memory or Memory()
    bad = {raw: verdict for raw, verdict in verdicts.items() if verdict is not HEALTHY}

    with memory.round():
        return inventory.changed(lambda each: _with_verdicts(each, bad, memory)) if bad else inventory


def _with_verdicts(resource: Resource, bad: Mapping[str, Health], memory: Memory) -> Resource:
    own = {raw: bad[raw] for raw in sorted(bad.keys() & resource.raws)}
    if not own:
        return resource
    make = partial(_judged, resource, own)
    judged: Resource = memory.recall("judged", (resource.name, *own), (resource, *own.values()), make)
    return judged


def _judged(resource: Resource, verdicts: Mapping[str, Health], _last: object) -> Resource:
    others: dict[int, Slot] = {}
    for raw, verdict in verdicts.items():
        for position in resource.by_raw[raw]:
            slot = resource.slots[position]
            health = slot.health if not slot.device.raw.health.healthy else verdict
            if health != slot.health:
                others[position] = replace(slot, health=health)
    return resource.with_slots(others) if others else resource


def without_tools(inventory: Inventory, raws: frozenset[str]) -> Inventory:
    """The inventory where the containers of these raw devices do without the tools of their maker."""

    def bare(slot: Slot) -> Slot:
        raw = slot.device.raw
        return replace(slot, device=replace(slot.device, raw=replace(raw, tools=""))) if raw.id in raws else slot

    return inventory.changed(
        lambda each: each if raws.isdisjoint(each.raws) else replace(each, slots=tuple(map(bare, each.slots)))
    )
