"""What becomes of a layout that a label of the node chooses: pure functions of what is seen.

    the label's value ─┬─ unknown name, or a layout that does not fit ─────────────► failed    ┐ the layout in force
                       ├─ would take away what a pod may hold ─────────────────────► failed    ┘ stays, until the value
                       ├─ in force already ────────────────────────────────────────► success     is another one
                       └─ else ► pending ─ written, or nobody writes it; still free ► in force ► success

That is the protocol of NVIDIA's mig-manager, but for one thing: devices that a pod holds are never cut. All entries
that one label speaks of change together or not at all. A new value triggers, and so does another meaning of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache

from .inventory.resources import Inventory
from .model.device import Device, Key
from .partitions.choice import NamedLayout, PartitionChoice, Parts
from .partitions.geometry import Geometry, LayoutError
from .partitions.placement import place
from .spec import EntrySpec, MigStrategy, Spec

PATIENCE = 3.0
"""Seconds for `pending` to be seen on the Node before devices are cut all the same."""

Part = tuple[str, int]
"""A partition of a device, as profile and first slice; a whole device has the profile ""."""

_WHOLE: Part = ("", 0)


class State(Enum):
    """How far it is. UNSEEN: the label's value is not known, or was not acted on."""

    UNSEEN = "unseen"
    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What became of one label's value; None is a node without the label.

    `parts` is what is in force, by entry and device index. `sentence` says why it failed, or what is waited for.
    `asked` is what the value meant to each entry (None: that is forgotten). `since` is when it became pending,
    and `again_at` when to look again though nothing happens; both are monotonic.
    """

    label: str
    value: str | None = None
    state: State = State.UNSEEN
    sentence: str = ""
    parts: Mapping[str, Mapping[int, Parts]] = field(default_factory=dict)
    asked: tuple[NamedLayout | None, ...] | None = None
    since: float = 0.0
    again_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known at one moment.

    `labels` are those of the Node; None: not known. `hardware` has the id of each device, by entry and index. `listed`
    is what the kubelet was told last, `held` who holds what of it, in words; `complete`: nobody else holds anything.
    """

    labels: Mapping[str, str] | None = None
    hardware: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    listed: Inventory = field(default_factory=lambda: Inventory({}))
    held: Mapping[Key, str] = field(default_factory=dict)
    complete: bool = True
    now: float = 0.0


Progresses = Mapping[str, Progress]
"""How far each label is."""


def look(before: Progresses, entries: Iterable[EntrySpec], strategy: MigStrategy, seen: Seen) -> Progresses:
    """How far each label of these entries is, with what was known `before`."""
    found: dict[str, Progress] = {}
    for label, group in _groups(entries).items():
        one = _Look(before.get(label) or Progress(label=label), group, seen, cuts=strategy is not MigStrategy.NONE)
        found[label] = one.result()
    return found if found != before else before


def in_force(spec: Spec, progresses: Progresses) -> Spec:
    """The specification with the devices cut as is in force; the same object where nothing is chosen."""
    parts = {name: each for progress in progresses.values() for name, each in progress.parts.items()}
    if not any(entry.choice and entry.name in parts for entry in spec.entries):
        return spec
    return replace(spec, entries=tuple(_with(entry, parts.get(entry.name, {})) for entry in spec.entries))


def refused(before: Progresses, found: Progresses, why: str) -> Progresses:
    """What is found, where it turned out that no node can be like that: what is in force stays."""
    result = dict(found)
    for label, progress in found.items():
        was = before.get(label) or Progress(label=label)
        if was.parts != progress.parts:
            result[label] = replace(progress, state=State.FAILED, sentence=why, parts=was.parts, again_at=None)
    return result


def chosen(spec: Spec, labels: Mapping[str, str]) -> tuple[Spec, Progresses]:
    """What the labels would make of a node that has nothing yet, and what would become of each."""
    hardware = {entry.name: {index: f"{entry.name}/{index}" for index in _indices(entry)} for entry in spec.entries}
    found = look({}, spec.entries, spec.flags.mig_strategy, Seen(labels=labels, hardware=hardware))
    return in_force(spec, found), found


def state_labels(progresses: Progresses, entries: Iterable[EntrySpec]) -> dict[str, str]:
    """The labels that tell what became of the chosen layouts; none where nothing is chosen."""
    protocols = {each.label: each.protocol for each in _choices(entries)}
    words = {
        label: {State.PENDING: it.pending, State.SUCCESS: it.success, State.FAILED: it.failed}
        for label, it in protocols.items()
    }
    told = {
        protocols[label].label: words[label].get(progress.state, "")
        for label, progress in progresses.items()
        if label in protocols and progress.value is not None
    }
    return {label: word for label, word in told.items() if word}


