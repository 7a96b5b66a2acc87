"""The devices of pools: capacity of shared devices, taints of unhealthy ones, and records of claimed ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..faults.xids import APPLICATION_ERRORS
from ..model.device import GONE, HEALTHY, Device, Health
from ..model.dra import Attribute, DeviceCapacity, RequestPolicy, TaintPolicy
from ..model.entry import Entry
from ..model.problem import Problem
from ..model.spec import SharingKind, TimeSlicing
from ..planning.resources import Resource
from ..planning.sharing import mps_clients

_MIB = 2**20
MEMORY = "memory"


def shared(
    capacity: Mapping[str, DeviceCapacity], device: Device, sharing: TimeSlicing, slots: str
) -> dict[str, DeviceCapacity]:
    """The capacity of a shared device, including `slots`, of which a claim consumes one by default.

    Each capacity has a policy, because without one the first claim would consume all of it. The default for memory
    that is not divided, as under time-slicing, is 0, because all claims use it together.
    """
    replicas = device.replicas
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
    """The capacity, with a policy for each amount that has none: by default, a claim consumes nothing of it."""
    return {name: each if each.policy else _free(name, each.value) for name, each in capacity.items()}


def _free(name: str, value: int) -> DeviceCapacity:
    step = _MIB if name == MEMORY else 1
    whole = value // step * step
    return DeviceCapacity(whole, RequestPolicy(0, 0, whole, step)) if whole else DeviceCapacity(value)


CounterSets = Mapping[str, Mapping[str, int]]
"""The amount of each counter, by the name of the counter set."""
NO_COUNTERS: CounterSets = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Taint:
    """A device taint; `effect` is NoSchedule, NoExecute or None."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraDevice:
    """A device of a pool. It consumes the counters `consumes` of `sets`, which have the total amounts of its group."""

    name: str
    device: Device  # of the inventory
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes: CounterSets = field(default_factory=lambda: NO_COUNTERS)
    sets: CounterSets = field(default_factory=lambda: NO_COUNTERS)
    shared: bool = False  # several claims may use it at the same time
    taints: tuple[Taint, ...] = ()
    health: Health = HEALTHY
    lost: bool = False  # gone or no longer shared; in the pool only because claims use it

    @property
    def entry(self) -> str:
        return self.device.raw.entry

    @property
    def group(self) -> str:
        """The id of the raw device. Devices of a group that consume counters share one counter set."""
        return self.device.raw.id


@dataclass(frozen=True)
class PublishedPool:
    """All devices of a driver on the node, in order of preference.

    `offered` has the entries, flags and sharing of these devices, under the driver's name. It is not published, and
    its health is out of date.
    """

    driver: str
    offered: Resource = field(compare=False)
    devices: tuple[DraDevice, ...] = ()
    problems: tuple[Problem, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, DraDevice]:
        return {device.name: device for device in self.devices}

    @cached_property
    def groups(self) -> frozenset[str]:
        return frozenset(device.group for device in self.devices)

    @cached_property
    def broken(self) -> Mapping[str, Health]:
        """The groups with a device that is not healthy, or is lost."""
        return {each.group: each.health for each in self.devices if not each.health.healthy or each.lost}

    @cached_property
    def counters(self) -> CounterSets:
        return {name: each for device in self.devices for name, each in device.sets.items()}


def empty_pool(driver: str) -> PublishedPool:
    return PublishedPool(driver, Resource(driver, ()))


Pools = Mapping[str, PublishedPool]
"""By the driver's name."""
NO_POOLS: Pools = MappingProxyType({})


_INFORMS = "None"


def of_health(entry: Entry, health: Health, xids: Sequence[int]) -> tuple[Taint, ...]:
    """The taints of a present device with this health and these XID errors of NVIDIA's driver.

    An XID that an application caused leaves the device healthy; its taint is only informational. Of several XIDs, the
    worst is the value.
    """
    policy = entry.dra.taints.unhealthy if entry.dra else TaintPolicy.NONE
    if entry.dra is None or policy is TaintPolicy.NONE:
        return ()
    driver = entry.dra.driver
    if xids:
        worst = next((each for each in xids if each not in APPLICATION_ERRORS), xids[0])
        effect = _INFORMS if worst in APPLICATION_ERRORS and health.healthy else policy.value
        return (Taint(f"{driver}/xid", effect, str(worst)),)
    return () if health.healthy else (Taint(f"{driver}/unhealthy", policy.value),)


def of_loss(entry: Entry) -> tuple[Taint, ...]:
    """The taints of a device that is lost while a claim uses it."""
    if entry.dra is None or entry.dra.taints.lost is TaintPolicy.NONE:
        return ()
    key = f"{entry.dra.driver}/{'gpu-lost' if entry.is_nvidia else 'lost'}"
    return (Taint(key, entry.dra.taints.lost.value),)


def lost(pool: PublishedPool, device: DraDevice) -> DraDevice:
    """A device of this pool, as it is published while it is lost and a claim uses it."""
    taints = device.taints if device.lost else of_loss(pool.offered.entries[device.entry])
    return replace(device, taints=taints, health=GONE, lost=True)


Record = Mapping[str, Any]
"""A published device in the checkpoint of the claim that uses it, as JSON."""
_DEVICE = TypeAdapter(DraDevice)


def record(pool: PublishedPool, device: DraDevice) -> Record:
    written: Record = _DEVICE.dump_python(lost(pool, device), mode="json", fallback=dict, warnings=False)
    return written


def recalled(written: Record | None) -> DraDevice | None:
    """Read a record; None if there is none, or another version of vdev wrote it in another format."""
    try:
        return _DEVICE.validate_python(written)
    except (ValidationError, TypeError):
        return None
