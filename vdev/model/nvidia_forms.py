"""Keys and values that only files for NVIDIA's plugin have, so that these load unchanged.

Names without a domain, comma lists, references to devices, and keys that need NVIDIA's driver (accepted, with a warning
for each). Source: NVIDIA/k8s-device-plugin v0.20.0, `api/config/v1`.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema

from .scalars import AsWritten, Constraint, Flag, Text, Whole
from .section import Plain, Section, described, refuse

DOMAIN = "nvidia.com"

# --- names and references --------------------------------------------------------------------------------------------


def prefixed(name: object) -> object:
    """Put `nvidia.com/` before a name without a domain, as NVIDIA's plugin does."""
    return f"{DOMAIN}/{name}" if type(name) is str and name and "/" not in name else name


_REFERENCE = re.compile(r"[0-9]+(:[0-9]+)?|[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_LONGEST = 63  # characters of a device id
EXPECTED_DEVICES = (
    "expected all, a count of devices, or a list of indices (3), partition indices ('0:1'), ids and entries"
)


def _references(value: object) -> int | tuple[str, ...] | None:
    """Parse `devices` of a shared resource: None for all, a count, or references."""
    if isinstance(value, (list, tuple)):
        return tuple(str(item) for item in _ITEMS.validate_python(value))
    if type(value) is str:
        if value == "all":
            return None
        return refuse(f"devices set as {value!r}, and the only word allowed is 'all'", EXPECTED_DEVICES)
    if isinstance(value, int) and not isinstance(value, bool):
        value = Plain(value)
    if not isinstance(value, Plain) or not re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,8})", value):
        refuse(f"{described(value)} does not choose devices", EXPECTED_DEVICES)
    if int(value) < 1:
        refuse(f"a count of devices must be at least 1, got {value}", EXPECTED_DEVICES)
    return int(value)


def _reference(item: object) -> object:
    if len(str(item)) > _LONGEST:
        refuse(f"{described(item)} refers to no device: it is longer than any id or index", EXPECTED_DEVICES)
    is_whole = isinstance(item, int) and not isinstance(item, bool) and item >= 0
    is_index = is_whole or (isinstance(item, Plain) and re.fullmatch(r"0|[1-9][0-9]*", item))
    if not is_index and not (type(item) is str and _REFERENCE.fullmatch(item)):
        refuse(f"{described(item)} refers to no device", EXPECTED_DEVICES)
    return item


_ITEMS: TypeAdapter[list[object]] = TypeAdapter(list[Annotated[object, BeforeValidator(_reference)]])

_REFERENCES_JSON = {
    "anyOf": [
        {"const": "all"},
        {"type": "integer", "minimum": 1},
        {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": ["string", "integer"], "minimum": 0}},
    ]
}
References = Annotated[int | tuple[str, ...] | None, BeforeValidator(_references), WithJsonSchema(_REFERENCES_JSON)]
"""Which devices of a resource are shared."""


def comma_list(value: object) -> list[object]:
    """Split a text at its commas, as NVIDIA's flags and variables have lists; another value is a list of one."""
    if type(value) is str:
        return [item.strip() for item in value.split(",")]
    return [value]


# --- keys that mean nothing here -------------------------------------------------------------------------------------


class Gfd(Section):
    """Options of GPU feature discovery. They are accepted, but only noTimestamp is used."""

    oneshot: Flag | None = None
    """Not used."""
    no_timestamp: Flag | None = None
    """Whether node.labels omits the label nvidia.com/gfd.timestamp."""
    sleep_interval: AsWritten | None = None
    """Not used."""
    output_file: Text | None = None
    """Not used."""
    machine_type_file: Text | None = None
    """Not used."""


def _channels_problem(value: list[int]) -> str:
    return "" if value in ([], [0]) else f"channelIDs must be [] or [0], got {value}"


class Imex(Section):
    """NVIDIA's IMEX channels. Virtual devices have none: accepted and not used."""

    channel_ids: Annotated[list[Whole], Constraint(_channels_problem), Field(alias="channelIDs")] = []
    """Not used: [] or [0]."""
    required: Flag = False
    """Not used."""
