"""The partition layouts that labels of the node select: pure functions from a label to the layout in force.

    the label's value ─┬─ unknown name, or a layout that does not fit ─────────────► failed    ┐ the layout in force
                       ├─ would remove a device that a pod may hold ───────────────► failed    ┘ stays until the value
                       ├─ in force already ────────────────────────────────────────► success     changes
                       └─ else ► pending ─ label written or timeout; still free ────► in force ► success

This is the protocol of NVIDIA's mig-manager, except that devices that a pod holds are never repartitioned. All entries
with the same label change together or not at all. If the configuration changes the layout of a value, this counts as a
new value.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from operator import itemgetter
from typing import Annotated, NamedTuple

from pydantic import Field

from ..dra.published_devices import DraDevice
from ..intervals import PRODUCTION, Intervals
from ..model.device import Device, Key, RawDevice, base_id, grouped
from ..model.entry import Entry
from ..model.geometry import AMD_LABEL, LayoutError, NamedLayout, PartitionChoice, Parts
from ..model.problem import errors, listed
from ..model.spec import Spec
from .in_use import InUse
from .inventory import arrange
from .partitions import place
from .resources import EMPTY, Inventory

PartsOfEntries = Mapping[str, Mapping[int, Parts]]
"""The partitions of devices, by entry and device index."""

_NOT_SAVED = Field(exclude=True)


class RepartitionState(Enum):
    """The state of a label's value. UNSEEN: the value is not known or not processed yet."""

    UNSEEN = "unseen"
    PENDING = "pending"
    SUCCESS = "success"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of one label, as in the state file. Times are monotonic seconds."""

    label: str
    value: str | None = None
    """None: the node does not have the label."""
    state: RepartitionState = RepartitionState.UNSEEN
    sentence: str = ""
    """The reason why it failed or is pending."""
    parts: PartsOfEntries = field(default_factory=dict)
    """The partitions in force."""
    asked: Annotated[tuple[NamedLayout | None, ...] | None, _NOT_SAVED] = None
    """The layout that the value selected for each entry; None after a restart."""
    since: Annotated[float, _NOT_SAVED] = 0.0
    """When it became pending."""
    awaited: Annotated[frozenset[Key], _NOT_SAVED] = frozenset()
    """The devices that a pod may hold and that must be free before the layout comes into force."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionView:
    """The observed state of the node at one moment."""

    labels: Mapping[str, str] | None = None
    """The labels of the Node; None: not known."""
    found: Mapping[str, Sequence[RawDevice]] = field(default_factory=dict)
    """The raw devices by entry."""
    listed: Inventory = EMPTY
    """The device lists that were sent to the kubelet."""
    in_use: InUse = InUse()
    claimed: Mapping[tuple[str, str], DraDevice] = field(default_factory=dict)
    """The devices of prepared claims, by driver and published name."""
    now: float = 0.0
    intervals: Intervals = PRODUCTION


Progresses = Mapping[str, Progress]
"""The state of each label."""


def advance(
    before: Progresses, spec: Spec, node: str, seen: RepartitionView
) -> tuple[dict[str, Progress], Inventory | None]:
    """Return the next state of each label that the node's entries use, and the inventory if that changes."""
    groups = grouped((entry.choice.label, entry) for entry in spec.on_node(node) if entry.choice)
    after = {label: before[label] for label in groups if label in before}
    for label, group in groups.items():
        after[label] = _advanced(label, group, after, spec, node, seen)
    new = in_force(spec, after)
    return after, None if new == in_force(spec, before) else arrange(new, node, seen.found)


def in_force(spec: Spec, progresses: Progresses) -> Spec:
    """The configuration with the partitions that are in force."""
    parts = {name: each for progress in progresses.values() for name, each in progress.parts.items()}
    if not any(entry.choice and entry.name in parts for entry in spec.entries):
        return spec
    entries = []
    for entry in spec.entries:
        if entry.choice:  # if the partitions no longer fit a device, it has the configured ones
            merged: dict[int, Parts] = {**entry.partitions, **_fitting(entry, parts.get(entry.name, {}))}
            partitions = {index: each for index, each in merged.items() if each is not None}
            entry = entry.model_copy(update={"partitions": partitions})
        entries.append(entry)
    return spec.model_copy(update={"entries": tuple(entries)})