# --- one label --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Look:
    """One label at one moment; `cuts`: its layouts change what is listed."""

    before: Progress
    entries: Sequence[EntrySpec]
    seen: Seen
    cuts: bool

    def result(self) -> Progress:
        if self.seen.labels is None:
            return self._unseen()
        value = self.seen.labels.get(self.before.label)
        asked = tuple(_meaning(entry, value) for entry in self.entries)
        if asked == self.before.asked and value == self.before.value and self._is_over:
            return self.before
        parts = {entry.name: dict(self._in_force(entry)) for entry in self.entries}
        now = replace(self.before, value=value, asked=asked, parts=parts, sentence="", again_at=None)
        return self._same(self._judged(now, asked))

    def _unseen(self) -> Progress:
        """Nobody tells the label: what an earlier process had in force stays, else the entry says how it is cut."""
        if self.before.state is State.UNSEEN:
            return self.before
        return self._same(
            replace(self.before, parts={entry.name: dict(self._in_force(entry)) for entry in self.entries})
        )

    @property
    def _is_restart(self) -> bool:
        return self.before.state is not State.UNSEEN and self.before.asked is None

    @property
    def _is_over(self) -> bool:
        return self.before.state in (State.SUCCESS, State.FAILED)

    def _judged(self, now: Progress, asked: tuple[NamedLayout | None, ...]) -> Progress:
        if wrong := self._misfit(now.value, asked):
            return self._stays(now, State.FAILED, wrong)
        target = self._filled(now.parts)
        for entry, layout in zip(self.entries, asked, strict=True):
            target[entry.name].update(layout.parts if layout else {})
        changed = list(self._changed(target))
        if not changed:
            return replace(now, state=State.SUCCESS, parts=target)
        was = self.before
        if self._is_restart and was.state is State.FAILED and was.value == now.value:
            return self._stays(now, State.FAILED, was.sentence)  # so before a restart: only a new value triggers
        if holder := self._holder(changed, target):
            return self._stays(now, State.FAILED, holder)
        return self._ready(now, target)

    def _ready(self, now: Progress, target: Mapping[str, Mapping[int, Parts]]) -> Progress:
        """Nothing is in the way: put it in force once `pending` was seen, and all holders are known."""
        was, protocol = self.before, _choice(self.entries[0]).protocol
        is_new = was.state is not State.PENDING or (was.value, was.asked) != (now.value, now.asked)
        since = self.seen.now if is_new else was.since
        told = not is_new and (self.seen.labels or {}).get(protocol.label) == protocol.pending
        waits = bool(protocol.pending) and now.value is not None and not told and self.seen.now < since + PATIENCE
        if self.seen.complete and not waits:
            return replace(now, state=State.SUCCESS, parts=target)
        what = f"{protocol.label} to be written" if waits else "the kubelet to say which devices pods hold"
        later = replace(now, since=since, again_at=since + PATIENCE if waits else None)
        return self._stays(later, State.PENDING, f"waiting for {what}")

    def _stays(self, now: Progress, state: State, why: str) -> Progress:
        """What is in force stays."""
        return replace(now, state=state, sentence=why, parts=self._filled(now.parts))

    def _filled(self, parts: Mapping[str, Mapping[int, Parts]]) -> dict[str, dict[int, Parts]]:
        """With what devices have without the label, for those of which it is not known what they have."""
        return {
            entry.name: {index: entry.partitions.get(index) for index in self._hardware(entry)} | {**parts[entry.name]}
            for entry in self.entries
        }

    def _misfit(self, value: str | None, asked: tuple[NamedLayout | None, ...]) -> str:
        if value is not None and not any(asked):
            known = dict.fromkeys(name for entry in self.entries for name in _choice(entry).layouts)
            return f"there is no layout {value!r}; known: {', '.join(known)}"
        for entry, layout in zip(self.entries, asked, strict=True):
            if layout and layout.refusal:
                return f"the layout {value!r} does not fit the devices of {entry.name}: {layout.refusal}"
        return ""

    def _in_force(self, entry: EntrySpec) -> Iterator[tuple[int, Parts]]:
        """What each device is cut into: as far as known, as the list of devices tells, or as the entry says."""
        known = self.before.parts.get(entry.name, {})
        listed = _listed_parts(self.seen.listed) if self.cuts and not known else {}
        for index, hardware in self._hardware(entry).items():
            if index in known and _fits(entry.geometry, known[index]):
                yield index, known[index]
            elif found := listed.get(hardware):
                yield index, _recognised(entry, index, found)
            elif not known and self._is_restart and self.cuts:
                yield index, ()  # nothing was listed of it

    def _hardware(self, entry: EntrySpec) -> Mapping[int, str]:
        return self.seen.hardware.get(entry.name, {})

    def _changed(self, target: Mapping[str, Mapping[int, Parts]]) -> Iterator[tuple[EntrySpec, int]]:
        """The devices that are cut otherwise; nothing is taken away of one that was not there."""
        for entry in self.entries:
            current = dict(self._in_force(entry))
            for index in current.keys() & target[entry.name].keys() if self.cuts else ():
                if _cut(entry.geometry, current[index]) != _cut(entry.geometry, target[entry.name][index]):
                    yield entry, index

    def _holder(self, changed: Iterable[tuple[EntrySpec, int]], target: Mapping[str, Mapping[int, Parts]]) -> str:
        """Which pod has something that would be taken away, or the empty string."""
        held = _held_parts(self.seen)
        for entry, index in changed:
            stays = _cut(entry.geometry, target[entry.name][index])
            for part, who in sorted(held.get(self._hardware(entry).get(index, ""), {}).items()):
                if part not in stays:
                    what = f"{part[0]} at slice {part[1]} of device {index}" if part[0] else f"device {index}"
                    return f"{who} holds {what} of {entry.name}, which is not cut while a pod has it"
        return ""

    def _same(self, found: Progress) -> Progress:
        return self.before if found == self.before else found


