"""Which devices a pod may hold: one rule over what the kubelet says, its checkpoint and our own Allocates.

    PodResources.List  names the holders. A kubelet that has just started answers with no pods at all for about a
                       second; one that is down does not answer. It has all pods, but no regular init containers.
    the checkpoint     `kubelet_internal_checkpoint` names every held device at any time, init containers' as well. It
                       names devices of pods that have ended, too: until the kubelet writes it again after a List or an
                       Allocate, and those of the pod that was admitted last until another one is.

A device is in use if one of them names it. It is free if a trusted answer and the checkpoint both leave it out. An
answer is trusted when the kubelet has answered for `kubelet_grace`. Because the checkpoint names ended pods too, there
are two exceptions: a device that this kubelet has named and names no longer is free at once, and after `retire_blind`
the checkpoint alone no longer counts, unless the answer names its pod with another device.

Keeping a device too long only delays a change of the configuration; releasing it too early gives it to two pods.

Everything here is a value and a pure function of it; times are monotonic seconds. Seen on Kubernetes 1.36.2.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..intervals import PRODUCTION, Intervals
from ..model.device import Key

_NEVER = float("-inf")


@dataclass(frozen=True)
class KubeletCheckpoint:
    """What the kubelet's checkpoint file names, by the pod's UID."""

    pods: Mapping[str, frozenset[Key]]

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
    """What PodResources.List says: (resource, id) to `namespace/pod`.

    `containers` are the names of the containers that have them, `claimed` who has a device by a claim.
    """

    holders: Mapping[Key, str]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What the readings so far tell; `update` adds one.

    `holders` are the pods by name: those of the last answer, and while the kubelet is young those known before.
    `doubted` are devices that the last answer does not name and a pod may hold all the same. `answered_at` is when the
    last answer was asked for. `silent_since` is None while the kubelet answers. `heard` tells whether it ever answered.
    """

    holders: Mapping[Key, str] = field(default_factory=dict)
    doubted: frozenset[Key] = frozenset()
    answered_at: float = _NEVER
    silent_since: float | None = None
    heard: bool = False
    kubelet: object = None
    trusted_from: float = _NEVER  # from when on what its answers leave out counts
    named: Mapping[Key, float] = field(default_factory=dict)  # by this kubelet, at its last answer that named it
    unnamed: Mapping[Key, float] = field(default_factory=dict)  # what only the checkpoint names, since when
    containers: Mapping[Key, str] = field(default_factory=dict)  # of the last answer, which no decision rests on
    claimed: tuple[Use, ...] = ()  # likewise

    def is_young(self, now: float) -> bool:
        """Whether the kubelet has only just started, for all we know."""
        return now < self.trusted_from


NOTHING = Knowledge()


def update(
    before: Knowledge, reading: HoldersReading, allocated: Mapping[Key, float], intervals: Intervals = PRODUCTION
) -> Knowledge:
    """What is known after one more reading. `allocated` are the times of our own Allocates that no answer settled."""
    checkpoint = reading.checkpoint
    if reading.answer is None:
        # Nothing is released while nobody answers; what the checkpoint names is added.
        silent_since = reading.at if before.silent_since is None else before.silent_since
        held = before.doubted | before.holders.keys() | (checkpoint.keys if checkpoint else frozenset())
        return replace(before, doubted=held, silent_since=silent_since)
    if before.silent_since is not None or not before.heard or reading.kubelet != before.kubelet:
        before = _of_another_kubelet(before, reading, intervals)
    answer, at = reading.answer, reading.at
    on_disk = checkpoint.keys if checkpoint else before.unnamed.keys()  # without a file the one before counts

    # What was allocated anew after it was named may be with an init container, which no answer will ever name.
    still = {key: moment for key, moment in before.named.items() if allocated.get(key, moment) <= moment}
    named = {**still, **dict.fromkeys(answer.holders, at)}
    beside = _beside_named(checkpoint, answer)
    unnamed: dict[Key, float] = {}
    doubted: set[Key] = set()
    for key in (before.doubted | before.unnamed.keys() | on_disk) - named.keys():
        since = max(before.unnamed.get(key, at), allocated.get(key, _NEVER))
        in_time = key in on_disk and at - since < intervals.retire_blind
        if before.is_young(at) or key in beside or in_time:
            doubted.add(key)
        if key in on_disk:  # also after its time has run out, which must not begin anew
            unnamed[key] = since
    known_before = {key: pod for key, pod in before.holders.items() if key in doubted and before.is_young(at)}
    return replace(
        before,
        holders={**known_before, **answer.holders},
        doubted=frozenset(doubted),
        answered_at=at,
        named={key: moment for key, moment in named.items() if key in answer.holders or key in on_disk},
        unnamed=unnamed,
        containers=answer.containers,
        claimed=answer.claimed,
    )


def _of_another_kubelet(before: Knowledge, reading: HoldersReading, intervals: Intervals) -> Knowledge:
    """A kubelet that has just begun to answer: all that was held before is missing until it is named again."""
    return replace(
        before,
        silent_since=None,
        heard=True,
        kubelet=reading.kubelet,
        trusted_from=reading.at + intervals.kubelet_grace,
        doubted=before.doubted | before.holders.keys(),
        named={},
        unnamed={},
    )


def _beside_named(checkpoint: KubeletCheckpoint | None, answer: HoldersAnswer) -> frozenset[Key]:
    """What the checkpoint has of pods that the answer names with another device: an init container's, for certain."""
    pods = checkpoint.pods.values() if checkpoint else ()
    return frozenset[Key]().union(*(keys for keys in pods if not keys.isdisjoint(answer.holders)))


def settled(knowledge: Knowledge, allocated: Mapping[Key, float], intervals: Intervals = PRODUCTION) -> frozenset[Key]:
    """Which of our Allocates the last answer decides: their pod is named, or had the time to appear and did not."""
    if knowledge.silent_since is not None or not knowledge.heard:
        return frozenset()
    asked = knowledge.answered_at
    patience = float("inf") if knowledge.is_young(asked) else intervals.unnamed_allocate
    return frozenset(
        key
        for key, at in allocated.items()
        if at <= asked and (knowledge.named.get(key, _NEVER) >= at or at + patience <= asked)
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
    read_at: float = _NEVER
    in_flight: frozenset[Key] = frozenset()
    allocated: Mapping[Key, float] = field(default_factory=dict)
    doubted: frozenset[Key] = frozenset()
    blind_since: float = _NEVER
    complete: bool = True
    silent: bool = False
    containers: Mapping[Key, str] = field(default_factory=dict)
    claimed: tuple[Use, ...] = ()

    def may_hold(self, key: Key) -> bool:
        """Whether a pod may hold it, as far as is known now."""
        return key in self.doubted or key in self.in_flight or key in self.allocated or key in (self.holders or ())

    def all(self) -> frozenset[Key]:
        """Everything that a pod may hold."""
        return frozenset((*(self.holders or ()), *self.doubted, *self.in_flight, *self.allocated))

    def by_whom(self, key: Key) -> str:
        """The holder, in words."""
        pod = (self.holders or {}).get(key)
        return f"pod {pod}" if pod else "a pod"
