"""The key `dra` of an entry: driver, attributes, capacity and taints in ResourceSlices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple, Self

from pydantic import PlainValidator, model_validator

from . import names
from .scalars import (
    AMOUNT_JSON,
    NO_DEFAULT,
    Amount,
    Constraint,
    Flag,
    Shorthand,
    Text,
    Word,
    parsed_template,
)
from .section import Plain, Section, described, refuse
from .template import Template


class ClaimApi(StrEnum):
    """How pods can request the devices of an entry."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"


class DraPartitions(StrEnum):
    """Which partitions are published: the entry's partitions, or all possible partitions of a device."""

    STATIC = "static"
    DYNAMIC = "dynamic"


class TaintPolicy(StrEnum):
    """The effect of the taint on a failed device. With NoExecute, its pods are also evicted."""

    NONE = "none"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


class AttributeKind(StrEnum):
    """The type of an attribute's value in a ResourceSlice."""

    INT = "int"
    BOOL = "bool"
    STRING = "string"
    VERSION = "version"


class Attribute(NamedTuple):
    """The value of an attribute; its kind distinguishes 1 from true."""

    kind: AttributeKind
    value: int | bool | str


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """The amounts of a capacity that a claim may request if several claims share a device."""

    default: int  # for a claim that does not request an amount
    least: int | None = None
    most: int | None = None
    step: int | None = None
    values: tuple[int, ...] = ()  # allowed amounts; if empty, the range applies


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """A capacity of a device, with the policy for claims that share the device."""

    value: int
    policy: RequestPolicy | None = None


AttributeName = Annotated[Word, Constraint(names.attribute_problem)]
"""The name of an attribute that Kubernetes accepts."""


class Version(Section):
    """A version, as the value of an attribute."""

    version: Annotated[Text, Constraint(names.version_problem)]
    """Three numbers without leading zeros, such as 580.95.5."""


_MOST_VALUES = 10
_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_EXPECTED = "expected a string, a whole number, true, false, or {version: 1.2.3}"


def _value(value: object) -> object:
    if isinstance(value, (int, Version)):
        return value
    if isinstance(value, Mapping):
        return Version.model_validate(value)
    if isinstance(value, Plain):
        if value.lower() in ("true", "false"):
            return value.lower() == "true"
        if _WHOLE.fullmatch(value):
            return int(value)
        refuse(f"{_EXPECTED}, got {described(value)}", f'write it in quotes: "{value}"')
    if not isinstance(value, (str, Template)):
        refuse(f"{_EXPECTED}, got {described(value)}")
    text = parsed_template(value)
    problem = names.string_problem("".join(text.literals))
    return refuse(problem) if problem else text


Value = Annotated[
    bool | int | Template | Version,
    PlainValidator(_value, json_schema_input_type=str | int | bool | Version),
]
"""The value of an attribute: string, integer, boolean or version."""


class ValidRange(Section):
    """The amounts that a claim may request."""

    min: Amount
    """The smallest amount."""
    max: Amount | None = None
    """The largest amount. Default: the whole capacity."""
    step: Amount | None = None
    """Amounts are min plus a multiple of step. Other amounts are rounded up. Default: any amount."""


class CapacityPolicy(Section):
    """How much of a capacity a claim may request, like requestPolicy of a ResourceSlice."""

    default: Amount
    """The amount for a claim that requests no amount."""
    valid_values: list[Amount] = []
    """The amounts that a claim may request. Other amounts are rounded up."""
    valid_range: ValidRange | None = None
    """The amounts that a claim may request, as a range."""


class Capacity(Section):
    """An amount that each device has, and how much of it a claim may request."""

    value: Amount
    """The amount, as a Kubernetes quantity such as 100, 16Gi or 10G."""
    request_policy: CapacityPolicy | None = None
    """How much of the capacity a claim may request. With a policy, several claims may share the device."""

    @property
    def published(self) -> DeviceCapacity:
        """The capacity in the form of a ResourceSlice."""
        policy = self.request_policy
        if policy is None:
            return DeviceCapacity(self.value)
        span, values = policy.valid_range, tuple(policy.valid_values)
        if span is None:
            return DeviceCapacity(self.value, RequestPolicy(policy.default, values=values))
        return DeviceCapacity(self.value, RequestPolicy(policy.default, span.min, span.max, span.step))

    @model_validator(mode="after")
    def _policy_fits(self) -> Self:
        policy, problem = self.request_policy, ""
        if policy is None:
            return self
        if policy.valid_values and policy.valid_range:
            problem = "validValues and validRange exclude each other"
        elif policy.valid_values:
            problem = _values_problem(self.value, policy.default, policy.valid_values)
        elif policy.valid_range:
            problem = _range_problem(self.value, policy.default, policy.valid_range)
        elif policy.default > self.value:
            problem = "the default is more than the capacity"
        return refuse(problem) if problem else self


