"""What a driver publishes: a pool of devices.

The names and limits are those of resource.k8s.io/v1. Amounts are whole numbers; `cutting` writes them as quantities.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType

from ...inventory.resources import Resource
from ...model.device import HEALTHY, Device, Health
from ...model.dra import Attribute, DeviceCapacity
from ...model.problem import Problem

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
