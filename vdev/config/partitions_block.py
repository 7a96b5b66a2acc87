"""The `partitioning` block of an entry or preset: how a device can be partitioned.

Owns its shape and consistency, with every fault at its place in the block; the next step is
`model.geometry.Geometry`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import (
    BeforeValidator,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from ..model import geometry, names
from ..model.entry import LabelKey
from ..model.geometry import repeated
from ..model.scalars import (
    AsWritten,
    Flag,
    Flaw,
    Memory,
    Plain,
    Section,
    Text,
    Whole,
    Word,
    between,
    described,
    matching,
    refuse,
    refuse_all,
    refuse_items,
)
from ..planning import partitions

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


MAX_SLICES = MAX_PARTS  # keeps the search for an arrangement shallow; real devices have 8

Slices = Annotated[Whole, between(1, MAX_SLICES)]
Start = Annotated[Whole, between(0, MAX_SLICES - 1)]


class ProfileModel(Section):
    """One kind of partition."""

    slices: Slices
    """Memory slices that it occupies."""
    memory: Memory
    """Memory of such a partition, as a Kubernetes quantity such as 4Gi."""
    placements: list[Start] | None = None
    """Slices at which it may start. Default: all at which it fits."""
    compute: Annotated[Whole, between(0)] | None = None
    """Compute slices that it takes from the device's budget."""
    max: Annotated[Whole, between(1)] | None = None
    """How many a device may have. Default: as many as fit."""
    attributes: dict[str, AsWritten] = {}
    """Facts about such a partition, for templates; added to those of the device."""
    exclusive: Word | None = None
    """A word. A device may have only one partition of all profiles with the same word."""
    id: Annotated[Whole, between(0, 9999)] | None = None
    """The maker's number of the profile, which NVIDIA's DRA driver shows in the names of partitions."""


class PartitioningModel(Section):
    """How a device can be partitioned."""

    slices: Slices
    """Memory slices of the device."""
    compute: Annotated[Whole, between(1)] | None = None
    """Compute slices of the device, of which each profile takes some. Default: not counted."""
    profiles: dict[str, ProfileModel]
    """Kinds of partitions, by name."""
    layouts: dict[str, Profiles] = {}
    """Named lists of profiles, or how many of each. all-<profile> exists for every profile."""
    resource_prefix: Text = "mig-"
    """Prefix of a partition's resource name, before the profile's name."""
    whole_device: Flag = False
    """Whether all partitions of a device must be alike and fill it."""

    @model_validator(mode="after")
    def _check(self) -> "PartitioningModel":
        faults = list(self._profile_faults()) or list(self._layout_faults())
        if faults:
            refuse_all(type(self).__name__, faults)
        return self

    def to_geometry(self) -> geometry.Geometry:
        """The block as the core's value."""
        return geometry.Geometry(
            slices=self.slices,
            compute=self.compute,
            profiles=tuple(
                geometry.Profile(
                    name=name,
                    slices=profile.slices,
                    memory=profile.memory,
                    placements=tuple(profile.placements or ()),
                    compute=profile.compute,
                    max=profile.max,
                    attributes=dict(profile.attributes),
                    exclusive=profile.exclusive,
                    id=profile.id,
                )
                for name, profile in self.profiles.items()
            ),
            layouts=dict(self.layouts),
            resource_prefix=self.resource_prefix,
            whole_device=self.whole_device,
        )

    def _profile_faults(self) -> Iterator[Flaw]:
        if not self.profiles:
            yield Flaw(("profiles",), "a device without profiles cannot be cut", "name at least one")
        whole = self.to_geometry()
        suffixes: dict[str, str] = {}
        for name, profile in self.profiles.items():
            here = ("profiles", name)
            suffix = geometry.resource_suffix(whole, name)
            if geometry.PIN in name or names.resource_name_problem(f"example.com/{suffix}"):
                yield Flaw(here, f"{name!r} names the resource <domain>/{suffix}, which Kubernetes would refuse")
            elif other := suffixes.get(suffix):
                yield Flaw(here, f"{name!r} and {other!r} would name the same resource, <domain>/{suffix}")
            suffixes[suffix] = name
            if profile.slices > self.slices:
                yield Flaw((*here, "slices"), f"{profile.slices} slices do not fit a device of {self.slices}")
            elif profile.placements is not None:
                yield from _placement_faults(name, profile.placements, self.slices - profile.slices)
            yield from self._compute_faults(here, profile.compute)

    def _compute_faults(self, here: tuple[str, str], compute: int | None) -> Iterator[Flaw]:
        if self.compute is None and compute is not None:
            yield Flaw((*here, "compute"), "the block does not say how many compute slices the device has")
        elif self.compute is not None and compute is None:
            yield Flaw(
                here, f"the device has {self.compute} compute slices, so each profile must say how many it takes"
            )
        elif self.compute is not None and compute is not None and compute > self.compute:
            yield Flaw((*here, "compute"), f"{compute} compute slices do not fit a device of {self.compute}")

    def _layout_faults(self) -> Iterator[Flaw]:
        whole = self.to_geometry()
        own = geometry.layouts_of(replace(whole, layouts={}))
        for name, profiles in self.layouts.items():
            here: tuple[str | int, ...] = ("layouts", name)
            if name in own:
                yield Flaw(here, f"{name!r} exists for every device with this profile", "choose another name")
                continue
            try:
                partitions.place(whole, profiles)
            except geometry.LayoutError as clash:
                item = () if clash.position is None else (clash.position,)
                yield Flaw((*here, *item), str(clash), clash.hint)


def _placement_faults(name: str, placements: list[int], last: int) -> Iterator[Flaw]:
    here = ("profiles", name, "placements")
    if not placements:
        yield Flaw(here, f"{name} could start nowhere", "leave the key out to let it start wherever it fits")
    for number, start in enumerate(placements):
        if start > last:
            yield Flaw((*here, number), f"{name} cannot start at slice {start}: it fits at 0 to {last}")
        elif start in placements[:number]:
            yield Flaw((*here, number), f"slice {start} is listed twice")
