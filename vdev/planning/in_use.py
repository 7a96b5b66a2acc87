"""Who may hold a device, as an upper bound: from what the kubelet says, and from when it says less than the truth.

    PodResources.List  names the holders. A kubelet that has just started answers with no pods at all for about a
                       second; one that is down does not answer. It has all pods, but no regular init containers.
    the checkpoint     `kubelet_internal_checkpoint` names every held device at any time, init containers' as well. It
                       names devices of pods that have ended, too: until the kubelet writes it again after a List or an
                       Allocate, and those of the pod that was admitted last until another one is.

So a device is free when an answer that is to be trusted leaves it out, unless the checkpoint has it and no answer of
this kubelet ever named it. Then it is doubted: it is held for certain while another device of the same pod is named;
it is free when no pod is left that could have it; in between, a checkpoint written after a full answer decides, and
where none can be had, time does.

Everything here is a value and a pure function of it; times are monotonic seconds. Seen on Kubernetes 1.36.2.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from operator import attrgetter

from ..intervals import PRODUCTION, Intervals
from ..model.device import UNKNOWN_ENTRY, Device, Key, RawDevice, Slot, base_id
from ..model.entry import EntrySpec
from ..model.names import domain_and_name
from .naming import partition_id
from .partitions import placements
from .resources import Inventory

_NO_PODS = 3  # times the grace: for so long a kubelet that knows of no pod at all is not believed


@dataclass(frozen=True)
class KubeletCheckpoint:
    """What the kubelet's checkpoint file names, by the pod's UID, and which writing of the file it was.

    `stamp` differs for each writing.
    """

    pods: Mapping[str, frozenset[Key]]
    stamp: tuple[int, ...]

    @cached_property
    def keys(self) -> frozenset[Key]:
        """Everything that it names."""
        return frozenset().union(*self.pods.values())


@dataclass(frozen=True, slots=True)
class Use:
    """A container that has a device by a claim: of a driver's pool, under the name that is published there."""

    pod: str
    container: str
    claim: str
    driver: str
    pool: str
    device: str


@dataclass(frozen=True, slots=True)
class HoldersAnswer:
    """What PodResources.List says: (resource, id) to `namespace/pod`, and the pods for which it names no device.

    `containers` are the names of the containers that have them, `claimed` who has a device by a claim.
    """

    holders: Mapping[Key, str]
    without: frozenset[str] = frozenset()
    containers: Mapping[Key, str] = field(default_factory=dict)
    claimed: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class HoldersReading:
    """One question to the kubelet, asked at time `at`.

    `answer` is None where there was none. `checkpoint` was read after the answer came; None where the file is not there
    or not understood. `kubelet` is equal for readings of one kubelet process.
    """

    at: float
    answer: HoldersAnswer | None
    checkpoint: KubeletCheckpoint | None = None
    kubelet: object = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a device that no answer names may be held: `suspects` are the pods that could have it.

    `since` is when it was first missing, or allocated. `confirmed`: a checkpoint written after a full answer has it.
    `own`: it was allocated under this kubelet, and by this process. Its pod can then only be one that came with it. Of
    what is older, an answer without any pod proves nothing: a kubelet that cannot reach its API server knows of none.
    """

    since: float
    suspects: frozenset[str] = frozenset()
    confirmed: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the readings so far tell; `learn` adds one.

    `holders` are the pods by name: those of the last answer, and those that were known before and that this kubelet has
    not named yet. `answered_at` is when the last answer was asked for. `doubted` are devices that no answer names and a
    pod may hold all the same. `silent_since` is None while the kubelet answers. `heard` tells whether it ever answered.
    """

    holders: Mapping[Key, str] = field(default_factory=dict)
    answered_at: float = float("-inf")
    doubted: frozenset[Key] = frozenset()
    silent_since: float | None = None
    heard: bool = False
    young_until: float = float("-inf")
    full_from: float = float("-inf")  # from when on this kubelet's answers have all its pods
    kubelet: object = None
    since: float = float("-inf")  # when this kubelet answered first; an Allocate before that may be an earlier one's
    stamp: tuple[int, ...] | None = None  # of the checkpoint that was there at the last full answer
    without: Mapping[str, float] = field(default_factory=dict)  # pods for which nothing is named, since when
    named: Mapping[Key, float] = field(default_factory=dict)  # by this kubelet, at its last answer that named it
    missing: Mapping[Key, Doubt] = field(default_factory=dict)  # what its answers leave out
    containers: Mapping[Key, str] = field(default_factory=dict)  # of the last answer, which no decision rests on
    claimed: tuple[Use, ...] = ()  # likewise

    def is_young(self, now: float) -> bool:
        """Whether the kubelet has only just started, for all we know."""
        return now < self.young_until