def _values_problem(value: int, default: int, values: list[int]) -> str:
    if len(values) > _MOST_VALUES or values != sorted(set(values)) or default not in values:
        return f"validValues are at most {_MOST_VALUES}, in ascending order, and contain the default"
    return "a valid value is more than the capacity" if values[-1] > value else ""


def _range_problem(value: int, default: int, span: ValidRange) -> str:
    most = value if span.max is None else span.max
    if not span.min <= default <= most <= value:
        return "expected min <= default <= max <= value"
    if span.step is None:
        return ""
    if span.step == 0:
        return "the step must be more than 0"
    if (default - span.min) % span.step or (span.max is not None and (most - span.min) % span.step):
        return "default and max must be a whole number of steps from min"
    return "min and one step are more than the capacity" if span.min + span.step > value else ""


class Taints(Section):
    """Taints that failed devices get in ResourceSlices."""

    unhealthy: TaintPolicy = TaintPolicy.NO_SCHEDULE
    """The taint of an unhealthy device. none: no taint; NoSchedule: no new claim gets the device; NoExecute: its pods
    are also evicted."""
    lost: TaintPolicy = TaintPolicy.NO_SCHEDULE
    """The taint of a device that disappeared while a pod holds it."""


CapacityOrValue = Annotated[Capacity, Shorthand((Mapping, Capacity), AMOUNT_JSON, lambda value: {"value": value})]
"""A capacity, or only its value."""

_MOST_CAPACITIES = 16  # leaves room for the device's own capacities and for attributes


def _capacities_problem(given: Mapping[str, Capacity]) -> str:
    is_fine = len(given) <= _MOST_CAPACITIES
    return "" if is_fine else f"{len(given)} capacities; at most {_MOST_CAPACITIES} can be given"


class Dra(Section):
    """How Dynamic Resource Allocation offers the devices, if `advertise` includes dra."""

    driver: Annotated[Word, Constraint(names.driver_problem), NO_DEFAULT] = ""
    """Name of the driver that publishes the devices. Default: the driver of the preset's vendor, such as
    gpu.nvidia.com, else the domain of the resource."""
    partitions: DraPartitions = DraPartitions.STATIC
    """Which partitions are published. static: the partitions under `partitions`; dynamic: the whole device and all its
    possible partitions; a claim gets a partition that still fits. See migEnabled."""
    mig_enabled: Flag | None = None
    """With partitions: dynamic, the MIG mode of NVIDIA's Ampere presets, which need a reset to change it. true: publish
    only partitions; false: publish only whole GPUs. Default: true. For newer GPUs, both are published."""
    attributes: dict[AttributeName, Value] = {}
    """Additional attributes of each device: a string, which may have placeholders, an integer, true or false, or a
    version, written {version: 1.2.3}. A name without a domain is in the driver's domain."""
    capacity: Annotated[
        dict[AttributeName, CapacityOrValue],
        Constraint(_capacities_problem, maxProperties=_MOST_CAPACITIES),
    ] = {}
    """Additional or replaced capacity of each whole device, such as compute: 100. A name without a domain is in the
    driver's domain."""
    taints: Taints = Taints()
    """Taints that failed devices get in ResourceSlices."""
    extended_resource: Flag | None = None
    """Whether the DeviceClass of `vdev dra classes` names the entry's resource, so that pods that request the resource
    get these devices without a claim. Default: true for NVIDIA presets, as in NVIDIA's driver, else false."""

    @property
    def is_dynamic(self) -> bool:
        """Whether claims partition the devices."""
        return self.partitions is DraPartitions.DYNAMIC and self.mig_enabled is not False
