"""Tracks which pod got or released a device, and which actions must run before the next container starts.

    Allocate            proves that the previous holder of the slot has ended; the new pod is not known yet
    PreStartContainer   a container is about to start with allocated slots: its pod holds the devices from now on
    PodResources        names pods, and shows which slots no pod can hold any more

A holder is a pod; its name may be unknown. It holds a device, not a slot: a pod with two replicas of one device holds
it once. A shared device has several holders, which get and release it independently.

A pod holds a device from the first start of a container: a pod that was refused after its allocation never held it.
If a slot is allocated twice without a start in between, both allocations are for one pod, and the first is for an init
container, because all devices of a pod are allocated before its first container starts.

This module has only immutable values and pure functions.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ..model.device import DeviceKey, Key, base_id, grouped

_NOT_STARTED = 0


class Tenant(NamedTuple):
    """A slot that is allocated or held by a pod. Slots of one pod have the same number in `holder`."""

    resource: str
    slot: str
    holder: int = _NOT_STARTED  # no container has started with the slot yet
    pod: str = ""  # its name, empty if it is not known

    @property
    def key(self) -> Key:
        return self.resource, self.slot


class Occasion(StrEnum):
    """When an action runs. The values are configuration keys."""

    ALLOCATE = "onAllocate"
    RELEASE = "onRelease"
    PRE_START = "preStart"


class Handover(NamedTuple):
    """A holder got a device (ALLOCATE) or released it (RELEASE). `pod` is empty if its name is not known."""

    occasion: Occasion
    resource: str
    device: str
    holder: int
    pod: str = ""

    @property
    def device_key(self) -> DeviceKey:
        return self.resource, self.device


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The used slots of devices with actions, and the handovers whose actions have not completed, oldest first.

    It is saved in the state file.
    """

    tenants: tuple[Tenant, ...] = ()
    due: tuple[Handover, ...] = ()

    @property
    def releases(self) -> tuple[Handover, ...]:
        return tuple(each for each in self.due if each.occasion is Occasion.RELEASE)

    @property
    def started(self) -> Mapping[Key, Tenant]:
        """The slots with which a container has started."""
        return {each.key: each for each in self.tenants if each.holder}

    @property
    def allocated(self) -> frozenset[Key]:
        """The slots that were allocated and with which no container has started yet."""
        return frozenset(each.key for each in self.tenants if not each.holder)


EMPTY = Ledger()


def record_allocate(ledger: Ledger, keys: Collection[Key]) -> Ledger:
    """Return the ledger after an Allocate: previous holders of these slots have ended and release all their devices."""
    held = ledger.started
    ledger = _end(ledger, {held[key].holder for key in keys if key in held})
    fresh = [key for key in dict.fromkeys(keys) if key not in ledger.allocated]
    return replace(ledger, tenants=(*ledger.tenants, *(Tenant(*key) for key in fresh)))


def read(ledger: Ledger, named: Mapping[Key, str], may_hold: Callable[[Key], bool]) -> Ledger:
    """Return the ledger after an answer of PodResources. `named` has the pod of each slot since its last Allocate.

    A holder has ended if another pod has one of its slots, or if no pod can hold any of them. A pod that appears for
    the first time may have held its slots for long, so no `onAllocate` action runs for it.
    """
    ended: set[int] = set()
    pods: dict[int, str] = {}
    for holder, tenants in grouped((each.holder, each) for each in ledger.started.values()).items():
        pod, keys = tenants[0].pod, [each.key for each in tenants]
        names = {named[key] for key in keys if key in named}
        if (pod and names - {pod}) or not any(map(may_hold, keys)):
            ended.add(holder)
        elif names:
            pods[holder] = min(names)
    ledger = _end(ledger, ended)
    known = (each._replace(pod=pods.get(each.holder, each.pod)) for each in ledger.tenants)
    ledger = replace(ledger, tenants=tuple(each for each in known if each.holder or may_hold(each.key)))
    for key in sorted(named.keys() - {each.key for each in ledger.tenants}):
        ledger, _ = _arrive(ledger, [key], named)
    return ledger


def pre_start(
    ledger: Ledger, keys: Collection[Key], named: Mapping[Key, str], overlapping: Collection[DeviceKey] = ()
) -> tuple[Ledger, tuple[Handover, ...]]:
    """Return the ledger, and the handovers whose actions must run before a container with these slots starts.

    If a release is left, these are only releases. `overlapping` are other devices that share hardware with these
    slots; their releases must come first, too.
    """
    units = {*map(_device_key, keys), *overlapping}
    releases = tuple(each for each in ledger.releases if each.device_key in units)
    if releases:
        return ledger, releases
    ledger, arrivals = _arrive(ledger, keys, named)
    ledger = replace(ledger, due=(*ledger.due, *arrivals))
    held = ledger.started
    who = {(_device_key(key), held[key].holder) for key in keys}
    return ledger, tuple(each for each in ledger.due if (each.device_key, each.holder) in who)


def done(ledger: Ledger, handover: Handover) -> Ledger:
    """Return the ledger after the actions of a handover have completed."""
    return replace(ledger, due=tuple(each for each in ledger.due if each != handover))


def _arrive(ledger: Ledger, keys: Collection[Key], named: Mapping[Key, str]) -> tuple[Ledger, tuple[Handover, ...]]:
    """Record that a pod holds these slots; returns an ALLOCATE handover for each device that it was just given."""
    held, granted = ledger.started, ledger.allocated
    fresh = [key for key in dict.fromkeys(keys) if key not in held]
    if not fresh:
        return ledger, ()
    pod = next((named[key] for key in keys if key in named), "")
    own = [held[key].holder for key in keys if key in held]
    own += [each.holder for key, each in held.items() if pod and named.get(key) == each.pod == pod]
    numbers = (*(each.holder for each in ledger.tenants), *(each.holder for each in ledger.due))
    holder = own[0] if own else max(numbers, default=_NOT_STARTED) + 1
    before = {_device_key(key) for key, each in held.items() if each.holder == holder}
    units = sorted({_device_key(key) for key in fresh if key in granted} - before)
    others = (each for each in ledger.tenants if each.key not in fresh)
    tenants = (*others, *(Tenant(*key, holder, pod) for key in fresh))
    return replace(ledger, tenants=tenants), tuple(Handover(Occasion.ALLOCATE, *unit, holder, pod) for unit in units)


def _end(ledger: Ledger, holders: Collection[int]) -> Ledger:
    """Remove these holders, and add a RELEASE handover for each device of each holder."""
    if not holders:
        return ledger
    ended = sorted(each for each in ledger.tenants if each.holder in holders)
    handovers = (Handover(Occasion.RELEASE, *_device_key(each.key), each.holder, each.pod) for each in ended)
    # One per device of a holder. The last of several wins, so that a known pod name is kept.
    releases = {(each.device_key, each.holder): each for each in sorted(handovers)}
    due = (each for each in ledger.due if each.occasion is Occasion.RELEASE or each.holder not in holders)
    return Ledger(tenants=tuple(each for each in ledger.tenants if each not in ended), due=(*due, *releases.values()))


def _device_key(key: Key) -> DeviceKey:
    return key[0], base_id(key[1])
