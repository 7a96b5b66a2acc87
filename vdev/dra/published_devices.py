"""Devices as pools have them: capacity of shared devices, taints of those that fail, and records of lost ones."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..faults.effects import TaintFault
from ..faults.xids import APPLICATION_ERRORS
from ..model.device import GONE, HEALTHY, Device, Health
from ..model.dra import Attribute, DeviceCapacity, RequestPolicy, TaintPolicy
from ..model.entry import Entry
from ..model.problem import Problem
from ..model.spec import SharingKind
from ..planning.resources import Resource
from ..planning.sharing import Sharing, mps_clients

_MIB = 2**20
MEMORY = "memory"


def shared(
    capacity: Mapping[str, DeviceCapacity], device: Device, sharing: Sharing, slots: str
) -> dict[str, DeviceCapacity]:
    """The capacity of a shared device, with `slots`, of which each claim takes one unless it asks for more.

    Without a policy, the first claim would take all of a capacity, so each has one. Memory that is not cut up, as under
    time-slicing, is no claim's alone: the default is none of it.
    """
    replicas = sharing.replicas[device.id]
    by_memory = sharing.kind is SharingKind.MPS and device.memory // replicas >= _MIB
    found = free(capacity)
    if by_memory and not capacity[MEMORY].policy:
        whole = device.memory // _MIB * _MIB
        share = device.memory // replicas // _MIB * _MIB
        found[MEMORY] = DeviceCapacity(whole, RequestPolicy(share, _MIB, whole, _MIB))
    count = mps_clients(device) if by_memory else replicas
    most = 1 if sharing.fail_requests_greater_than_one else count
    return {slots: DeviceCapacity(count, RequestPolicy(1, 1, most, 1)), **found}


def free(capacity: Mapping[str, DeviceCapacity]) -> dict[str, DeviceCapacity]:
    """The capacity of a shared device. Of what has no policy, a claim takes nothing unless it asks."""
    return {name: each if each.policy else _free(name, each.value) for name, each in capacity.items()}


def _free(name: str, value: int) -> DeviceCapacity:
    step = _MIB if name == MEMORY else 1
    whole = value // step * step
    return DeviceCapacity(whole, RequestPolicy(0, 0, whole, step)) if whole else DeviceCapacity(value)


CounterSets = Mapping[str, Mapping[str, int]]
"""Amounts by counter, by the name of the set that has the counters."""
NO_COUNTERS: CounterSets = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Taint:
    """What keeps claims from a device; `effect` is NoSchedule, NoExecute or None."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraDevice:
    """A device of a pool, and the core's device that it stands for.

    `shared`: several claims may have it at the same time. `group` is the id of the raw device: devices of a group that
    consume counters share one set. `lost`: it is away or no longer shared, and in the pool for the claims that have it.
    """

    name: str
    device: Device
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes: CounterSets = field(default_factory=lambda: NO_COUNTERS)
    shared: bool = False
    taints: tuple[Taint, ...] = ()
    health: Health = HEALTHY
    lost: bool = False

    @property
    def entry(self) -> str:
        return self.device.raw.entry

    @property
    def group(self) -> str:
        return self.device.raw.id


@dataclass(frozen=True)
class PublishedPool:
    """All devices of a driver on the node, in order of preference.

    `offered` has the entries, the flags and the sharing of these devices, under the driver's name; nothing of it is
    published, and its slots are not kept up to date with health.
    """

    driver: str
    offered: Resource = field(compare=False)
    devices: tuple[DraDevice, ...] = ()
    counters: CounterSets = field(default_factory=lambda: NO_COUNTERS)
    problems: tuple[Problem, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, DraDevice]:
        return {device.name: device for device in self.devices}

    def resource_of(self, device: DraDevice) -> Resource:
        """What answers for a device need: its entry, the flags and the sharing, under the name of its resource."""
        return replace(self.offered, name=self.offered.entries[device.entry].resource)


Pools = Mapping[str, PublishedPool]
"""By the driver's name."""
NO_POOLS: Pools = MappingProxyType({})


_XID = re.compile(r"\bxid\W{0,3}([0-9]{1,4})\b", re.IGNORECASE)
_INFORMS = "None"


def of_health(entry: Entry, health: Health, xids: Sequence[int]) -> tuple[Taint, ...]:
    """The taints of a device that is there, with this health and these errors of NVIDIA's driver.

    An error that is an application's own leaves the device well, and only informs; of several errors the worst is told.
    """
    policy = entry.dra.taints.unhealthy if entry.dra else TaintPolicy.NONE
    if entry.dra is None or policy is TaintPolicy.NONE:
        return ()
    driver = entry.dra.driver
    if not xids and entry.is_nvidia and not health.healthy and (told := _XID.search(health.reason)):
        xids = (int(told[1]),)
    if xids:
        worst = next((each for each in xids if each not in APPLICATION_ERRORS), xids[0])
        effect = _INFORMS if worst in APPLICATION_ERRORS and health.healthy else policy.value
        return (Taint(f"{driver}/xid", effect, str(worst)),)
    return () if health.healthy else (Taint(f"{driver}/unhealthy", policy.value),)


def with_rules(said: Sequence[Taint], rules: Sequence[TaintFault]) -> tuple[Taint, ...]:
    """These taints and those of fault rules; of the same key and effect a later one stands over the others."""
    every = (*said, *(Taint(each.key, each.effect.value, each.value) for each in rules))
    return tuple({(each.key, each.effect): each for each in every}.values())


def of_loss(entry: Entry) -> tuple[Taint, ...]:
    """The taints of a device that is away while a claim has it."""
    if entry.dra is None or entry.dra.taints.lost is TaintPolicy.NONE:
        return ()
    key = f"{entry.dra.driver}/{'gpu-lost' if entry.is_nvidia else 'lost'}"
    return (Taint(key, entry.dra.taints.lost.value),)


Record = Mapping[str, Any]
"""What is written down of a published device with the claim that gets it, as JSON has it."""


@dataclass(frozen=True, slots=True)
class LostDevice:
    """A device as it is published while it is away and a claim has it, and the counters that it takes from."""

    device: DraDevice
    counters: CounterSets


_LOST_DEVICE = TypeAdapter(LostDevice)


def record(pool: PublishedPool, device: DraDevice) -> Record:
    """The record of a device of this pool."""
    away = replace(device, taints=of_loss(pool.offered.entries[device.entry]), health=GONE, lost=True)
    kept = LostDevice(away, {name: pool.counters[name] for name in device.consumes})
    written: Record = _LOST_DEVICE.dump_python(kept, mode="json", fallback=dict, warnings=False)
    return written


def recalled(written: Record) -> LostDevice | None:
    """The device of which this was written down; None for what another version wrote."""
    try:
        return _LOST_DEVICE.validate_python(written)
    except (ValidationError, TypeError):
        return None
