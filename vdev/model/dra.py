"""What an entry says about Dynamic Resource Allocation: which driver publishes its devices, and how."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from .template import Template


class ClaimApi(StrEnum):
    """How pods can ask for the devices of an entry."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"


class DraPartitions(StrEnum):
    """Which partitions are published: those that the entry lists, or all that a device can be cut into."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class TaintPolicy(StrEnum):
    """What a device that does not work does to claims: nothing, it is given to none, or its pods are evicted too."""

    NONE = "none"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class AttributeKind(StrEnum):
    """The type of an attribute's value, as a ResourceSlice names it."""

    INT = "int"
    BOOL = "bool"
    STRING = "string"
    VERSION = "version"


class Attribute(NamedTuple):
    """The value of an attribute; its kind keeps 1 and true apart."""

    kind: AttributeKind
    value: int | bool | str


class AttributeTemplate(NamedTuple):
    """The value of an attribute that the file gives: the same for all devices, or a string with placeholders."""

    name: str
    value: Attribute | Template


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity a claim may take, if several claims share a device; `default` if it does not say.

    One of `values`, if there are any; else from `least` to `most` in steps, as far as these are given.
    """

    default: int
    least: int | None = None
    most: int | None = None
    step: int | None = None
    values: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """How much of something a device has."""

    value: int
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraSpec:
    """How the devices of an entry are published in ResourceSlices.

    `mig_enabled` is the mode of GPUs that cannot change it without a reset, None for all others: with dynamic
    partitions, True publishes no whole GPU, False only whole GPUs. `unhealthy` is for devices that do not work, `lost`
    for those that are away. `capacity` is what whole devices have beside their own. `extended_resource`: pods get the
    whole ones also by the name of the entry's resource, without a claim of their own.
    """

    driver: str
    partitions: DraPartitions = DraPartitions.STATIC
    mig_enabled: bool | None = None
    attributes: tuple[AttributeTemplate, ...] = ()
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    unhealthy: TaintPolicy = TaintPolicy.NO_SCHEDULE
    lost: TaintPolicy = TaintPolicy.NO_SCHEDULE
    extended_resource: bool = False

    @property
    def is_dynamic(self) -> bool:
        """Whether claims cut the devices."""
        return self.partitions is DraPartitions.DYNAMIC and self.mig_enabled is not False
