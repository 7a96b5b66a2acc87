"""How devices can be partitioned: profiles on memory slices, limits, named layouts, and the keys that select them.

Vendors are data: MIG's grid and AMD's modes are in `vdev/presets`. `planning.partitions.place` chooses the slices of
partitions.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from ..errors import VdevError
from .names import dns_label
from .problem import did_you_mean, listed
from .scalars import (
    NO_DEFAULT,
    Amount,
    AsWritten,
    Flag,
    LabelKey,
    Text,
    Whole,
    Word,
    between,
    matching,
)
from .section import Plain, Resolved, Section, described, fields_of, refuse

_COMPUTE_SPLIT = re.compile(r"[0-9]+c\.([0-9]+g\..+)")  # a compute instance within a GPU instance, such as 1c.3g.20gb
_NVIDIA_NAME = re.compile(r"(all-)?([0-9]+g)\.[0-9]+gb(.*)")  # such as 1g.10gb, 1g.10gb+me, all-1g.10gb.me
PIN = "@"
_COMMAND = "vdev presets NAME"  # shows all profiles and layouts


class LayoutError(VdevError, ValueError):
    """A layout that the device does not support. The text is the reason; `hint` is what to do, or empty.

    `position` is the index of the first profile that does not fit together with the previous ones; None means the whole
    list.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", position: int | None = None) -> None:
        self.hint = hint
        self.position = position
        super().__init__(message)


MAX_PARTS = 256  # partitions of one profile on a device: at most one per slice

PartCount = Annotated[Whole, between(0, MAX_PARTS)]


_Counts = dict[Word, PartCount]
_COUNTS: TypeAdapter[dict[str, int]] = TypeAdapter(_Counts)


def _profiles(value: object) -> object:
    if isinstance(value, dict):
        return repeated(_COUNTS.validate_python(value))
    if isinstance(value, (list, tuple)):
        return value
    return refuse(f"expected a list of profiles, or how many of each, got {described(value)}")


Profiles = Annotated[tuple[Word, ...], BeforeValidator(_profiles, json_schema_input_type=tuple[Word, ...] | _Counts)]
"""A list of profiles, or a mapping from profile to count."""

_PROFILES: TypeAdapter[tuple[str, ...]] = TypeAdapter(Profiles)


def _layout(value: object) -> str | tuple[str, ...]:
    if type(value) is str and value:
        return value
    if isinstance(value, (list, tuple, dict)):
        return _PROFILES.validate_python(value)
    hint = f'write it in quotes: "{value}"' if isinstance(value, Plain) else ""
    return refuse(f"expected a list of profiles or a layout's name, got {described(value)}", hint)


Layout = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_layout, json_schema_input_type=Word | tuple[Word, ...] | _Counts),
]
"""Profiles, or the name of a layout."""

DeviceRange = Annotated[
    Text, matching(r"\*|all|(0|[1-9]\d{0,5})(-(0|[1-9]\d{0,5}))?", 'an index "0", a range "1-2", or "all"')
]

MAX_SLICES = MAX_PARTS  # limits the search for placements; real devices have 8

Slices = Annotated[Whole, between(1, MAX_SLICES)]
Start = Annotated[Whole, between(0, MAX_SLICES - 1)]


class Profile(Section):
    """A kind of partition, such as MIG's 1g.5gb: its size, and where it may be on a device."""

    slices: Slices
    """Number of memory slices that the partition occupies."""
    memory: Amount
    """Memory of the partition, as a Kubernetes quantity such as 4Gi."""
    placements: tuple[Start, ...] | None = None
    """Slices at which the partition may start. Default: all slices at which it fits."""
    compute: Annotated[Whole, between(0)] | None = None
    """Number of the device's compute slices that the partition uses."""
    max: Annotated[Whole, between(1)] | None = None
    """Maximum number of these partitions on a device. Default: as many as fit."""
    attributes: dict[str, AsWritten] = {}
    """Attributes of the partition for templates, in addition to the device's attributes."""
    exclusive: Word | None = None
    """A device may have only one partition of all profiles with the same word here."""
    id: Annotated[Whole, between(0, 9999)] | None = None
    """The vendor's number of the profile. NVIDIA's DRA driver shows it in the names of partitions."""
    name: Resolved[str] = ""
    """The key of the profile."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limited part of a device that partitions share, such as compute slices or engines."""

    name: str
    most: int
    """The amount that the whole device has."""
    takes: Mapping[str, int]
    """The amount that a partition consumes, by profile."""

    def implies(self, other: "Limit") -> bool:
        """Whether all partitions that satisfy this limit also satisfy the other one."""
        own = self.takes
        return self.most > 0 and all(
            each * self.most <= own.get(name, 0) * other.most for name, each in other.takes.items()
        )


