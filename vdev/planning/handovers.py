"""Who got a device and who gave it back, and what must be done about it before the next container starts.

    Allocate            proves that the one that had the slot has ended; whose it is now is not known yet
    PreStartContainer   a container is about to start with what was allocated: its pod holds the devices from now on
    a reading           names pods, and tells which slots nobody can have any more

A holder is a pod, or what is known of one. What it holds is a device, not a slot: a pod with two replicas of one device
holds it once, and a shared device has several holders, each of whom comes and goes alone.

A pod holds from the first start of a container on: one that was refused after its allocation never held, and a slot
that is allocated twice without a start between was for two containers of one pod, the first of them an init container,
since a pod's devices are all allocated before its first container starts.

Everything here is a value and a pure function of it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..model.device import Key, base_id, grouped

Unit = tuple[str, str]
"""What changes hands: a resource's name and a device's id, without a replica's number."""


class Handover(NamedTuple):
    """That a holder got a device or gave it back; `pod` is empty where it is not known by name."""

    resource: str
    device: str
    holder: int
    pod: str = ""

    @property
    def unit(self) -> Unit:
        """What changes hands."""
        return self.resource, self.device


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who holds a slot: slots of one pod have the same number in `holder`, as far as that is known."""

    holder: int
    pod: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Who holds what, and what is owed for it.

    `granted` are slots that were allocated and with which no container has started yet. `owed` are releases that are
    still to be done, the oldest first, and `arriving` are arrivals. `last` is the last number given to a holder.
    """

    tenants: Mapping[Key, Tenant] = field(default_factory=dict)
    granted: frozenset[Key] = frozenset()
    owed: tuple[Handover, ...] = ()
    arriving: tuple[Handover, ...] = ()
    last: int = 0


EMPTY = Ledger()


def allocated(ledger: Ledger, keys: Collection[Key]) -> Ledger:
    """An Allocate was granted: who held one of these before has ended, with everything that it held."""
    ended = {ledger.tenants[key].holder for key in keys if key in ledger.tenants}
    ledger = _end(ledger, ended)
    return replace(ledger, granted=ledger.granted.union(keys))


def read(ledger: Ledger, named: Mapping[Key, str], may_hold: Callable[[Key], bool]) -> Ledger:
    """A reading came: `named` are pods by name, asked for after the last Allocate of each slot.

    A holder has ended when one of its slots is another pod's, or when no pod can have any of them. Who is named and
    was not known has had it for all we know.
    """
    ended: set[int] = set()
    pods: dict[int, str] = {}
    for holder, keys in grouped((each.holder, key) for key, each in ledger.tenants.items()).items():
        pod = ledger.tenants[keys[0]].pod
        names = {named[key] for key in keys if key in named}
        if (pod and names - {pod}) or not any(map(may_hold, keys)):
            ended.add(holder)
        elif names:
            pods[holder] = min(names)
    ledger = _end(ledger, ended)
    known = {key: replace(each, pod=pods.get(each.holder, each.pod)) for key, each in ledger.tenants.items()}
    ledger = replace(ledger, tenants=known, granted=frozenset(filter(may_hold, ledger.granted)))
    strange = {key: pod for key, pod in named.items() if key not in ledger.tenants and key not in ledger.granted}
    for key in sorted(strange):
        ledger, _ = _arrive(ledger, [key], named)
    return ledger


def pre_start(
    ledger: Ledger, keys: Collection[Key], named: Mapping[Key, str], overlapping: Collection[Unit] = ()
) -> tuple[Ledger, tuple[Handover, ...], tuple[Handover, ...]]:
    """A container with these slots is about to start. It may start when neither releases nor arrivals are to be done.

    Releases come first, and are told until they are `done`; when there are none, arrivals. `overlapping` are other
    devices that are partly the same hardware; releases of theirs come first as well.
    """
    units = {*map(_unit, keys), *overlapping}
    releases = tuple(each for each in ledger.owed if each.unit in units)
    if releases:
        return ledger, releases, ()
    ledger, arrivals = _arrive(ledger, keys, named)
    ledger = replace(ledger, arriving=(*ledger.arriving, *arrivals))
    who = {(_unit(key), ledger.tenants[key].holder) for key in keys}
    return ledger, (), tuple(each for each in ledger.arriving if (each.unit, each.holder) in who)


def done(ledger: Ledger, handover: Handover) -> Ledger:
    """A release or an arrival was done."""
    return replace(
        ledger,
        owed=tuple(each for each in ledger.owed if each != handover),
        arriving=tuple(each for each in ledger.arriving if each != handover),
    )


def _arrive(ledger: Ledger, keys: Collection[Key], named: Mapping[Key, str]) -> tuple[Ledger, tuple[Handover, ...]]:
    """Pods that hold these from now on; the arrivals are those of slots that were granted, one for each device."""
    fresh = [key for key in keys if key not in ledger.tenants]
    if not fresh:
        return ledger, ()
    pod = next((named[key] for key in keys if key in named), "")
    theirs = [ledger.tenants[key].holder for key in keys if key in ledger.tenants]
    theirs += [each.holder for key, each in ledger.tenants.items() if pod and named.get(key) == each.pod == pod]
    holder = theirs[0] if theirs else ledger.last + 1
    has = {_unit(key) for key, each in ledger.tenants.items() if each.holder == holder}
    new = sorted({_unit(key) for key in fresh if key in ledger.granted} - has)
    tenants = {**ledger.tenants, **dict.fromkeys(fresh, Tenant(holder, pod))}
    ledger = replace(ledger, tenants=tenants, granted=ledger.granted.difference(fresh), last=max(ledger.last, holder))
    return ledger, tuple(Handover(*unit, holder, pod) for unit in new)


def _end(ledger: Ledger, holders: Collection[int]) -> Ledger:
    """These holders have ended: a release is owed for each device of each of them."""
    if not holders:
        return ledger
    gone = {key: each for key, each in ledger.tenants.items() if each.holder in holders}
    handovers = (Handover(*_unit(key), each.holder, each.pod) for key, each in gone.items())
    # One for each device of a holder, also if some of its slots were known by name and others not.
    releases = {(each.unit, each.holder): each for each in sorted(handovers)}
    tenants = {key: each for key, each in ledger.tenants.items() if key not in gone}
    arriving = tuple(each for each in ledger.arriving if each.holder not in holders)
    return replace(ledger, tenants=tenants, owed=(*ledger.owed, *releases.values()), arriving=arriving)


def _unit(key: Key) -> Unit:
    return key[0], base_id(key[1])
