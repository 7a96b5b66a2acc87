"""Which devices pods may hold.

A device is in use if PodResources, the kubelet's checkpoint or an Allocate of ours names it:

    PodResources.List  names the pods. It leaves out regular init containers. A kubelet that has just started answers
                       with no pods at all for about a second; one that is down does not answer.
    the checkpoint     `kubelet_internal_checkpoint` names every held device, init containers' as well. It may also name
                       devices of pods that have ended, until the kubelet writes it again.
    own Allocates      are known before the kubelet has admitted the pod.

A device is free when a trusted answer and the checkpoint both leave it out. An answer is trusted when the kubelet has
answered for `kubelet_grace`. Because the checkpoint names ended pods too, there are two exceptions: a device that the
kubelet has listed and lists no longer is free at once, and time runs out after `retire_blind` for one that only the
checkpoint names, unless the answer names its pod with another device.

Keeping a device too long only delays a change of the configuration; releasing it too early gives it to two pods.

Everything here is a value or a pure function; times are monotonic seconds. Observed on Kubernetes 1.36.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ..intervals import PRODUCTION, Intervals
from ..model.device import Key

_NEVER = float("-inf")


# --- what the kubelet says --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KubeletCheckpoint:
    """The devices in the kubelet's checkpoint file, by the pod's UID."""

    pods: Mapping[str, frozenset[Key]] = field(default_factory=dict)

    @cached_property
    def keys(self) -> frozenset[Key]:
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
class Holder:
    """The pod that may hold a device."""

    pod: str = ""
    """As namespace/name; empty if it is not known."""
    container: str = ""
    """The name of its container, if that is known."""
    unlisted_since: float | None = None
    """When it was allocated, or first missing in an answer; None: the last answer names it."""
    is_awaited: bool = False
    """Whether it was allocated by us and may still appear in an answer."""


@dataclass(frozen=True, slots=True)
class HoldersAnswer:
    """The answer of PodResources.List."""

    holders: Mapping[Key, Holder]
    """The pod and the container of each device."""
    claimed: tuple[Use, ...] = ()
    """The devices that containers have by claims."""


@dataclass(frozen=True, slots=True)
class HoldersReading:
    """One question to the kubelet."""

    at: float
    """When the question was asked."""
    answer: HoldersAnswer | None
    """None: there was no answer."""
    checkpoint: KubeletCheckpoint = KubeletCheckpoint()
    """Read after the answer came."""
    kubelet: object = None
    """Equal for readings of one kubelet process."""
    is_served: bool = True
    """Whether the kubelet has a stream of this agent open, so that it could have answered."""
    is_refused: bool = False
    """Whether the kubelet's rate limit refused the question."""


# --- the rule ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """The devices that pods may hold, after the readings so far. `update` adds a reading."""

    devices: Mapping[Key, Holder] = field(default_factory=dict)
    """Every device that a pod may hold."""
    in_flight: frozenset[Key] = frozenset()
    """The devices that an unfinished request of the kubelet names."""
    ended: frozenset[Key] = frozenset()
    """The devices that the checkpoint names although no pod holds them any more."""
    claims: tuple[Use, ...] = ()
    """The devices that containers have by claims, in the last answer."""
    is_complete: bool = True
    """Whether every pod that holds a device is known: the answer is trusted, or time ran out without any answer."""
    kubelet: object = None
    """The kubelet that answered last."""
    asked_at: float = _NEVER
    """When the last question was asked."""
    answered_at: float = _NEVER
    """When the last question that has an answer was asked."""
    answers_since: float | None = None
    """Since when the kubelet answers; None: it did not answer the last question."""
    silent_since: float | None = None
    """Since when a kubelet that has a stream open does not answer."""

    def may_hold(self, key: Key) -> bool:
        """Whether a pod may hold the device."""
        return key in self.devices or key in self.in_flight

    def all(self) -> frozenset[Key]:
        return frozenset(self.devices) | self.in_flight

    @property
    def pods(self) -> Mapping[Key, str]:
        """The pods that are known by name: of the last answer, and while that is not trusted those known before."""
        return {key: each.pod for key, each in self.devices.items() if each.pod}

    @property
    def unlisted(self) -> frozenset[Key]:
        """The devices that may be in use although the last answer does not name them."""
        return frozenset(key for key, each in self.devices.items() if each.unlisted_since is not None)

    @property
    def awaited(self) -> frozenset[Key]:
        """The devices that were allocated and whose pod is not in an answer yet."""
        return frozenset(key for key, each in self.devices.items() if each.is_awaited)

    def has_heard_since(self, moment: float, intervals: Intervals) -> bool:
        """Whether a trusted answer came so long after this moment that every admission of that time is over.

        If a kubelet that serves does not answer, time runs out.
        """
        if self.answers_since is not None:
            return self.is_complete and self.asked_at - moment >= intervals.retire_settle
        return (
            self.silent_since is not None and self.asked_at - max(moment, self.silent_since) >= intervals.retire_blind
        )

    def with_allocated(self, keys: Iterable[Key], now: float) -> "InUse":
        """With devices that were just allocated: the pods that held them before have ended."""
        fresh = dict.fromkeys(keys, Holder(unlisted_since=now, is_awaited=True))
        return replace(self, devices={**self.devices, **fresh}, ended=self.ended - fresh.keys())

    def with_recorded(self, keys: Iterable[Key], now: float) -> "InUse":
        """With devices that were held when an earlier process ended."""
        return replace(self, devices={**dict.fromkeys(keys, Holder(unlisted_since=now)), **self.devices})


