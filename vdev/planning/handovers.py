"""Tracks which pod got or released a device, and which actions must run before the next container starts.

    Allocate            proves that the previous holder of the slot has ended; the new pod is not known yet
    PreStartContainer   a container is about to start with allocated slots: its pod holds the devices from now on
    PodResources        names pods, and shows which slots no pod can hold any more

A pod holds a device, not a slot: with two replicas of one device, it holds the device once. A shared device has several
holders, which get and release it independently.

A pod holds a device from the first start of a container: a pod that was refused after its allocation never held it.
All devices of a pod are allocated before its first container starts. So if a slot is allocated twice without a start in
between, both allocations are for one pod, and the first is for an init container.

This module does no I/O. The state file saves the holdings.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..model.device import DeviceKey, Key, base_id, grouped


class Occasion(StrEnum):
    """When an action runs. The values are configuration keys."""

    ALLOCATE = "onAllocate"
    RELEASE = "onRelease"
    PRE_START = "preStart"


class Phase(StrEnum):
    """The phases of a holding, in this order."""

    ALLOCATED = "allocated"
    """No container has started with the device."""
    ARRIVING = "arriving"
    """The first container is about to start; `onAllocate` is due."""
    HOLDING = "holding"
    LEAVING = "leaving"
    """The pod has ended; `onRelease` is due."""


SavedHolding = tuple[str, str, tuple[str, ...], Phase, str]
"""The fields of a holding, as in the state file."""


@dataclass(slots=True, eq=False)
class Holding:
    """A pod that has a device, from its Allocate to the end of `onRelease`."""

    resource: str
    device: str
    slots: set[str]  # the device's id, or the ids of the replicas that the pod has
    phase: Phase
    pod: str = ""  # its name, empty if it is not known
    failure: str = ""  # why the last attempt of `onRelease` failed

    @property
    def device_key(self) -> DeviceKey:
        return self.resource, self.device

    @property
    def keys(self) -> set[Key]:
        return {(self.resource, slot) for slot in self.slots}

    @property
    def is_started(self) -> bool:
        """Whether a container has started, and the pod has not ended."""
        return self.phase in (Phase.ARRIVING, Phase.HOLDING)


class Holdings:
    """The holdings of all devices with actions, oldest first."""

    def __init__(self, saved: Iterable[SavedHolding] = ()) -> None:
        self.all = [Holding(resource, device, set(slots), phase, pod) for resource, device, slots, phase, pod in saved]

    @property
    def saved(self) -> tuple[SavedHolding, ...]:
        return tuple((each.resource, each.device, tuple(sorted(each.slots)), each.phase, each.pod) for each in self.all)

    @property
    def releases(self) -> list[Holding]:
        """The holdings whose `onRelease` is due."""
        return [each for each in self.all if each.phase is Phase.LEAVING]

    @property
    def started(self) -> set[Key]:
        """The slots of pods of which a container has started."""
        return {key for each in self.all if each.is_started for key in each.keys}

    def allocate(self, keys: Collection[Key]) -> None:
        """Record an Allocate: previous holders of these devices have ended."""
        allocated = set[Key]()
        for each in self.all:
            if each.phase is Phase.ALLOCATED:
                allocated |= each.keys
            elif each.is_started and not each.keys.isdisjoint(keys):
                each.phase = Phase.LEAVING
        # Record each slot separately: if the pod is refused, different pods may get its slots.
        for resource, slot in dict.fromkeys(keys):
            if (resource, slot) not in allocated:
                self.all.append(Holding(resource, base_id(slot), {slot}, Phase.ALLOCATED))

    def read(self, named: Mapping[Key, str], may_hold: Callable[[Key], bool]) -> None:
        """Record an answer of PodResources. `named` has the pod of each slot since its last Allocate.

        A holder has ended if another pod has one of its slots, or if no pod can hold any of them. A pod that appears
        for the first time may have held its slots for a long time, so no `onAllocate` action runs for it.
        """
        for each in [*self.all]:
            pods = {named[key] for key in each.keys if key in named}
            is_over = not any(map(may_hold, each.keys))
            if each.phase is Phase.ALLOCATED and is_over:
                self.all.remove(each)
            elif each.is_started:
                if is_over or (each.pod and pods - {each.pod}):
                    each.phase = Phase.LEAVING
                else:
                    each.pod = min(pods, default=each.pod)
        known = {key for each in self.all if each.phase is not Phase.LEAVING for key in each.keys}
        for keys in grouped((pod, key) for key, pod in sorted(named.items()) if key not in known).values():
            self.start(keys, named)

    def start(self, keys: Collection[Key], named: Mapping[Key, str]) -> list[Holding]:
        """Record the start of a container. Returns the holdings whose `onAllocate` must end before the start.

        All containers of a pod are one holder.
        """
        pod = next((named[key] for key in keys if key in named), "")
        by_device = grouped(((resource, base_id(slot)), slot) for resource, slot in keys)
        for (resource, device), ids in by_device.items():
            slots = set(ids)
            own = [each for each in self.all if each.device_key == (resource, device)]
            started = [each for each in own if each.is_started and (each.slots & slots or _is_of(each, pod, named))]
            allocated = [each for each in own if each.phase is Phase.ALLOCATED and each.slots & slots]
            if started:
                holding = started[0]
            else:
                holding = Holding(resource, device, set(), Phase.ARRIVING if allocated else Phase.HOLDING)
                self.all.append(holding)
            holding.pod = holding.pod or pod
            holding.slots |= slots.difference(*(each.slots for each in started))
            self.all = [each for each in self.all if each not in allocated]
        return [each for each in self.all if each.phase is Phase.ARRIVING and not each.keys.isdisjoint(keys)]


def _is_of(holding: Holding, pod: str, named: Mapping[Key, str]) -> bool:
    """Whether this pod has a slot of the holding now. The holding may be that of an ended pod with the same name."""
    return bool(pod) and holding.pod == pod and any(named.get(key) == pod for key in holding.keys)