def _named(profiles: dict[str, Profile]) -> dict[str, Profile]:
    return {name: profile.model_copy(update={"name": name}) for name, profile in profiles.items()}


class Geometry(Section):
    """How a device can be partitioned."""

    slices: Slices
    """Number of memory slices of the device."""
    compute: Annotated[Whole, between(1)] | None = None
    """Number of compute slices of the device, which its partitions share. Default: not counted."""
    profiles: Annotated[dict[str, Profile], AfterValidator(_named)]
    """Kinds of partitions, by name."""
    layouts: dict[str, Profiles] = {}
    """Named layouts: a list of profiles, or a mapping from profile to count. all-<profile> exists for every profile."""
    resource_prefix: Text = "mig-"
    """Prefix of a partition's resource name, before the profile's name."""
    whole_device: Flag = False
    """Whether all partitions of a device must have the same profile and fill the device."""

    @functools.cached_property
    def limits(self) -> tuple[Limit, ...]:
        """Limits besides memory slices: compute slices, engines, `exclusive` words, and each `max`.

        Engines, such as decoders, are the profiles' attributes `engines.*`. The device has as many as the largest
        profile takes.
        """
        found: list[Limit] = []
        profiles = self.profiles.values()
        if self.compute is not None:
            found.append(
                Limit("compute-slices", self.compute, {each.name: each.compute for each in profiles if each.compute})
            )
        engines: dict[str, dict[str, int]] = {}
        for profile in profiles:
            for key, value in profile.attributes.items():
                if key.startswith("engines.") and value.isdecimal() and int(value):
                    engines.setdefault(key, {})[profile.name] = int(value)
        found += [Limit(dns_label(key), max(takes.values()), takes) for key, takes in engines.items()]
        for word in dict.fromkeys(each.exclusive for each in profiles if each.exclusive):
            takes = {each.name: 1 for each in profiles if each.exclusive == word}
            found.append(Limit(dns_label(word) or "exclusive", 1, takes))
        for profile in profiles:
            if profile.max is not None and profile.max < _most_within(self, profile, found):
                found.append(Limit(dns_label(f"max-{profile.name}"), profile.max, {profile.name: 1}))
        return tuple(found)

    def profile(self, name: str) -> Profile:
        """Return a profile by name. Raises LayoutError with the allowed names."""
        if found := self.profiles.get(name):
            return found
        if split := _COMPUTE_SPLIT.fullmatch(name):
            raise LayoutError(
                f"{name!r} is a compute instance inside a {split[1]}; only whole partitions can be advertised",
                hint=f"use {split[1]!r}" if split[1] in self.profiles else self._allowed(split[1]),
            )
        raise LayoutError(f"unknown profile {name!r}", hint=self._allowed(name))

    @property
    def first_mode(self) -> str:
        """The profile of a device without configured partitions, if the hardware is always in a mode; else empty.

        For example, ROCm's plugin names an MI300X in SPX `spx_nps1`.
        """
        full = (profile.name for profile in self.profiles.values() if profile.slices == self.slices)
        return next(full, "") if self.whole_device else ""

    def starts(self, profile: Profile) -> tuple[int, ...]:
        """Return the slices at which a profile may start, in ascending order."""
        return tuple(sorted(profile.placements or ())) or tuple(range(self.slices - profile.slices + 1))

    def _allowed(self, name: str) -> str:
        return listed(self.profiles, nearest(name, self.profiles), command=_COMMAND)


@dataclass(frozen=True, slots=True)
class Placement:
    """A partition: its profile and its first slice."""

    profile: Profile
    start: int

    @property
    def slices(self) -> range:
        return range(self.start, self.start + self.profile.slices)

    def __str__(self) -> str:
        """Return `1g.5gb@4`, a form that `planning.partitions.place` accepts."""
        return f"{self.profile.name}{PIN}{self.start}"


def resource_suffix(geometry: Geometry, profile: str) -> str:
    """Return the name part of a profile's resource: `mig-1g.5gb.me` for `1g.5gb+me`, as in NVIDIA's plugin."""
    return geometry.resource_prefix + profile.replace("+", ".")


def layouts_of(geometry: Geometry) -> dict[str, tuple[str, ...]]:
    """Return all named layouts: those of the geometry, and `all-<profile>` with as many partitions as fit.

    NVIDIA's tools write `all-1g.5gb.me` for the profile `1g.5gb+me`; both forms exist. If the whole device is always in
    one mode, the name of a mode is also a layout.
    """
    found: dict[str, tuple[str, ...]] = {}
    for profile in geometry.profiles.values():
        full = (profile.name,) * most_of(geometry, profile)
        found |= {f"all-{profile.name}": full, f"all-{profile.name.replace('+', '.')}": full}
        if geometry.whole_device:
            found[profile.name] = full
    return found | geometry.layouts


