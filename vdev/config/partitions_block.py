"""The blocks `partitions` and `partitioning`: how devices are cut, and what they can be cut into."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from ..model import names
from ..model.entry import LabelKey
from ..model.geometry import PIN, PROFILES_JSON, Geometry, LayoutError, layouts_of, profiles_of, resource_suffix
from ..model.scalars import Flaw, Plain, Section, Text, Word, described, matching, refuse, refuse_all
from ..planning.partitions import place


def _layout(value: object) -> str | tuple[str, ...]:
    if type(value) is str and value:
        return value
    if isinstance(value, (list, tuple, dict)):
        return profiles_of(value)
    hint = f'write it in quotes: "{value}"' if isinstance(value, Plain) else ""
    return refuse(f"expected a list of profiles or a layout's name, got {described(value)}", hint)


Layout = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_layout),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, *PROFILES_JSON]}),
]
"""Profiles, or a named layout."""

DeviceRange = Annotated[
    Text, matching(r"\*|all|(0|[1-9]\d{0,5})(-(0|[1-9]\d{0,5}))?", 'an index "0", a range "1-2", or "all"')
]


class FromLabel(Section):
    """A label of the node that selects the layout."""

    from_label: LabelKey
    """The label whose value names a layout, such as nvidia.com/mig.config."""
    default: Word | None = None
    """The layout of a node without the label. Default: no partitions."""
    file: Word | None = None
    """A file of layouts in the form of mig-parted or device-config-manager, relative to this file. Default: the layouts
    of the devices, all-disabled and all-enabled."""


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


def _check(whole: Geometry) -> Geometry:
    faults = list(_profile_faults(whole)) or list(_layout_faults(whole))
    if faults:
        refuse_all("partitioning", faults)
    return whole


Partitioning = Annotated[Geometry, AfterValidator(_check)]
"""What a device can be cut into, without contradictions."""


def _profile_faults(whole: Geometry) -> Iterator[Flaw]:
    if not whole.profiles:
        yield Flaw(("profiles",), "a device without profiles cannot be cut", "name at least one")
    suffixes: dict[str, str] = {}
    for name, profile in whole.profiles.items():
        here = ("profiles", name)
        suffix = resource_suffix(whole, name)
        if PIN in name or names.resource_name_problem(f"example.com/{suffix}"):
            yield Flaw(here, f"{name!r} names the resource <domain>/{suffix}, which Kubernetes would refuse")
        elif other := suffixes.get(suffix):
            yield Flaw(here, f"{name!r} and {other!r} would name the same resource, <domain>/{suffix}")
        suffixes[suffix] = name
        if profile.slices > whole.slices:
            yield Flaw((*here, "slices"), f"{profile.slices} slices do not fit a device of {whole.slices}")
        elif profile.placements is not None:
            yield from _placement_faults(name, profile.placements, whole.slices - profile.slices)
        yield from _compute_faults(whole, here, profile.compute)


def _compute_faults(whole: Geometry, here: tuple[str, str], compute: int | None) -> Iterator[Flaw]:
    if whole.compute is None and compute is not None:
        yield Flaw((*here, "compute"), "the block does not say how many compute slices the device has")
    elif whole.compute is not None and compute is None:
        yield Flaw(here, f"the device has {whole.compute} compute slices, so each profile must say how many it takes")
    elif whole.compute is not None and compute is not None and compute > whole.compute:
        yield Flaw((*here, "compute"), f"{compute} compute slices do not fit a device of {whole.compute}")


def _layout_faults(whole: Geometry) -> Iterator[Flaw]:
    own = layouts_of(whole.model_copy(update={"layouts": {}}))
    for name, profiles in whole.layouts.items():
        here: tuple[str | int, ...] = ("layouts", name)
        if name in own:
            yield Flaw(here, f"{name!r} exists for every device with this profile", "choose another name")
            continue
        try:
            place(whole, profiles)
        except LayoutError as clash:
            item = () if clash.position is None else (clash.position,)
            yield Flaw((*here, *item), str(clash), clash.hint)


def _placement_faults(name: str, placements: tuple[int, ...], last: int) -> Iterator[Flaw]:
    here = ("profiles", name, "placements")
    if not placements:
        yield Flaw(here, f"{name} could start nowhere", "leave the key out to let it start wherever it fits")
    for number, start in enumerate(placements):
        if start > last:
            yield Flaw((*here, number), f"{name} cannot start at slice {start}: it fits at 0 to {last}")
        elif start in placements[:number]:
            yield Flaw((*here, number), f"slice {start} is listed twice")
