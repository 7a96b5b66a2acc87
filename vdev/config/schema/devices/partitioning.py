"""The `partitioning` block of an entry or preset: how a device can be partitioned.

Owns its shape and consistency, with every fault at its place in the block; the next step is
`core.partitions.geometry.Geometry`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import model_validator

from ....core.model.syntax import names
from ....core.partitions import geometry, placement
from ..scalars import AsWritten, Flag, Memory, Text, Whole, Word, between
from ..section import Flaw, Section, refuse_all
from .partitions import MAX_PARTS, Profiles

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
    """Slices it may start at. Default: every one from which it fits."""
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
    """Compute slices of the device; then each profile says how many it takes. Default: not counted."""
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
                placement.place(whole, profiles)
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
