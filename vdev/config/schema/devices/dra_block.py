"""`advertise` and `dra`: how pods ask for the devices of an entry, and what Dynamic Resource Allocation publishes."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import PlainValidator, WithJsonSchema

from ....core.model.dra import ClaimApi, DraPartitions, TaintPolicy
from ....core.model.syntax import slice_syntax, template
from ...document.parser import Plain
from ..scalars import STRING, Flag, Text, Word, choice, not_empty, one_or_many, without_problem
from ..section import Section, described, refuse

Advertise = Annotated[list[Annotated[ClaimApi, choice(ClaimApi)]], one_or_many(STRING), not_empty()]
"""One API, or a list of them."""

DriverName = Annotated[Word, without_problem(slice_syntax.driver_problem)]
"""The name of a DRA driver, as Kubernetes takes it."""

AttributeName = Annotated[Word, without_problem(slice_syntax.attribute_problem)]
"""The name of an attribute, as Kubernetes takes it."""


class Version(Section):
    """An attribute's value that is a version."""

    version: Annotated[Text, without_problem(slice_syntax.version_problem)]
    """Three numbers without leading zeros, such as 580.95.5."""


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
    if isinstance(value, str):
        return _string(value)
    return refuse(f"{_EXPECTED}, got {described(value)}")


def _string(value: str) -> str:
    try:
        parsed = template.parse(value)
    except template.TemplateError as error:
        refuse(str(error))
    if problem := slice_syntax.string_problem("".join(parsed.literals)):
        refuse(problem)
    return value


Value = Annotated[
    bool | int | str | Version,
    PlainValidator(_value),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": ["string", "integer", "boolean"]},
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["version"],
                    "properties": {"version": {"type": "string"}},
                },
            ]
        }
    ),
]
"""An attribute's value."""


class Taints(Section):
    """What a device that fails does to claims."""

    unhealthy: Annotated[TaintPolicy, choice(TaintPolicy)] = TaintPolicy.NO_SCHEDULE
    """For a device that does not work. none: nothing; NoSchedule: no further claim gets it; NoExecute: pods that have
    it are evicted too."""
    lost: Annotated[TaintPolicy, choice(TaintPolicy)] = TaintPolicy.NO_SCHEDULE
    """For a device that went away while a pod has it."""


class Dra(Section):
    """How Dynamic Resource Allocation offers the devices, where `advertise` has dra."""

    driver: DriverName | None = None
    """Name of the driver that publishes the devices. Default: that of the preset's maker, such as gpu.nvidia.com, else
    the domain of the resource."""
    partitions: Annotated[DraPartitions, choice(DraPartitions)] = DraPartitions.STATIC
    """Which partitions there are. static: those under partitions; dynamic: every one that a device can be cut into, and
    the whole device, of which claims get what still fits; see migEnabled."""
    mig_enabled: Flag | None = None
    """The MIG mode of NVIDIA's Ampere presets under partitions: dynamic. These GPUs cannot change it without a reset:
    true publishes only partitions, false only whole GPUs. Default: true. Newer GPUs are published with both."""
    attributes: dict[AttributeName, Value] = {}
    """Attributes of each device, beside its own: a string, which may hold placeholders, a whole number, true or false,
    or a version, written {version: 1.2.3}. A name without a domain is in the driver's."""
    taints: Taints = Taints()
    """What a device that fails does to claims."""
    extended_resource: Flag | None = None
    """Whether the DeviceClass that `vdev dra classes` makes stands for the entry's resource, so that pods that ask for
    it get these devices without a claim. Default: true for NVIDIA presets, as with NVIDIA's driver, else false."""