NOTHING = Knowledge()


def learn(
    before: Knowledge,
    reading: HoldersReading,
    allocated: Mapping[Key, float],
    pressed: Mapping[Key, float],
    intervals: Intervals = PRODUCTION,
) -> Knowledge:
    """What is known after one more reading.

    `allocated` are the times of our own Allocates that no answer has settled. `pressed` tells since when the kubelet is
    pressed to write its checkpoint again, because something waits for the device.
    """
    if reading.answer is None:
        return _silence(before, reading)
    if before.silent_since is not None or not before.heard or reading.kubelet != before.kubelet:
        before = _of_another_kubelet(before, reading, intervals)
    answer, checkpoint, at = reading.answer, reading.checkpoint, reading.at
    on_disk = checkpoint.keys if checkpoint else frozenset()
    # What was allocated anew after it was named may be with an init container, which no answer will ever name.
    still = {key: moment for key, moment in before.named.items() if allocated.get(key, moment) <= moment}
    named = {**still, **dict.fromkeys(answer.holders, at)}
    full = at >= before.full_from
    rewritten = checkpoint is not None and before.stamp is not None and checkpoint.stamp != before.stamp
    unnamed = (on_disk | (frozenset() if rewritten else before.missing.keys())) - named.keys()
    missing = {
        key: _doubt(before, reading, before.missing.get(key), allocated.get(key), intervals, rewritten=rewritten)
        for key in unnamed
    }
    alive = _held_beside_named(checkpoint, answer) if checkpoint and missing else frozenset()
    doubted = {
        key
        for key, doubt in missing.items()
        if key in alive or _may_be_held(doubt, before, at, intervals, pressed.get(key, at if key in on_disk else None))
    }
    return Knowledge(
        holders={**_by_name(before, at, missing, intervals.kubelet_grace), **answer.holders},
        answered_at=at,
        doubted=frozenset(doubted),
        silent_since=None,
        heard=True,
        young_until=before.young_until,
        full_from=before.full_from,
        kubelet=reading.kubelet,
        since=before.since,
        stamp=checkpoint.stamp if full and checkpoint else None,
        without={pod: before.without.get(pod, at) for pod in answer.without},
        named={key: moment for key, moment in named.items() if key in answer.holders or key in on_disk},
        missing={key: doubt for key, doubt in missing.items() if key in doubted or key in on_disk},
        containers=answer.containers,
        claimed=answer.claimed,
    )


def _doubt(
    before: Knowledge,
    reading: HoldersReading,
    known: Doubt | None,
    allocated: float | None,
    intervals: Intervals,
    *,
    rewritten: bool,
) -> Doubt:
    """What is to be thought of a device that stands in the checkpoint, or was held before, and is not named."""
    assert reading.answer is not None
    without = reading.answer.without
    if known is None or (allocated is not None and allocated > known.since):
        since = reading.at if allocated is None else allocated
        own = allocated is not None and allocated >= before.since
        # Its pod was not there long before it was allocated; of an Allocate that was not ours, that is not known.
        late = {pod for pod in without if before.without.get(pod, since) > since - intervals.other_allocates}
        known = Doubt(since, frozenset(late) if own else without, own=own)
    elif reading.at < max(known.since, before.full_from) + intervals.unnamed_allocate:
        known = replace(known, suspects=known.suspects | (without - before.without.keys()))
    if known.suspects <= without and (known.confirmed or not rewritten):
        return known
    return replace(known, suspects=known.suspects & without, confirmed=rewritten or known.confirmed)


