"""The `partitioning` block: how a configuration or preset file says what a device can be cut into.

Owns its shape and consistency, with every fault at its place in the block; the next step is `core.geometry.Geometry`.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from ..core import geometry, names, partition, quantity

MAX_SLICES = 256  # keeps the search for an arrangement shallow; real devices have 8

Quantity = Annotated[
    int,
    BeforeValidator(quantity.parse_quantity),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^\+?[0-9.]+([eE][+-]?[0-9]+|[KMGTPE]i|[kMGTPE])?$"},
            ]
        }
    ),
]
"""An amount of memory in Kubernetes' notation, validated to a number of bytes."""

AttributeValue = StrictStr | StrictInt
"""A device attribute. Numbers with a point must be quoted, since YAML would read 8.10 as 8.1."""

_Fault = tuple[tuple[str | int, ...], str, object]  # place in the block, what is wrong, the value there


class ProfileModel(BaseModel):
    """One item of `profiles`; `core.geometry.Profile` says what the fields mean."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    slices: int = Field(ge=1, le=MAX_SLICES, description="Memory slices it occupies.")
    memory: Quantity = Field(description="Memory of a partition: bytes or a quantity such as 4Gi.")
    placements: list[int] | None = Field(None, min_length=1, description="Slices it may start at; absent: all it fits.")
    compute: int | None = Field(None, ge=0, description="Compute slices it takes from the block's budget.")
    max: int | None = Field(None, ge=1, description="How many of it a device may hold, beside what the slices allow.")
    attributes: dict[str, AttributeValue] = Field(default_factory=dict, description="Attributes of such a partition.")
    exclusive: str | None = Field(None, min_length=1, description="At most one partition of all with this word.")


class PartitioningModel(BaseModel):
    """What a device can be cut into; `core.geometry.Geometry` says what the fields mean."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, alias_generator=to_camel, validate_by_name=True)

    slices: int = Field(ge=1, le=MAX_SLICES, description="Memory slices of the device.")
    compute: int | None = Field(None, ge=1, description="Compute slices of the device; absent: not limited.")
    profiles: dict[str, ProfileModel] = Field(min_length=1, description="Kinds of partitions, by name.")
    layouts: dict[str, list[str]] = Field(default_factory=dict, description="Named lists of profiles.")
    resource_prefix: str = Field("mig-", description="What a partition's resource name has before the profile.")
    whole_device: bool = Field(default=False, description="The device is cut in one mode: all parts alike, filling it.")

    @model_validator(mode="after")
    def _check(self) -> "PartitioningModel":
        faults = list(self._profile_faults()) or list(self._layout_faults())
        if faults:
            raise ValidationError.from_exception_data(
                type(self).__name__,
                [
                    InitErrorDetails(
                        type=PydanticCustomError("partitioning", "{text}", {"text": text}), loc=loc, input=value
                    )
                    for loc, text, value in faults
                ],
            )
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
                    attributes={key: str(value) for key, value in profile.attributes.items()},
                    exclusive=profile.exclusive,
                )
                for name, profile in self.profiles.items()
            ),
            layouts={name: tuple(profiles) for name, profiles in self.layouts.items()},
            resource_prefix=self.resource_prefix,
            whole_device=self.whole_device,
        )

    def _profile_faults(self) -> Iterator[_Fault]:
        whole = self.to_geometry()
        suffixes: dict[str, str] = {}
        for name, profile in self.profiles.items():
            here = ("profiles", name)
            suffix = geometry.resource_suffix(whole, name)
            if geometry.PIN in name or names.resource_name_problem(f"example.com/{suffix}"):
                yield here, f"{name!r} names the resource <domain>/{suffix}, which Kubernetes would refuse", name
            elif other := suffixes.get(suffix):
                yield here, f"{name!r} and {other!r} would name the same resource, <domain>/{suffix}", name
            suffixes[suffix] = name
            if profile.slices > self.slices:
                yield (*here, "slices"), f"{profile.slices} slices do not fit a device of {self.slices}", profile.slices
            elif profile.placements:
                yield from self._placement_faults(name, profile.placements, self.slices - profile.slices)
            if self.compute is None and profile.compute is not None:
                yield (
                    (*here, "compute"),
                    "a profile counts compute slices only where the block says how many there are",
                    None,
                )
            elif self.compute is not None and profile.compute is None:
                yield (
                    here,
                    f"the device has {self.compute} compute slices, so each profile must say how many it takes",
                    None,
                )
            elif self.compute is not None and profile.compute is not None and profile.compute > self.compute:
                yield (*here, "compute"), f"{profile.compute} compute slices of {self.compute}", profile.compute

    @staticmethod
    def _placement_faults(name: str, placements: list[int], last: int) -> Iterator[_Fault]:
        for number, start in enumerate(placements):
            where = ("profiles", name, "placements", number)
            if not 0 <= start <= last:
                yield where, f"{name} cannot start at slice {start}: it fits at 0 to {last}", start
            elif start in placements[:number]:
                yield where, f"slice {start} is listed twice", start

    def _layout_faults(self) -> Iterator[_Fault]:
        whole = self.to_geometry()
        own = geometry.layouts_of(replace(whole, layouts={}))
        for name, profiles in self.layouts.items():
            where: tuple[str | int, ...] = ("layouts", name)
            if name in own:
                yield where, f"{name!r} exists for every device with this profile; choose another name", name
                continue
            try:
                partition.place(whole, profiles)
            except partition.LayoutError as clash:
                item = () if clash.position is None else (clash.position,)
                yield (*where, *item), f"{clash}; {clash.hint}" if clash.hint else str(clash), name