def layout(geometry: Geometry, name: str) -> tuple[str, ...]:
    """Return the profiles of a named layout. Raises LayoutError with the allowed names."""
    known = layouts_of(geometry)
    if name in known:
        return known[name]
    raise LayoutError(f"unknown layout {name!r}", hint=listed(known, nearest(name, known), command=_COMMAND))


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for a profile or a layout.

    Other models have the same profiles with another memory size in the name. For an A100's 1g.5gb, the suggestion is
    this device's first 1g profile and not the name with the most similar spelling.
    """
    known = list(known)
    wanted = _NVIDIA_NAME.fullmatch(name)
    for each in known if wanted else ():
        found = _NVIDIA_NAME.fullmatch(each)
        if wanted and found and found.groups() == wanted.groups():
            return f"did you mean {each!r}?"
    return did_you_mean(name, known)


def most_of(geometry: Geometry, profile: Profile) -> int:
    """Return how many partitions of one profile fit on a device."""
    return _most_within(geometry, profile, geometry.limits)


def _most_within(geometry: Geometry, profile: Profile, limits: Iterable[Limit]) -> int:
    count, end = 0, 0
    for start in geometry.starts(profile):  # for partitions of equal length, the first free start is optimal
        if start >= end:
            count, end = count + 1, start + profile.slices
    return min([count, *(each.most // each.takes[profile.name] for each in limits if profile.name in each.takes)])


def repeated(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Expand counts of profiles to a list: mig-parted's `{1g.5gb: 2}` becomes `[1g.5gb, 1g.5gb]`."""
    return tuple(name for name, count in counts.items() for _ in range(count))


def instance_id(slices: int, taken: range) -> int:
    """Return the driver's GPU instance number: level by level in a tree that halves the memory slices."""
    size = max(1, len(taken))
    return slices // size - 1 + taken.start // size


Parts = tuple[str, ...] | None
"""The profiles of a device's partitions; None for a whole device."""


AMD_LABEL = "dcm.amd.com/gpu-config-profile"
"""The label that AMD's device-config-manager reads."""


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """The partitions of an entry's devices in a layout."""

    parts: Mapping[int, Parts] = field(hash=False)  # by index; devices that are not listed do not change
    refusal: str = ""  # why the devices do not support it; a file of layouts may be for many models


class PartitionChoice(Section):
    """A label of the node that selects the layout."""

    label: Annotated[LabelKey, Field(alias="fromLabel")]
    """The label whose value names a layout, such as nvidia.com/mig.config."""
    default: Annotated[Word, NO_DEFAULT] = ""
    """The layout of a node without the label. Default: no partitions."""
    file: Word | None = None
    """A file of layouts in the form of mig-parted or device-config-manager, relative to this file. Default: the layouts
    of the devices, all-disabled and all-enabled."""
    layouts: Resolved[Mapping[str, NamedLayout]] = {}
    """The layouts that the label can select, from the file or the devices."""

    @property
    def state_label(self) -> str:
        """The label that reports whether the chosen layout is active."""
        return f"{self.label}-state" if self.label == AMD_LABEL else f"{self.label}.state"

    @property
    def initial(self) -> dict[int, tuple[str, ...]]:
        """The profiles of each partitioned device on a node without the label."""
        layout = self.layouts.get(self.default)
        return {index: parts for index, parts in layout.parts.items() if parts is not None} if layout else {}


_BY_DEVICE: TypeAdapter[dict[str, str | tuple[str, ...]]] = TypeAdapter(dict[DeviceRange, Layout])


def _partitions(value: object, _: ValidatorFunctionWrapHandler) -> dict[str, str | tuple[str, ...]] | PartitionChoice:
    """Validate the value in one of the two forms, so that all errors concern that form."""
    if isinstance(value, PartitionChoice):
        return value
    if not isinstance(value, dict):
        refuse(f"expected a mapping, got {described(value)}", """say which devices have them: {all: …} or {"0": …}""")
    is_choice = fields_of(PartitionChoice).keys() & value.keys()
    return PartitionChoice.model_validate(value) if is_choice else _BY_DEVICE.validate_python(value)


Partitions = Annotated[dict[DeviceRange, Layout] | PartitionChoice, WrapValidator(_partitions)]
"""The value of `partitions`: layouts by device index, or the label that selects a layout."""


def generated(geometry: Geometry, count: int) -> dict[str, NamedLayout]:
    """Return the layouts of `count` devices: those of the geometry, and mig-parted's `all-disabled` and `all-enabled`.

    Devices that are always in a mode do not have `all-enabled`.
    """
    named: dict[str, Parts] = {"all-disabled": None}
    if not geometry.whole_device:
        named["all-enabled"] = ()
    named |= layouts_of(geometry)
    return {name: NamedLayout(dict.fromkeys(range(count), parts)) for name, parts in named.items()}