def chosen(
    spec: Spec, node: str, labels: Mapping[str, str], found: Mapping[str, Sequence[RawDevice]]
) -> tuple[Spec, Progresses]:
    """The configuration of a new node with these labels and devices, and the state of each label."""
    progresses, _ = advance({}, spec, node, RepartitionView(labels=labels, found=found))
    return in_force(spec, progresses), progresses


def state_labels(progresses: Progresses, entries: Iterable[Entry]) -> dict[str, str]:
    """The labels that report the state of the chosen layouts."""
    found = {}
    for choice in (entry.choice for entry in entries if entry.choice):
        progress = progresses.get(choice.label)
        if progress is None or progress.value is None:
            continue
        if word := _words(choice).get(progress.state):
            found[choice.state_label] = word
    return found


def _words(choice: PartitionChoice) -> Mapping[RepartitionState, str]:
    """The values of the state label: those of AMD's device-config-manager, or of NVIDIA's mig-manager."""
    if choice.label == AMD_LABEL:
        return {RepartitionState.SUCCESS: "success", RepartitionState.FAILED: "failure"}
    return {each: each.value for each in RepartitionState if each is not RepartitionState.UNSEEN}


# --- one label --------------------------------------------------------------------------------------------------------


class _Obstacle(NamedTuple):
    """A device that a change would take away from a pod, with a sentence for the message."""

    key: Key
    pod: str  # empty if it is not known
    sentence: str


def _advanced(
    label: str, entries: Sequence[Entry], progresses: Progresses, spec: Spec, node: str, seen: RepartitionView
) -> Progress:
    """Return the next state of one label, for the entries that use it."""
    before = progresses.get(label) or Progress(label=label)
    # 1. Find the layout in force.
    hardware = {entry.name: {raw.index: raw.id for raw in seen.found.get(entry.name, ())} for entry in entries}
    known = {entry.name: _fitting(entry, before.parts.get(entry.name, {}), hardware[entry.name]) for entry in entries}
    if seen.labels is None:  # keep the layout of an earlier process, if any
        return before if before.state is RepartitionState.UNSEEN else replace(before, parts=known)

    # 2. Find the layout that the value selects. Only a new value can change a final state.
    value = seen.labels.get(label)
    asked = tuple(_layout(entry, value) for entry in entries)
    is_same = (value, asked) == (before.value, before.asked)
    if is_same and before.state in (RepartitionState.SUCCESS, RepartitionState.FAILED):
        return before

    # A new device has the partitions that the entry configures without the label.
    current = {
        entry.name: {index: entry.partitions.get(index) for index in hardware[entry.name]} | known[entry.name]
        for entry in entries
    }
    proposed = Progress(label=label, value=value, asked=asked, parts=current)
    if wrong := _misfit(entries, value, asked):
        return replace(proposed, state=RepartitionState.FAILED, sentence=wrong)

    # 3. Find the devices that change. New devices are left out, because no pod can hold them.
    wanted = {
        entry.name: {**current[entry.name], **(layout.parts if layout else {})}
        for entry, layout in zip(entries, asked, strict=True)
    }
    success = replace(proposed, state=RepartitionState.SUCCESS, parts=wanted)
    if wanted == current:
        return success
    old, new = (arrange(in_force(spec, {**progresses, label: each}), node, seen.found) for each in (proposed, success))
    if errors_added := set(errors(new.problems)).difference(old.problems):
        return replace(proposed, state=RepartitionState.FAILED, sentence=min(each.message for each in errors_added))
    old_devices, new_devices = _devices_of(old), _devices_of(new)
    changed = {
        raw: f"device {index} of {entry.name}"
        for entry in entries
        for index in known[entry.name]
        if old_devices.get(raw := hardware[entry.name][index]) != new_devices.get(raw)
    }
    if not changed:
        return success
    if before.state is RepartitionState.FAILED and before.asked is None and before.value == value:
        # It failed before a restart, so it stays failed until the value changes.
        return replace(proposed, state=RepartitionState.FAILED, sentence=before.sentence)
    starts_pending = not is_same or before.state is not RepartitionState.PENDING
    pending = replace(proposed, state=RepartitionState.PENDING, since=seen.now if starts_pending else before.since)
    held = list(_taken_away(changed, old, new, seen))
    return _when_free(pending, held, seen, starts=starts_pending, choice=_choice(entries[0])) or success


