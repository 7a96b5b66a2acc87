"""Everything a node advertises at one moment, built from the configuration and what discovery found, and the
difference of two.

    arrange()       configuration + raw devices  -> Inventory, as discovery sees it   (slow road, on a change of either)
    with_health()   Inventory + probes' verdicts -> Inventory                         (fast road, touches what changed)
    diff()          old, new                     -> changes, nothing for a resource that stayed the same

What a pod may still hold is added by `retain`, between these two roads and the diff.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain

from ..memory import Memory
from ..model import names
from ..model.device import HEALTHY, Health, RawDevice, Slot
from ..model.problem import Problem, error, warning
from ..spec import EntrySpec, Flags, Spec
from . import list_size, naming, node_owners, refusal, sharing
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
    entries: Mapping[str, EntrySpec] = field(default_factory=dict)
    sharing: Sharing | None = None
    flags: Flags = Flags()  # noqa: RUF009 - frozen
    draining: bool = False
    pre_start_asked: bool = False

    @cached_property
    def by_id(self) -> Mapping[str, Slot]:
        """Slots by id."""
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def ids(self) -> frozenset[str]:
        """The ids of all slots."""
        return frozenset(slot.id for slot in self.slots)

    @cached_property
    def raws(self) -> frozenset[str]:
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

    @property
    def pre_start_required(self) -> bool:
        """Whether the kubelet must call PreStartContainer before each container start."""
        return self.pre_start_asked or any(entry.pre_start for entry in self.entries.values())

    @cached_property
    def list_bytes(self) -> int:
        """Bytes of its device list on the wire."""
        return list_size.list_size(self.slots)

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
            ids=self.ids,
            raws=self.raws,
            by_raw=self.by_raw,
            by_id={**self.by_id, **{slot.id: slot for slot in others.values()}},
            healthy=self.healthy + sum(new.health.healthy - old.health.healthy for old, new in pairs),
            list_bytes=self.list_bytes + sum(list_size.slot_size(new) - list_size.slot_size(old) for old, new in pairs),
        )
        return changed


@dataclass(frozen=True)
class Inventory:
    """All resources of the node by name, and what a person should know about them."""

    resources: Mapping[str, Resource] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)  # device id -> why its resource is named so
    left_out: frozenset[str] = frozenset()  # raw devices that were found and are not handed out; they are not probed


EMPTY = Inventory()


def arrange(spec: Spec, node: str, found: Mapping[str, Sequence[RawDevice]], memory: Memory | None = None) -> Inventory:
    """The inventory of a node: owners, partitions, names, replicas; every error leaves out what it concerns and
    nothing else.

    With the `memory` of the last time, resources that nothing changed are the same objects, and so are slots.
    """
    memory = memory or Memory()
    memory.begin()
    claimed = node_owners.settle(spec.on_node(node), found, memory)
    judged = refusal.settle(spec.on_node(node), claimed.devices, memory)
    advertised = naming.advertise(spec, node, judged.devices, memory)
    shared = sharing.share(advertised.devices, spec.sharing, memory)
    problems = [*claimed.problems, *judged.problems, *advertised.problems, *shared.problems]
    entries = {entry.name: entry for entry in spec.on_node(node)}
    portions = {
        name: tuple(
            memory.recall("portion", (name, n), (each,), partial(_portion, each)) for n, each in enumerate(slots)
        )
        for name, slots in shared.slots.items()
    }
    if not _ids_are_fine(portions.values()):
        portions = _with_fine_ids(portions, problems, entries)
    resources: dict[str, Resource] = {}
    for name, parts in portions.items():
        make = partial(_resource, spec, name, parts, entries, shared.sharing.get(name))
        resource = memory.recall("resource", name, (spec, *parts), make)
        where = _where(resource.slots, entries, name)
        complaint = names.resource_name_problem(name)
        if complaint:
            problems.append(error(where, f"the kubelet would refuse the resource name: {complaint}"))
        elif resource.list_bytes > list_size.LIST_LIMIT:
            problems.append(_too_large(resource, where))
        else:
            resources[name] = resource
            at_worst = sum(part.bytes_at_worst for part in parts)
            if at_worst > list_size.LIST_LIMIT:
                problems.append(_nearly_too_large(resource, at_worst, where))
    return Inventory(resources, tuple(problems), advertised.reasons, claimed.left_out | judged.refused)


@dataclass(frozen=True)
class _Portion:
    """Slots in a row, and what is known of all of them."""

    slots: tuple[Slot, ...]

    @cached_property
    def by_id(self) -> Mapping[str, Slot]:
        return {slot.id: slot for slot in self.slots}

    @cached_property
    def raws(self) -> frozenset[str]:
        return frozenset(slot.device.raw.id for slot in self.slots)

    @cached_property
    def longest_id(self) -> int:
        return max(map(len, self.by_id), default=0)

    @cached_property
    def entries(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(slot.device.raw.entry for slot in self.slots))

    @cached_property
    def healthy(self) -> int:
        return sum(slot.health.healthy for slot in self.slots)

    @cached_property
    def list_bytes(self) -> int:
        return list_size.list_size(self.slots)

    @cached_property
    def bytes_at_worst(self) -> int:
        return list_size.list_size(self.slots, healthy=False)


def _portion(slots: tuple[Slot, ...], _last: object) -> _Portion:
    return _Portion(slots)


def _resource(
    spec: Spec,
    name: str,
    portions: Sequence[_Portion],
    entries: Mapping[str, EntrySpec],
    replicas: Mapping[str, int] | None,
    _last: object,
) -> Resource:
    """The resource of these portions; what is known of them is summed up instead of being counted again."""
    used = {entry: entries[entry] for portion in portions for entry in portion.entries}
    resource = Resource(
        name=name,
        slots=tuple(chain.from_iterable(portion.slots for portion in portions)),
        entries=used or {key: entry for key, entry in entries.items() if entry.resource == name},
        sharing=Sharing(spec.sharing.kind, spec.sharing.fail_requests_greater_than_one, replicas)
        if spec.sharing and replicas
        else None,
        flags=spec.flags,
    )
    by_id: dict[str, Slot] = {}
    for portion in portions:
        by_id.update(portion.by_id)
    resource.__dict__.update(  # where cached properties keep their values
        by_id=by_id,
        ids=frozenset(by_id),
        raws=frozenset[str]().union(*(portion.raws for portion in portions)),
        healthy=sum(portion.healthy for portion in portions),
        list_bytes=sum(portion.list_bytes for portion in portions),
    )
    return resource


def _ids_are_fine(resources: Iterable[Sequence[_Portion]]) -> bool:
    """Whether no id is too long and none is there twice."""
    portions = list(chain.from_iterable(resources))
    if max((portion.longest_id for portion in portions), default=0) > names.MAX_ID:
        return False
    distinct = set[str]().union(*(portion.by_id for portion in portions))
    return len(distinct) == sum(len(portion.slots) for portion in portions)


def _with_fine_ids(
    portions: Mapping[str, Sequence[_Portion]], problems: list[Problem], entries: Mapping[str, EntrySpec]
) -> dict[str, tuple[_Portion, ...]]:
    """The portions without slots whose id is too long, or taken."""
    seen: dict[str, str] = {}
    return {
        name: tuple(_Portion(tuple(_unique(part.slots, name, seen, problems, entries))) for part in parts)
        for name, parts in portions.items()
    }


def _where(slots: Sequence[Slot], entries: Mapping[str, EntrySpec], name: str) -> str:
    if slots:
        return entries[slots[0].device.raw.entry].where
    return next((entry.where for entry in entries.values() if entry.resource == name), "")


def _unique(
    slots: Iterable[Slot], name: str, seen: dict[str, str], problems: list[Problem], entries: Mapping[str, EntrySpec]
) -> list[Slot]:
    """The slots whose ids are new on this node: the kubelet looks health up by the bare id, over all resources."""
    kept = []
    for slot in slots:
        where = entries[slot.device.raw.entry].where
        if slot.id in seen:
            problems.append(
                error(where, f"device id {slot.id!r} exists twice on this node: in {seen[slot.id]!r} and {name!r}")
            )
        elif len(slot.id) > names.MAX_ID:
            problems.append(
                error(where, f"device id {slot.id!r} has {len(slot.id)} characters; at most {names.MAX_ID} are allowed")
            )
        else:
            seen[slot.id] = name
            kept.append(slot)
    return kept


def _too_large(resource: Resource, where: str) -> Problem:
    count, size = len(resource.slots), resource.list_bytes
    fits = count * list_size.LIST_LIMIT // size
    return error(
        where,
        f"{resource.name}: the list of {count} devices takes {size} bytes, "
        f"more than the {list_size.LIST_LIMIT} that the kubelet receives",
        f"about {fits} devices of this kind fit",
    )


def _nearly_too_large(resource: Resource, size: int, where: str) -> Problem:
    return warning(
        where,
        f"{resource.name}: were all of its {len(resource.slots)} devices Unhealthy, the list would take {size} bytes, "
        f"more than the {list_size.LIST_LIMIT} that the kubelet receives",
    )


def with_health(inventory: Inventory, verdicts: Mapping[str, Health], memory: Memory | None = None) -> Inventory:
    """The inventory with probes' (or faults') verdicts by raw device id; a failed device fails all its replicas and
    partitions.

    What discovery itself found broken stays so. Resources without a bad verdict are the same objects as before, and
    with the `memory` of the last time so are those whose verdicts are the same.
    """
    memory = memory or Memory()
    memory.begin()
    bad = {raw: verdict for raw, verdict in verdicts.items() if verdict is not HEALTHY}
    if not bad:
        return inventory
    resources = {}
    for name, resource in inventory.resources.items():
        own = {raw: bad[raw] for raw in sorted(bad.keys() & resource.raws)}
        make = partial(_judged, resource, own)
        resources[name] = memory.recall("judged", (name, *own), (resource, *own.values()), make) if own else resource
    return replace(inventory, resources=resources)


def _judged(resource: Resource, verdicts: Mapping[str, Health], _last: object) -> Resource:
    others: dict[int, Slot] = {}
    for raw, verdict in verdicts.items():
        for position in resource.by_raw[raw]:
            slot = resource.slots[position]
            health = slot.health if not slot.device.raw.health.healthy else verdict
            if health != slot.health:
                others[position] = replace(slot, health=health)
    return resource.with_slots(others) if others else resource


# --- the difference of two inventories ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Added:
    """A resource that must be served and registered."""

    resource: Resource


@dataclass(frozen=True, slots=True)
class Removed:
    """A resource that nothing needs any more."""

    resource: Resource


@dataclass(frozen=True)
class Changed:
    """A resource whose devices, or what they give to containers, changed; its open stream carries the news."""

    old: Resource
    new: Resource

    @cached_property
    def added(self) -> tuple[str, ...]:
        """Ids that are new."""
        return tuple(slot.id for slot in self._touched if slot.id not in self.old.by_id)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Ids that are gone."""
        if self.new.ids >= self.old.ids:
            return ()
        return tuple(slot.id for slot in self.old.slots if slot.id not in self.new.ids)

    @cached_property
    def health(self) -> tuple[tuple[str, Health], ...]:
        """Ids whose health or its reason changed, with the new one."""
        old = self.old.by_id
        return tuple(
            (slot.id, slot.health) for slot in self._touched if slot.id in old and old[slot.id].health != slot.health
        )

    @cached_property
    def _touched(self) -> tuple[Slot, ...]:
        """The new slots that are not the very ones of before; few, when few devices changed."""
        before = set(map(id, self.old.slots))
        return tuple(slot for slot in self.new.slots if id(slot) not in before)


Change = Added | Removed | Changed


def settled(old: Inventory, new: Inventory) -> Inventory:
    """`new`, of the objects of `old` where they are equal: these know more of themselves."""
    resources = {
        name: before if (before := old.resources.get(name)) == resource and before else resource
        for name, resource in new.resources.items()
    }
    return replace(new, resources=resources)


def diff(old: Inventory, new: Inventory) -> tuple[Change, ...]:
    """What must be done to get from `old` to `new`; empty for equal inventories."""
    changes: list[Change] = [Removed(resource) for name, resource in old.resources.items() if name not in new.resources]
    for name, resource in new.resources.items():
        before = old.resources.get(name)
        if before is None:
            changes.append(Added(resource))
        elif before is not resource and before != resource:
            changes.append(Changed(before, resource))
    return tuple(changes)
