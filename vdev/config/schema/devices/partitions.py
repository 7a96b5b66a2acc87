"""How the devices of an entry are cut: lists of profiles, by device or by the value of a label of the node."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, TypeAdapter, ValidatorFunctionWrapHandler, WithJsonSchema, WrapValidator

from ....core.partitions.geometry import repeated
from ...document.parser import Plain
from ..node_section import LabelKey
from ..scalars import Text, Whole, Word, between, matching
from ..section import Section, described, refuse, refuse_items

MAX_PARTS = 256  # of one profile on a device: as many as it may have slices

Count = Annotated[Whole, between(0, MAX_PARTS)]
"""How many partitions of a profile a device has."""

_COUNTS: TypeAdapter[dict[str, int]] = TypeAdapter(dict[Annotated[Text, matching(".+", "a profile's name")], Count])


def _not_a_profile(item: object) -> str:
    return "" if type(item) is str and item else f"expected a profile's name, got {described(item)}"


def _profiles(value: object) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return repeated(counts_of(value))
    if isinstance(value, (list, tuple)):
        refuse_items("partitions", value, _not_a_profile)
        return tuple(value)
    return refuse(f"expected a list of profiles, or how many of each, got {described(value)}")


def counts_of(value: Mapping[str, object]) -> dict[str, int]:
    """How many partitions of each profile, as `mig-devices` of mig-parted says it; not zero of all."""
    counts = _COUNTS.validate_python(value)
    if counts and not any(counts.values()):
        refuse("all of these are 0", "write {} for a device that is cut into nothing")
    return counts


def _layout(value: object) -> str | tuple[str, ...]:
    if type(value) is str and value:
        return value
    if isinstance(value, (list, tuple, dict)):
        return _profiles(value)
    hint = f'write it in quotes: "{value}"' if isinstance(value, Plain) else ""
    return refuse(f"expected a list of profiles or a layout's name, got {described(value)}", hint)


_PROFILES_JSON: list[dict[str, Any]] = [
    {"type": "array", "items": {"type": "string", "minLength": 1}},
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0, "maximum": MAX_PARTS}},
]
Profiles = Annotated[tuple[str, ...], BeforeValidator(_profiles), WithJsonSchema({"anyOf": _PROFILES_JSON})]
"""A list of profiles, or how many of each."""

Layout = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_layout),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, *_PROFILES_JSON]}),
]
"""Profiles, or a named layout."""

DeviceRange = Annotated[
    Text, matching(r"\*|all|(0|[1-9]\d{0,5})(-(0|[1-9]\d{0,5}))?", 'an index "0", a range "1-2", or "all"')
]


class FromLabel(Section):
    """Layouts that a label of the node chooses among."""

    from_label: LabelKey
    """The label whose value names a layout, such as nvidia.com/mig.config."""
    default: Word | None = None
    """The layout of a node without the label. Default: devices are whole."""
    file: Word | None = None
    """A file of layouts, of mig-parted's form or device-config-manager's, relative to this one. Default: the layouts of
    the devices themselves, all-disabled and all-enabled."""


_BY_DEVICE: TypeAdapter[dict[str, str | tuple[str, ...]]] = TypeAdapter(dict[DeviceRange, Layout])
_BY_LABEL = frozenset(field.alias or name for name, field in FromLabel.model_fields.items())


def _partitions(value: object, _: ValidatorFunctionWrapHandler) -> dict[str, str | tuple[str, ...]] | FromLabel:
    """One form or the other, and errors of that alone."""
    if isinstance(value, FromLabel) or (isinstance(value, dict) and _BY_LABEL & value.keys()):
        return FromLabel.model_validate(value)
    if not isinstance(value, dict):
        refuse(f"expected a mapping, got {described(value)}", """say which devices have them: {all: …} or {"0": …}""")
    return _BY_DEVICE.validate_python(value)


Partitions = Annotated[dict[DeviceRange, Layout] | FromLabel, WrapValidator(_partitions)]
"""How devices are cut."""