def _may_be_held(doubt: Doubt, before: Knowledge, at: float, intervals: Intervals, pressed: float | None) -> bool:
    """Whether a pod may have a device that is missing; `pressed` is None for what the checkpoint does not have."""
    if pressed is None:
        return at - doubt.since < intervals.kubelet_grace
    if at < max(doubt.since, before.full_from) + intervals.unnamed_allocate:
        return True
    if doubt.own and not doubt.suspects:
        return False
    # Without any pod in its answers a kubelet either has none or cannot reach its API server: that is not told apart.
    limit = intervals.retire_blind if doubt.suspects else _NO_PODS * intervals.kubelet_grace
    if at - doubt.since >= limit:
        return False
    return doubt.confirmed or at - pressed < intervals.kubelet_grace


def _held_beside_named(checkpoint: KubeletCheckpoint, answer: HoldersAnswer) -> frozenset[Key]:
    """What the checkpoint has of pods that the answer names with another device."""
    pods = (keys for keys in checkpoint.pods.values() if not keys.isdisjoint(answer.holders))
    return frozenset().union(*pods)


def _by_name(before: Knowledge, at: float, missing: Mapping[Key, Doubt], grace: float) -> Mapping[Key, str]:
    """The pods that were known before, of what this kubelet has not named yet."""
    return {key: pod for key, pod in before.holders.items() if key in missing and at - missing[key].since < grace}


def _silence(before: Knowledge, reading: HoldersReading) -> Knowledge:
    """Nothing is released while nobody answers; what the checkpoint names is added."""
    on_disk = reading.checkpoint.keys if reading.checkpoint else frozenset()
    return replace(
        before,
        doubted=before.doubted | on_disk | before.holders.keys(),
        silent_since=reading.at if before.silent_since is None else before.silent_since,
    )


def _of_another_kubelet(before: Knowledge, reading: HoldersReading, intervals: Intervals) -> Knowledge:
    """A kubelet that has just begun to answer: all that was held before is missing until it is named again."""
    held = before.doubted | before.holders.keys()
    return replace(
        before,
        young_until=reading.at + intervals.kubelet_grace,
        since=reading.at,
        full_from=reading.at + intervals.kubelet_grace / 2,  # its sources are ready about a second after its start
        stamp=None,
        without={},
        named={},
        missing=dict.fromkeys(held, Doubt(reading.at)),
    )


@dataclass(frozen=True, slots=True)
class Holdings:
    """Who may hold what at one moment, for decisions.

    `holders` maps (resource, id) to the pod, as far as one is known by name; None where the kubelet never said.
    `doubted` may be held as well. `read_at` is when the last answer was asked for. `in_flight` are ids that an
    unfinished RPC names; `allocated` those of our own Allocates that no answer has settled yet. `blind_since` is when
    it turned out that a kubelet which serves does not tell (infinite while it tells, and while there is none to ask).
    `complete`: a pod that is not named here holds nothing, for certain. `silent`: the kubelet did not answer the last
    question.

    `containers` are the names of the containers that have what is named, `claimed` who has devices by claims: for those
    who tell of it, and for no decision.
    """

    holders: Mapping[Key, str] | None = None
    read_at: float = float("-inf")
    in_flight: frozenset[Key] = frozenset()
    allocated: Mapping[Key, float] = field(default_factory=dict)
    doubted: frozenset[Key] = frozenset()
    blind_since: float = float("-inf")
    complete: bool = True
    silent: bool = False
    containers: Mapping[Key, str] = field(default_factory=dict)
    claimed: tuple[Use, ...] = ()

    def may_hold(self, key: Key) -> bool:
        """Whether a pod may hold it, as far as is known now."""
        return key in self.doubted or key in self.in_flight or key in self.allocated or key in (self.holders or ())

    def says(self, other: "Holdings") -> bool:
        """Whether it is the same, of whatever time."""
        return bool(_SAID(self) == _SAID(other))

    def all(self) -> frozenset[Key]:
        """Everything that a pod may hold."""
        return frozenset((*(self.holders or ()), *self.doubted, *self.in_flight, *self.allocated))

    def by_whom(self, key: Key) -> str:
        """The holder, in words."""
        pod = (self.holders or {}).get(key)
        return f"pod {pod}" if pod else "a pod"


_SAID = attrgetter(*(each.name for each in fields(Holdings) if each.name != "read_at"))


