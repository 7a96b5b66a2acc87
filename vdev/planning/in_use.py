"""Determines which devices pods may hold.

A device is in use if PodResources, the kubelet's checkpoint or an Allocate of this agent names it:

    PodResources.List  names the pods. It leaves out regular init containers. For about a second after its start, a
                       kubelet answers without any pods. A kubelet that is down does not answer.
    the checkpoint     `kubelet_internal_checkpoint` names all held devices, including those of init containers. Devices
                       of pods that have ended stay in it until the kubelet writes it again.
    own Allocates      are known before the kubelet has admitted the pod.

A device is free when neither a trusted answer nor the checkpoint names it. An answer is trusted when the kubelet has
answered for `kubelet_grace`. Because the checkpoint also names ended pods, there are two exceptions: a device that the
kubelet has listed and no longer lists is free at once. A device that only the checkpoint names is free after
`retire_blind`, unless the answer names its pod with another device.

Keeping a device too long only delays a configuration change; releasing it too early gives it to two pods.

This module has only values and pure functions. Times are monotonic seconds. Observed on Kubernetes 1.36.2.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ..intervals import PRODUCTION, Intervals
from ..model.device import Key

_NEVER = float("-inf")


# --- what the kubelet says --------------------------------------------------------------------------------------------


Checkpoint = Mapping[str, frozenset[Key]]
"""The devices in the kubelet's checkpoint file, by the pod's UID."""


@dataclass(frozen=True, slots=True)
class Use:
    """A container that uses a device, and the claim through which it does, if any.

    `pod` is namespace/name. `device` is the published name in the driver's pool.
    """

    pod: str
    container: str
    claim: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """The pod that may hold a device."""

    pod: str = ""
    """namespace/name; empty if it is not known."""
    container: str = ""
    """The name of its container; empty if it is not known."""
    unlisted_since: float | None = None
    """When the device was allocated or first missing in an answer; None: the last answer names it."""
    is_awaited: bool = False
    """Whether this agent allocated the device and an answer with it may still come."""


@dataclass(frozen=True, slots=True)
class HoldersReading:
    """One call of PodResources.List, with the checkpoint."""

    at: float
    """When the call was made."""
    holders: Mapping[Key, Holder] | None
    """The pod and the container of each device; None: there was no answer."""
    claims: tuple[Use, ...] = ()
    """The devices that containers use through claims."""
    checkpoint: Checkpoint = field(default_factory=dict)
    """The checkpoint, read after the answer."""
    kubelet: object = None
    """Identifies the kubelet process: equal for readings of the same process."""
    is_served: bool = True
    """Whether the kubelet has an open stream to this agent, so it is running and could have answered."""

    @property
    def on_disk(self) -> frozenset[Key]:
        return frozenset().union(*self.checkpoint.values())


# --- the rule ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """The devices that pods may hold, according to all readings so far. `update` adds a reading."""

    devices: Mapping[Key, Holder] = field(default_factory=dict)
    """Every device that a pod may hold."""
    in_flight: frozenset[Key] = frozenset()
    """The devices that an unfinished request of the kubelet names."""
    ended: frozenset[Key] = frozenset()
    """The devices that the checkpoint still names but no pod holds."""
    claims: tuple[Use, ...] = ()
    """The devices that containers use through claims, in the last answer."""
    is_complete: bool = True
    """Whether all holders are known: the answer is trusted, or none came within `retire_blind`."""
    kubelet: object = None
    """The kubelet that answered last."""
    asked_at: float = _NEVER
    """When the last call was made."""
    answered_at: float = _NEVER
    """When the last call that was answered was made."""
    answers_since: float | None = None
    """The time since which this kubelet has answered every call; None: it did not answer the last one."""
    silent_since: float | None = None
    """The time since which a kubelet with an open stream has answered no call; None otherwise."""

    def may_hold(self, key: Key) -> bool:
        return key in self.devices or key in self.in_flight

    def may_be_used(self, key: Key) -> bool:
        """Whether a pod may hold the device, or the checkpoint still names it while the kubelet does not answer."""
        return self.may_hold(key) or (self.answers_since is None and key in self.ended)

    def all(self) -> frozenset[Key]:
        return frozenset(self.devices) | self.in_flight

    @property
    def pods(self) -> Mapping[Key, str]:
        """The known pod names: from the last answer, and until that is trusted, also from earlier ones."""
        return {key: each.pod for key, each in self.devices.items() if each.pod}

    @property
    def unlisted(self) -> frozenset[Key]:
        """The devices that may be in use but that the last answer does not name."""
        return frozenset(key for key, each in self.devices.items() if each.unlisted_since is not None)

    @property
    def awaited(self) -> frozenset[Key]:
        """The devices that were allocated, but whose pod has not appeared in an answer yet."""
        return frozenset(key for key, each in self.devices.items() if each.is_awaited)

    def has_heard_since(self, moment: float, intervals: Intervals) -> bool:
        """Whether a trusted answer came long enough after this moment that all admissions of that time have ended.

        Also true if a kubelet with an open stream has not answered for `retire_blind`.
        """
        if self.answers_since is not None:
            return self.is_complete and self.asked_at - moment >= intervals.retire_settle
        return (
            self.silent_since is not None and self.asked_at - max(moment, self.silent_since) >= intervals.retire_blind
        )

    def with_allocated(self, keys: Iterable[Key], now: float) -> "InUse":
        """Add devices that were just allocated; the pods that held them before have ended."""
        fresh = dict.fromkeys(keys, Holder(unlisted_since=now, is_awaited=True))
        return replace(self, devices={**self.devices, **fresh}, ended=self.ended - fresh.keys())

    def with_recorded(self, keys: Iterable[Key], now: float) -> "InUse":
        """Add devices that were held when an earlier process ended."""
        return replace(self, devices={**dict.fromkeys(keys, Holder(unlisted_since=now)), **self.devices})


UNKNOWN = InUse(is_complete=False)
"""The state before the first reading."""


def update(before: InUse, reading: HoldersReading, intervals: Intervals = PRODUCTION) -> InUse:
    """Return the devices in use after a new reading."""
    holders, on_disk, at = reading.holders, reading.on_disk, reading.at
    known = {**dict.fromkeys(on_disk - before.ended, Holder(unlisted_since=at)), **before.devices}
    if holders is None:
        # No device is released, unless PodResources has never answered, e.g. because it is not mounted.
        silent_since = None
        if reading.is_served:
            silent_since = at if before.silent_since is None else before.silent_since
        runs_out = False
        if silent_since is not None and before.answered_at == _NEVER:
            runs_out = at - silent_since >= intervals.retire_blind
        devices = {
            key: each
            for key, each in known.items()
            if not runs_out or each.unlisted_since is None or at - each.unlisted_since < intervals.retire_blind
        }
        return replace(
            before,
            devices=devices,
            ended=on_disk - devices.keys(),
            is_complete=runs_out,
            asked_at=at,
            answers_since=None,
            silent_since=silent_since,
        )

    answers_since = before.answers_since
    if answers_since is None or reading.kubelet != before.kubelet:
        # This may be a new kubelet process. Until its answers are trusted, devices that it does not list are in use.
        answers_since = at
        known = dict.fromkeys(on_disk, Holder(unlisted_since=at)) | {
            key: each if each.is_awaited else replace(each, unlisted_since=at) for key, each in before.devices.items()
        }
    is_trusted = at - answers_since >= intervals.kubelet_grace
    # The answer leaves out init containers, so a listed pod still holds its other devices in the checkpoint.
    listed_pods = [keys for keys in reading.checkpoint.values() if not keys.isdisjoint(holders)]
    of_listed_pods = frozenset[Key]().union(*listed_pods)
    devices = dict(holders)
    for key, each in known.items():
        since = each.unlisted_since
        if each.is_awaited and since is not None and since >= at:
            devices[key] = each  # allocated after the call: the answer is about the previous pod
        elif since is not None and key not in holders:
            is_awaited = each.is_awaited and (at - since < intervals.unnamed_allocate or not is_trusted)
            is_on_disk = key in on_disk and (at - since < intervals.retire_blind or key in of_listed_pods)
            if is_awaited or is_on_disk or not is_trusted:
                devices[key] = replace(each, pod="" if is_trusted else each.pod, is_awaited=is_awaited)
        # Otherwise, the answer names its pod, or this kubelet has listed the device before, so its pod has ended.
    return replace(
        before,
        devices=devices,
        ended=on_disk - devices.keys(),
        claims=reading.claims,
        is_complete=is_trusted,
        kubelet=reading.kubelet,
        asked_at=at,
        answered_at=at,
        answers_since=answers_since,
        silent_since=None,
    )