def _when_free(
    pending: Progress, held: Sequence[_Obstacle], seen: RepartitionView, *, starts: bool, choice: PartitionChoice
) -> Progress | None:
    """Return the state of a layout that must wait or fails because of pods; None if it can come into force.

    `held` are the devices that it would remove. `starts`: it was not pending before.
    """
    # 4. Check that no pod holds such a device. The layout fails at once if a pod is known by name, and after
    # `repartition_holder` if the pod remains unknown.
    named = [each for each in held if each.pod] if seen.in_use.answered_at >= pending.since else []
    if named or (held and seen.now >= pending.since + seen.intervals.repartition_holder):
        return replace(pending, state=RepartitionState.FAILED, sentence=(named or held)[0].sentence)
    if held or not seen.in_use.is_complete:
        sentence = "waiting for the kubelet to say which pods hold which devices"
        return replace(pending, sentence=sentence, awaited=frozenset(each.key for each in held))

    # 5. Wait until the label has `pending`, because other programs then stop pods. Give up waiting after
    # `repartition_pending`, in case no program writes the label.
    word = _words(choice).get(RepartitionState.PENDING)
    is_written = not starts and seen.labels is not None and seen.labels.get(choice.state_label) == word
    is_overdue = seen.now >= pending.since + seen.intervals.repartition_pending
    if word and pending.value is not None and not (is_written or is_overdue):
        return replace(pending, sentence=f"waiting for {choice.state_label} to be written")
    return None


def _misfit(entries: Sequence[Entry], value: str | None, asked: Sequence[NamedLayout | None]) -> str:
    """Why the requested layout cannot be applied, or an empty text."""
    if value is not None and not any(asked):
        known = dict.fromkeys(name for entry in entries for name in _choice(entry).layouts)
        return f"there is no layout {value!r}; {listed(known, lead='known:')}"
    for entry, layout in zip(entries, asked, strict=True):
        if layout and layout.refusal:
            return f"the layout {value!r} does not fit the devices of {entry.name}: {layout.refusal}"
    return ""


def _devices_of(inventory: Inventory) -> Mapping[str, set[tuple[str, str]]]:
    """The devices of each raw device, with the resource or driver that offers them."""
    offered = inventory.everything.items()
    pairs = ((each.raw.id, (name, each.id)) for name, resource in offered for each in resource.by_device.values())
    return {raw: set(devices) for raw, devices in grouped(pairs).items()}


def _taken_away(
    changed: Mapping[str, str], old: Inventory, new: Inventory, seen: RepartitionView
) -> Iterator[_Obstacle]:
    """The devices that pods or claims hold and that the change removes. `changed` has the text for each raw device."""
    gone: dict[str, Device] = {}
    for name, resource in (*seen.listed.resources.items(), *old.claimable.items()):
        left = new.everything[name].by_device if name in new.everything else {}
        for device in resource.by_device.values():
            if device.raw.id in changed and device.id not in left:
                gone[device.id] = device

    users = {(use.driver, use.device): use.pod for use in seen.in_use.claims}
    held = [(key, seen.in_use.pods.get(key, "")) for key in sorted(seen.in_use.all())]
    for (driver, published), claimed in sorted(seen.claimed.items(), key=itemgetter(0)):
        held.append(((driver, claimed.device.id), users.get((driver, published), "")))

    for key, pod in held:
        if taken := gone.get(base_id(key[1])):
            what = f"{taken.profile} at slice {taken.slices.start} of " if taken.profile else ""
            who = f"pod {pod}" if pod else "a pod"
            yield _Obstacle(key, pod, f"{who} holds {what}{changed[taken.raw.id]}, and cannot be repartitioned")


def _choice(entry: Entry) -> PartitionChoice:
    assert entry.choice is not None, "only entries with a choice are grouped"
    return entry.choice


def _layout(entry: Entry, value: str | None) -> NamedLayout | None:
    """The layout that the value selects for an entry; None if the entry has no layout of that name."""
    choice = _choice(entry)
    if value is not None:
        return choice.layouts.get(value)
    indices = {index for layout in choice.layouts.values() for index in layout.parts}
    return choice.layouts.get(choice.default) or NamedLayout(dict.fromkeys(sorted(indices)))


def _fitting(entry: Entry, parts: Mapping[int, Parts], indices: Iterable[int] | None = None) -> dict[int, Parts]:
    """The partitions that fit the entry's devices; with `indices`, only for these."""
    assert entry.geometry is not None, "an entry with a choice has one"
    found = {}
    for index in parts if indices is None else indices:
        if index in parts:
            with contextlib.suppress(LayoutError):
                place(entry.geometry, parts[index] or ())
                found[index] = parts[index]
    return found
