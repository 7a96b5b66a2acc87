"""What a device that fails says to the scheduler, by the policy of its entry; NVIDIA's devices in NVIDIA's words."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..faults.effects import TaintFault
from ..faults.xids import APPLICATION_ERRORS
from ..model.device import GONE, HEALTHY, Device, Health, RawDevice
from ..model.dra import Attribute, AttributeKind, DeviceCapacity, DraSpec, RequestPolicy, TaintPolicy
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


NO_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class CounterSet:
    """What the partitions of a device take from: how much there is, by counter."""

    name: str
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a device takes from a set of counters."""

    counter_set: str
    counters: Mapping[str, int]


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
    attributes: Mapping[str, Attribute] = field(default_factory=lambda: NO_ATTRIBUTES)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes: tuple[Consumption, ...] = ()
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
    published, and its slots are not kept up to date with health. `tight`: a taint may come, or there are counters, so
    that fewer devices go into a slice.
    """

    driver: str
    offered: Resource = field(compare=False)
    devices: tuple[DraDevice, ...] = ()
    counters: tuple[CounterSet, ...] = ()
    tight: bool = True
    problems: tuple[Problem, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, DraDevice]:
        return {device.name: device for device in self.devices}

    def resource_of(self, device: DraDevice) -> Resource:
        """What answers for a device need: its entry, the flags and the sharing, under the name of its resource."""
        return replace(self.offered, name=self.offered.entries[device.entry].resource)


Pools = Mapping[str, PublishedPool]
"""By the driver's name."""


_XID = re.compile(r"\bxid\W{0,3}([0-9]{1,4})\b", re.IGNORECASE)
_INFORMS = "None"


def of_health(dra: DraSpec, health: Health, xids: Sequence[int], *, nvidia: bool) -> tuple[Taint, ...]:
    """The taints of a device that is there, with this health and these errors of NVIDIA's driver.

    An error that is an application's own leaves the device well, and only informs; of several errors the worst is told.
    """
    policy = dra.block.taints.unhealthy
    if policy is TaintPolicy.NONE:
        return ()
    if not xids and nvidia and not health.healthy and (told := _XID.search(health.reason)):
        xids = (int(told[1]),)
    if xids:
        worst = next((each for each in xids if each not in APPLICATION_ERRORS), xids[0])
        effect = _INFORMS if worst in APPLICATION_ERRORS and health.healthy else policy.value
        return (Taint(f"{dra.driver}/xid", effect, str(worst)),)
    return () if health.healthy else (Taint(f"{dra.driver}/unhealthy", policy.value),)


def with_rules(said: Sequence[Taint], rules: Sequence[TaintFault]) -> tuple[Taint, ...]:
    """These taints and those of fault rules; of the same key and effect a later one stands over the others."""
    every = (*said, *(Taint(each.key, each.effect.value, each.value) for each in rules))
    return tuple({(each.key, each.effect): each for each in every}.values())


def of_loss(dra: DraSpec, *, nvidia: bool) -> tuple[Taint, ...]:
    """The taints of a device that is away while a claim has it."""
    policy = dra.block.taints.lost
    if policy is TaintPolicy.NONE:
        return ()
    return (Taint(f"{dra.driver}/{'gpu-lost' if nvidia else 'lost'}", policy.value),)


Record = Mapping[str, Any]


def record(device: DraDevice, counters: tuple[CounterSet, ...], lost: tuple[Taint, ...]) -> Record:
    """The record, as JSON has it. `lost` are the taints that the device gets when it is away."""
    core = device.device
    used = {consumed.counter_set for consumed in device.consumes}
    return {
        "id": core.id,
        "raw": core.raw.id,
        "entry": core.raw.entry,
        "index": core.raw.index,
        "ordinal": core.ordinal,
        "profile": core.profile,
        "slices": [core.slices.start, core.slices.stop],
        "facts": {
            "numa": list(core.raw.numa),
            "memory": core.raw.memory,
            "paths": list(core.raw.paths),
            "attributes": dict(core.raw.attributes),
        },
        "attributes": {name: [each.kind.value, each.value] for name, each in device.attributes.items()},
        "capacity": {name: [each.value, _policy(each.policy)] for name, each in device.capacity.items()},
        "consumes": {each.counter_set: dict(each.counters) for each in device.consumes},
        "counters": {each.name: dict(each.counters) for each in counters if each.name in used},
        "shared": device.shared,
        "lost": [[each.key, each.effect, each.value] for each in lost],
    }


def _policy(policy: RequestPolicy | None) -> list[Any] | None:
    return None if policy is None else [policy.default, policy.least, policy.most, policy.step, [*policy.values]]


def recalled(name: str, written: Record) -> tuple[DraDevice, tuple[CounterSet, ...]] | None:
    """The device as it is published while it is away, and the counters that it takes from; None without a record."""
    if not written:
        return None
    try:
        return _device(name, written), tuple(CounterSet(key, each) for key, each in written["counters"].items())
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # not of this version


def _policy_of(
    default: int, least: int | None, most: int | None, step: int | None, values: Sequence[int] = ()
) -> RequestPolicy:
    """An older version wrote down no values."""
    return RequestPolicy(default, least, most, step, tuple(values))


def _device(name: str, written: Record) -> DraDevice:
    facts = written.get("facts") or {}  # what an older version wrote down has none
    raw = RawDevice(
        id=written["raw"],
        entry=written["entry"],
        index=written["index"],
        numa=tuple(facts.get("numa", ())),
        memory=facts.get("memory", 0),
        paths=tuple(facts.get("paths", ())),
        attributes=facts.get("attributes", {}),
    )
    core = Device(
        id=written["id"],
        raw=raw,
        ordinal=written["ordinal"],
        profile=written["profile"],
        slices=range(*written["slices"]),
    )
    return DraDevice(
        name=name,
        device=core,
        attributes={key: Attribute(AttributeKind(kind), value) for key, (kind, value) in written["attributes"].items()},
        capacity={
            key: DeviceCapacity(value, None if policy is None else _policy_of(*policy))
            for key, (value, policy) in written["capacity"].items()
        },
        consumes=tuple(Consumption(key, each) for key, each in written["consumes"].items()),
        shared=written["shared"],
        taints=tuple(Taint(*each) for each in written["lost"]),
        health=GONE,
        lost=True,
    )