def _groups(entries: Iterable[EntrySpec]) -> dict[str, list[EntrySpec]]:
    groups: dict[str, list[EntrySpec]] = {}
    for entry in entries:
        if entry.choice:
            groups.setdefault(entry.choice.label, []).append(entry)
    return groups


def _choices(entries: Iterable[EntrySpec]) -> Iterator[PartitionChoice]:
    return (entry.choice for entry in entries if entry.choice)


def _choice(entry: EntrySpec) -> PartitionChoice:
    assert entry.choice is not None, "only entries with a choice are grouped"
    return entry.choice


def _indices(entry: EntrySpec) -> Iterable[int]:
    return sorted({index for each in entry.choice.layouts.values() for index in each.parts}) if entry.choice else ()


def _meaning(entry: EntrySpec, value: str | None) -> NamedLayout | None:
    """What the value means to an entry; None: nothing."""
    choice = _choice(entry)
    if value is not None:
        return choice.layouts.get(value)
    return choice.layouts.get(choice.default) or NamedLayout(dict.fromkeys(_indices(entry)))


def _with(entry: EntrySpec, known: Mapping[int, Parts]) -> EntrySpec:
    """The entry cut as is in force; what its devices could not be cut into any more is as without the label."""
    if entry.choice is None:
        return entry
    in_force = {index: parts for index, parts in known.items() if _fits(entry.geometry, parts)}
    merged: dict[int, Parts] = {**entry.partitions, **in_force}
    return replace(entry, partitions={index: parts for index, parts in merged.items() if parts is not None})


# --- parts of devices -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _cut(geometry: Geometry | None, parts: Parts) -> frozenset[Part]:
    """The partitions that a device then has; a device that the hardware keeps in a mode is never without."""
    assert geometry is not None, "an entry with a choice has one"
    wanted = (geometry.first_mode,) if parts is None and geometry.first_mode else parts
    if wanted is None:
        return frozenset([_WHOLE])
    return frozenset((each.profile.name, each.start) for each in place(geometry, wanted))


def _fits(geometry: Geometry | None, parts: Parts) -> bool:
    try:
        _cut(geometry, parts)
    except LayoutError:
        return False
    return True


def _part(device: Device) -> Part:
    return (device.profile, device.slices.start) if device.profile else _WHOLE


def _listed_parts(listed: Inventory) -> dict[str, set[Part]]:
    """What is listed of each hardware device."""
    found: dict[str, set[Part]] = {}
    for resource in listed.resources.values():
        for slot in resource.slots:
            found.setdefault(slot.device.raw.id, set()).add(_part(slot.device))
    return found


def _held_parts(seen: Seen) -> dict[str, dict[Part, str]]:
    """Who holds what of each hardware device."""
    found: dict[str, dict[Part, str]] = {}
    for (name, slot), who in seen.held.items():
        resource = seen.listed.resources.get(name)
        if resource and slot in resource.by_id:
            device = resource.by_id[slot].device
            found.setdefault(device.raw.id, {})[_part(device)] = who
    return found


def _recognised(entry: EntrySpec, index: int, listed: set[Part]) -> Parts:
    """The layout of which this is what is listed. Some may be there for a pod alone, so the one that explains most."""
    assert entry.geometry is not None
    named = [layout.parts[index] for layout in _choice(entry).layouts.values() if _says(layout, index)]
    fitting = [parts for parts in (*named, None) if _cut(entry.geometry, parts) <= listed]
    best = max(fitting, key=lambda parts: len(_cut(entry.geometry, parts)), default=None)
    if fitting and _cut(entry.geometry, best) == listed:
        return best
    pinned = tuple(f"{profile}@{start}" for profile, start in sorted(listed - {_WHOLE}, key=lambda part: part[1]))
    if _fits(entry.geometry, pinned):
        return pinned
    return best if fitting else entry.partitions.get(index)  # some of it overlaps


def _says(layout: NamedLayout, index: int) -> bool:
    return index in layout.parts and not layout.refusal