def settled(knowledge: Knowledge, allocated: Mapping[Key, float], intervals: Intervals = PRODUCTION) -> frozenset[Key]:
    """Which of our Allocates the last answer decides: their pod is named, or had the time to appear and did not."""
    if knowledge.silent_since is not None or not knowledge.heard:
        return frozenset()
    asked = knowledge.answered_at
    patience = float("inf") if knowledge.is_young(asked) else intervals.unnamed_allocate
    return frozenset(
        key
        for key, at in allocated.items()
        if at <= asked and (knowledge.named.get(key, float("-inf")) >= at or at + patience <= asked)
    )


def orphans(held: Collection[Key], fresh: Inventory) -> Mapping[Key, Slot]:
    """A slot for each held device that `fresh` lacks and that this node's configuration is about.

    That is every one of a resource that there is; and of another resource in the same domain, what can only be a device
    of ours. What is not recognized overlaps nothing, but it can be listed.
    """
    domains = {domain_and_name(name)[0] for name in fresh.resources}
    ours = [(name, each) for name, each in held if domain_and_name(name)[0] in domains]
    ours = [key for key in ours if key[0] not in fresh.resources or key[1] not in fresh.resources[key[0]].ids]
    if not ours:
        return {}
    hardware = _hardware(fresh, {base_id(each) for _, each in ours})
    found: dict[Key, Slot] = {}
    for name, each in ours:
        device = hardware.get(base_id(each))
        if device is None and name in fresh.resources:
            raw = RawDevice(id=base_id(each), entry=UNKNOWN_ENTRY, index=-1)
            device = Device(id=raw.id, raw=raw, ordinal="-1")
        if device is not None:
            found[name, each] = Slot(each, device, _replica(each))
    return found


def _hardware(fresh: Inventory, wanted: Collection[str]) -> Mapping[str, Device]:
    """The devices of these ids, among all that the node's hardware could be cut into."""
    found: dict[str, Device] = {}
    for raw, candidates in _candidates(fresh):
        for device_id, profile, slices in candidates:
            if device_id in wanted:
                stranger = replace(raw, entry=UNKNOWN_ENTRY)
                found[device_id] = Device(id=device_id, raw=stranger, ordinal="-1", profile=profile, slices=slices)
        if len(found) == len(wanted):
            break
    return found


def _candidates(fresh: Inventory) -> Iterator[tuple[RawDevice, Iterator[tuple[str, str, range]]]]:
    seen: set[str] = set()
    for resource in fresh.resources.values():
        for slot in resource.slots:
            raw = slot.device.raw
            if raw.id not in seen and raw.entry in resource.entries:
                seen.add(raw.id)
                entry = resource.entries[raw.entry]
                yield raw, _parts(entry, raw)


def _parts(entry: EntrySpec, raw: RawDevice) -> Iterator[tuple[str, str, range]]:
    """Id, profile and slices of the whole device and of each partition that it could be cut into."""
    yield raw.id, "", range(0)
    for placement in placements(entry.geometry) if entry.geometry else ():
        yield partition_id(entry, raw, placement), placement.profile.name, placement.slices


def _replica(slot_id: str) -> int | None:
    number = slot_id.removeprefix(base_id(slot_id)).lstrip(":")
    return int(number) if number.isascii() and number.isdigit() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Boot:
    """What is known at a moment of the start.

    `served`: the devices are listed to all who ask. `kubelet`: one has started and listens. `absent`: ids of hardware
    that was listed before and is not there, or not well. `waits_for`: what keeps this process from serving at all, in
    words.
    """

    served: bool
    kubelet: bool = False
    absent: tuple[str, ...] = ()
    waits_for: str = ""


def absent(listed: Inventory, found: Iterable[RawDevice], ailing: Collection[str] = ()) -> tuple[str, ...]:
    """The ids of hardware that an earlier process listed and that cannot be handed out now, in order.

    Hardware is compared and not what was made of it: a new layout, sharing or name is no reason to wait. `ailing` are
    ids of devices that are there and do not work.
    """
    well = {raw.id for raw in found if raw.health.healthy}.difference(ailing)
    return tuple(sorted(listed.raws - well))


def may_start(boot: Boot, *, waited: float, patience: float) -> bool:
    """Whether the kubelet need not wait any longer; `waited` and `patience` are seconds since this process started.

    It never waits where it must come first, as when its own directory is to be made, nor where it runs already.
    """
    if boot.waits_for:
        return True
    return boot.served and (boot.kubelet or not boot.absent or waited >= patience)