UNKNOWN = InUse(is_complete=False)
"""Before the first reading."""


def update(before: InUse, reading: HoldersReading, intervals: Intervals = PRODUCTION) -> InUse:
    """The devices in use after one more reading."""
    answer, on_disk, at = reading.answer, reading.checkpoint.keys, reading.at
    if reading.is_refused:
        # The kubelet works, so its earlier answers stay trusted; those of another kubelet do not. Only the checkpoint
        # is new, and it adds devices.
        fresh = dict.fromkeys(on_disk - before.ended, Holder(unlisted_since=at))
        is_complete = before.is_complete and reading.kubelet == before.kubelet
        return replace(before, devices={**fresh, **before.devices}, is_complete=is_complete)
    if answer is None:
        return _unanswered(before, reading, intervals)
    if before.answers_since is None or reading.kubelet != before.kubelet:
        # Another kubelet, or one that may have restarted: what it has not listed yet is in use until it is trusted.
        unlisted = {
            key: each if each.is_awaited else replace(each, unlisted_since=at) for key, each in before.devices.items()
        }
        before = replace(before, devices=unlisted, ended=frozenset(), answers_since=at, kubelet=reading.kubelet)
    assert before.answers_since is not None
    is_trusted = at - before.answers_since >= intervals.kubelet_grace
    # A pod that the answer names has its other devices for its init containers.
    listed_pods = [keys for keys in reading.checkpoint.pods.values() if not keys.isdisjoint(answer.holders)]
    of_listed_pods = frozenset[Key]().union(*listed_pods)
    devices: dict[Key, Holder] = {}
    for key in before.devices.keys() | answer.holders.keys() | (on_disk - before.ended):
        known = before.devices.get(key, Holder(unlisted_since=at))
        if known.is_awaited and known.unlisted_since is not None and known.unlisted_since >= at:
            devices[key] = known  # allocated after the kubelet was asked: the answer is about the pod before
        elif key in answer.holders:
            devices[key] = answer.holders[key]
        elif known.unlisted_since is not None:
            age = at - known.unlisted_since
            is_awaited = known.is_awaited and (age < intervals.unnamed_allocate or not is_trusted)
            is_on_disk = key in on_disk and (age < intervals.retire_blind or key in of_listed_pods)
            if is_awaited or is_on_disk or not is_trusted:
                pod = "" if is_trusted else known.pod
                devices[key] = replace(known, pod=pod, is_awaited=is_awaited)
        # else this kubelet has listed the device, and its pod has ended
    return replace(
        before,
        devices=devices,
        ended=on_disk - devices.keys(),
        claims=answer.claimed,
        is_complete=is_trusted,
        asked_at=at,
        answered_at=at,
        silent_since=None,
    )


def _unanswered(before: InUse, reading: HoldersReading, intervals: Intervals) -> InUse:
    """Silence releases nothing, and the checkpoint adds devices.

    Only if PodResources never answered, because it is not mounted, time runs out while a kubelet serves.
    """
    at, on_disk = reading.at, reading.checkpoint.keys
    silent_since = None
    if reading.is_served:
        silent_since = at if before.silent_since is None else before.silent_since
    runs_out = False
    if silent_since is not None and before.answered_at == _NEVER:
        runs_out = at - silent_since >= intervals.retire_blind

    def is_over(holder: Holder) -> bool:
        return runs_out and holder.unlisted_since is not None and at - holder.unlisted_since >= intervals.retire_blind

    fresh = dict.fromkeys(on_disk - before.ended, Holder(unlisted_since=at))
    devices = {key: each for key, each in {**fresh, **before.devices}.items() if not is_over(each)}
    return replace(
        before,
        devices=devices,
        ended=on_disk - devices.keys(),
        is_complete=runs_out,
        asked_at=at,
        answers_since=None,
        silent_since=silent_since,
    )
