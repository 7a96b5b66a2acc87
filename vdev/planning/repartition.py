"""The partition layouts that labels of the node choose: pure functions from a label to the layout in force.

    the label's value ─┬─ unknown name, or a layout that does not fit ─────────────► failed    ┐ the layout in force
                       ├─ would take away what a pod may hold ─────────────────────► failed    ┘ stays until the value
                       ├─ in force already ────────────────────────────────────────► success     changes
                       └─ else ► pending ─ written, or nobody writes it; still free ► in force ► success

This is the protocol of NVIDIA's mig-manager, except that devices that a pod holds are never cut. All entries with the
same label change together or not at all. The configuration can also change what a value means, which counts as a new
value.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ..intervals import PRODUCTION, Intervals
from ..model.device import Device, Key, grouped
from ..model.dra import DraPartitions
from ..model.entry import Entry, MigStrategy
from ..model.geometry import Geometry, LayoutError, NamedLayout, PartitionChoice, Parts
from ..model.problem import listed
from ..model.spec import Spec
from .partitions import place
from .resources import Inventory

Part = tuple[str, int]
"""A partition of a device, as profile and first slice; a whole device has the profile ""."""

_WHOLE: Part = ("", 0)


class RepartitionState(Enum):
    """The state of a label's value. UNSEEN: the value is not known, or was not acted on yet."""

    UNSEEN = "unseen"
    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of one label. Times are monotonic seconds."""

    label: str
    value: str | None = None
    """None: the node does not have the label."""
    state: RepartitionState = RepartitionState.UNSEEN
    sentence: str = ""
    """Why it failed, or what it waits for."""
    parts: Mapping[str, Mapping[int, Parts]] = field(default_factory=dict)
    """The partitions in force, by entry and device index."""
    asked: tuple[NamedLayout | None, ...] | None = None
    """The layout that the value meant to each entry; None after a restart."""
    since: float = 0.0
    """When it became pending."""
    again_at: float | None = None
    """When to look again even if nothing happens, or None."""
    awaited: frozenset[Key] = frozenset()
    """The devices that a pod may hold, and that must be free before the layout comes into force."""


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """A device or partition of a driver that a claim has; the pod is empty if it is not known."""

    driver: str
    device: Device
    pod: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionView:
    """What is known at one moment."""

    labels: Mapping[str, str] | None = None
    """The labels of the Node; None: they are not known."""
    hardware: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """The id of each device, by entry and index."""
    listed: Inventory = field(default_factory=lambda: Inventory({}))
    """The device lists that the kubelet has."""
    held: Mapping[Key, str] = field(default_factory=dict)
    """The devices that pods may hold, each with its pod as namespace/name, or an empty text."""
    complete: bool = True
    """Whether pods hold nothing else."""
    read_at: float = float("inf")
    """When the kubelet was asked for that."""
    claimed: Sequence[ClaimedDevice] = ()
    """The devices that claims have."""
    now: float = 0.0
    intervals: Intervals = PRODUCTION


Progresses = Mapping[str, Progress]
"""The state of each label."""


def advance(before: Progresses, entries: Iterable[Entry], strategy: MigStrategy, seen: RepartitionView) -> Progresses:
    """The state of each label of these entries, after its state `before`."""
    groups = grouped((entry.choice.label, entry) for entry in entries if entry.choice)
    return {
        label: _Step(before.get(label) or Progress(label=label), group, seen, strategy).result()
        for label, group in groups.items()
    }


def in_force(spec: Spec, progresses: Progresses) -> Spec:
    """The configuration with the partitions that are in force."""
    parts = {name: each for progress in progresses.values() for name, each in progress.parts.items()}
    if not any(entry.choice and entry.name in parts for entry in spec.entries):
        return spec
    return spec.model_copy(update={"entries": tuple(_with(entry, parts.get(entry.name, {})) for entry in spec.entries)})


def refused(before: Progresses, found: Progresses, why: str) -> Progresses:
    """The states `found`, but a layout that turned out to be impossible on this node fails, and the old one stays."""
    result = dict(found)
    for label, progress in found.items():
        was = before.get(label) or Progress(label=label)
        if was.parts != progress.parts:
            result[label] = replace(
                progress,
                state=RepartitionState.FAILED,
                sentence=why,
                parts=was.parts,
                again_at=None,
                awaited=frozenset(),
            )
    return result


def chosen(spec: Spec, node: str, labels: Mapping[str, str]) -> tuple[Spec, Progresses]:
    """The configuration of a node with these labels, if it had no devices before, and the state of each label."""
    entries = spec.on_node(node)
    hardware = {entry.name: {index: f"{entry.name}/{index}" for index in _indices(entry)} for entry in entries}
    found = advance({}, entries, spec.flags.mig_strategy, RepartitionView(labels=labels, hardware=hardware))
    return in_force(spec, found), found


def state_labels(progresses: Progresses, entries: Iterable[Entry]) -> dict[str, str]:
    """The labels that report the state of the chosen layouts."""
    protocols = {entry.choice.label: entry.choice.protocol for entry in entries if entry.choice}
    words = {
        label: {
            RepartitionState.PENDING: it.pending,
            RepartitionState.SUCCESS: it.success,
            RepartitionState.FAILED: it.failed,
        }
        for label, it in protocols.items()
    }
    return {
        protocols[label].label: words[label][progress.state]
        for label, progress in progresses.items()
        if label in protocols and progress.value is not None and words[label].get(progress.state)
    }


# --- one label --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Held:
    """A device that would be taken away from a pod, in a sentence; the pod is empty if it is not known."""

    key: Key
    pod: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Step:
    """The next state of one label."""

    before: Progress
    entries: Sequence[Entry]
    seen: RepartitionView
    strategy: MigStrategy

    def result(self) -> Progress:
        if self.seen.labels is None:
            return self._unseen()
        value = self.seen.labels.get(self.before.label)
        asked = tuple(_meaning(entry, value) for entry in self.entries)
        if asked == self.before.asked and value == self.before.value and self._is_over:
            return self.before
        parts = {entry.name: dict(self._in_force(entry)) for entry in self.entries}
        now = replace(
            self.before, value=value, asked=asked, parts=parts, sentence="", again_at=None, awaited=frozenset()
        )
        return self._judged(now, asked)

    def _unseen(self) -> Progress:
        """The labels are not known: the layout that an earlier process had in force stays, else that of the entry."""
        if self.before.state is RepartitionState.UNSEEN:
            return self.before
        return replace(self.before, parts={entry.name: dict(self._in_force(entry)) for entry in self.entries})

    @property
    def _is_restart(self) -> bool:
        return self.before.state is not RepartitionState.UNSEEN and self.before.asked is None

    @property
    def _is_over(self) -> bool:
        return self.before.state in (RepartitionState.SUCCESS, RepartitionState.FAILED)

    def _judged(self, now: Progress, asked: tuple[NamedLayout | None, ...]) -> Progress:
        if wrong := self._misfit(now.value, asked):
            return self._stays(now, RepartitionState.FAILED, wrong)
        target = self._filled(now.parts)
        for entry, layout in zip(self.entries, asked, strict=True):
            target[entry.name].update(layout.parts if layout else {})
        changed = list(self._changed(target))
        if not changed:
            return replace(now, state=RepartitionState.SUCCESS, parts=target)
        was = self.before
        if self._is_restart and was.state is RepartitionState.FAILED and was.value == now.value:
            return self._stays(
                now, RepartitionState.FAILED, was.sentence
            )  # so before a restart: only a new value triggers
        return self._ready(now, target, list(self._held(changed, target)))

    def _ready(self, now: Progress, target: Mapping[str, Mapping[int, Parts]], held: Sequence[_Held]) -> Progress:
        """Put it in force once `pending` was seen, and no pod can have what goes away."""
        was, protocol, clock = self.before, _choice(self.entries[0]).protocol, self.seen.now
        intervals = self.seen.intervals
        is_new = was.state is not RepartitionState.PENDING or (was.value, was.asked) != (now.value, now.asked)
        since = clock if is_new else was.since
        is_written = not is_new and (self.seen.labels or {}).get(protocol.label) == protocol.pending
        # Others wait for `pending` before they stop pods. If nobody writes the label, it does not wait forever.
        is_unwritten = (
            bool(protocol.pending)
            and now.value is not None
            and not is_written
            and clock < since + intervals.repartition_pending
        )
        named = [each for each in held if each.pod] if self.seen.read_at >= since else []
        if named or (held and clock >= since + intervals.repartition_holder):
            return self._stays(now, RepartitionState.FAILED, (named or held)[0].sentence)
        if self.seen.complete and not is_unwritten and not held:
            return replace(now, state=RepartitionState.SUCCESS, parts=target)
        asks = held or not self.seen.complete
        what = "the kubelet to say which pods hold which devices" if asks else f"{protocol.label} to be written"
        again_at = since + intervals.repartition_pending
        if asks:
            again_at = clock + (intervals.repartition_ask if is_new else intervals.repartition_recheck)
        later = replace(now, since=since, again_at=again_at, awaited=frozenset(each.key for each in held))
        return self._stays(later, RepartitionState.PENDING, f"waiting for {what}")

    def _stays(self, now: Progress, state: RepartitionState, why: str) -> Progress:
        """The layout in force stays."""
        return replace(now, state=state, sentence=why, parts=self._filled(now.parts))

    def _filled(self, parts: Mapping[str, Mapping[int, Parts]]) -> dict[str, dict[int, Parts]]:
        """These partitions, and for devices whose partitions are not known, those without the label."""
        return {
            entry.name: {index: entry.partitions.get(index) for index in self._hardware(entry)} | {**parts[entry.name]}
            for entry in self.entries
        }

    def _misfit(self, value: str | None, asked: tuple[NamedLayout | None, ...]) -> str:
        if value is not None and not any(asked):
            known = dict.fromkeys(name for entry in self.entries for name in _choice(entry).layouts)
            return f"there is no layout {value!r}; {listed(known, lead='known:')}"
        for entry, layout in zip(self.entries, asked, strict=True):
            if layout and layout.refusal:
                return f"the layout {value!r} does not fit the devices of {entry.name}: {layout.refusal}"
        return ""

    def _in_force(self, entry: Entry) -> Iterator[tuple[int, Parts]]:
        """The partitions of each device, if they are known and still fit."""
        known = self.before.parts.get(entry.name, {})
        for index in self._hardware(entry):
            if index in known and _fits(entry.geometry, known[index]):
                yield index, known[index]

    def _cuts(self, entry: Entry) -> bool:
        """Whether layouts change what the entry offers: MIG strategies are for the device plugin only."""
        claimed = entry.dra is not None and entry.dra.partitions is DraPartitions.STATIC
        return self.strategy is not MigStrategy.NONE or claimed

    def _hardware(self, entry: Entry) -> Mapping[int, str]:
        return self.seen.hardware.get(entry.name, {})

    def _changed(self, target: Mapping[str, Mapping[int, Parts]]) -> Iterator[tuple[Entry, int]]:
        """The devices whose partitions change; nothing is taken away from one that did not exist before."""
        for entry in self.entries:
            current = dict(self._in_force(entry))
            for index in current.keys() & target[entry.name].keys() if self._cuts(entry) else ():
                if _cut(entry.geometry, current[index]) != _cut(entry.geometry, target[entry.name][index]):
                    yield entry, index

    def _held(self, changed: Iterable[tuple[Entry, int]], target: Mapping[str, Mapping[int, Parts]]) -> Iterator[_Held]:
        """The devices that would be taken away from pods."""
        held = _held_parts(self.seen)
        for entry, index in changed:
            stays = _cut(entry.geometry, target[entry.name][index])
            for part, key, pod in held.get(self._hardware(entry).get(index, ""), ()):
                if part not in stays:
                    what = f"{part[0]} at slice {part[1]} of device {index}" if part[0] else f"device {index}"
                    who = f"pod {pod}" if pod else "a pod"
                    yield _Held(key, pod, f"{who} holds {what} of {entry.name}, which is not cut while a pod has it")


def _choice(entry: Entry) -> PartitionChoice:
    assert entry.choice is not None, "only entries with a choice are grouped"
    return entry.choice


def _indices(entry: Entry) -> Iterable[int]:
    return sorted({index for each in entry.choice.layouts.values() for index in each.parts}) if entry.choice else ()


def _meaning(entry: Entry, value: str | None) -> NamedLayout | None:
    """The layout that the value means to an entry; None: none."""
    choice = _choice(entry)
    if value is not None:
        return choice.layouts.get(value)
    return choice.layouts.get(choice.default) or NamedLayout(dict.fromkeys(_indices(entry)))


def _with(entry: Entry, known: Mapping[int, Parts]) -> Entry:
    """The entry with these partitions in force. A device that they do not fit any more has those without the label."""
    if entry.choice is None:
        return entry
    in_force = {index: parts for index, parts in known.items() if _fits(entry.geometry, parts)}
    merged: dict[int, Parts] = {**entry.partitions, **in_force}
    return entry.partitioned({index: parts for index, parts in merged.items() if parts is not None})


# --- parts of devices -------------------------------------------------------------------------------------------------


def _cut(geometry: Geometry | None, parts: Parts) -> frozenset[Part]:
    """The partitions that a device then has; a device that always has a mode is never without."""
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


def _held_parts(seen: RepartitionView) -> dict[str, list[tuple[Part, Key, str]]]:
    """The held parts of each hardware device, each with the pod's name or an empty text."""
    found: dict[str, list[tuple[Part, Key, str]]] = {}
    for key, pod in sorted(seen.held.items()):
        resource = seen.listed.resources.get(key[0])
        if resource and key[1] in resource.by_id:
            device = resource.by_id[key[1]].device
            found.setdefault(device.raw.id, []).append((_part(device), key, pod))
    for each in seen.claimed:
        key = (each.driver, each.device.id)
        found.setdefault(each.device.raw.id, []).append((_part(each.device), key, each.pod))
    return found
