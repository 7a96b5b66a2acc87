"""Which pod got a device and which gave it back, and which actions are due before the next container starts.

    Allocate            proves that the previous holder of the slot has ended; the new pod is not known yet
    PreStartContainer   a container is about to start with allocated slots: its pod holds the devices from now on
    PodResources        names pods, and shows which slots no pod can hold any more

A holder is a pod; its name may be unknown. It holds a device, not a slot: a pod with two replicas of one device holds
it once, and a shared device has several holders, each of which comes and goes alone.

A pod holds a device from the first start of a container: a pod that was refused after its allocation never held it.
A slot that is allocated twice without a start in between was for two containers of one pod, the first of them an init
container, because all devices of a pod are allocated before its first container starts.

Everything here is a value and a pure function of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from ..model.device import DeviceKey, Key, base_id, grouped

_NOT_STARTED = 0


class Tenant(NamedTuple):
    """A slot that was allocated or that a pod holds; slots of one pod have the same number in `holder`."""

    resource: str
    slot: str
    holder: int = _NOT_STARTED  # no container has started with the slot yet
    pod: str = ""  # its name, empty if it is not known

    @property
    def key(self) -> Key:
        return self.resource, self.slot


class Occasion(StrEnum):
    """When an action runs; the keys of the configuration."""

    ALLOCATE = "onAllocate"
    RELEASE = "onRelease"
    PRE_START = "preStart"


class Handover(NamedTuple):
    """A holder got a device (ALLOCATE) or gave it back (RELEASE); `pod` is empty if its name is not known."""

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
    """The slots in use of devices that have actions, and the handovers whose actions are not done, the oldest first.

    The state file keeps it.
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
    """The ledger after an Allocate: previous holders of these slots have ended, with everything that they held."""
    held = ledger.started
    ledger = _end(ledger, {held[key].holder for key in keys if key in held})
    fresh = [key for key in dict.fromkeys(keys) if key not in ledger.allocated]
    return replace(ledger, tenants=(*ledger.tenants, *(Tenant(*key) for key in fresh)))


def read(ledger: Ledger, named: Mapping[Key, str], may_hold: Callable[[Key], bool]) -> Ledger:
    """The ledger after an answer of PodResources; `named` are pods by name, of after the last Allocate of each slot.

    A holder has ended if another pod has one of its slots, or if no pod can hold any of them. A pod that was not known
    before has held its slots for an unknown time, so there is no arrival.
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
    """Return the ledger, and the handovers that must be done before a container with these slots starts.

    These are releases first, and then arrivals. `overlapping` are other devices that are partly the same hardware;
    their releases come first as well.
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
    """The ledger after the actions of a handover."""
    return replace(ledger, due=tuple(each for each in ledger.due if each != handover))


def _arrive(ledger: Ledger, keys: Collection[Key], named: Mapping[Key, str]) -> tuple[Ledger, tuple[Handover, ...]]:
    """Let the pod of these slots hold them; returns an arrival for each device that was allocated to it just now."""
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
    """End these holders: a release becomes due for each device of each of them."""
    if not holders:
        return ledger
    ended = sorted(each for each in ledger.tenants if each.holder in holders)
    handovers = (Handover(Occasion.RELEASE, *_device_key(each.key), each.holder, each.pod) for each in ended)
    # One for each device of a holder, even if only some of its slots were known by name.
    releases = {(each.device_key, each.holder): each for each in sorted(handovers)}
    due = (each for each in ledger.due if each.occasion is Occasion.RELEASE or each.holder not in holders)
    return Ledger(tenants=tuple(each for each in ledger.tenants if each not in ended), due=(*due, *releases.values()))


def _device_key(key: Key) -> DeviceKey:
    return key[0], base_id(key[1])
