"""What a device can be cut into, said in sums: counters that partitions take from, of which there must be enough.

A set of partitions can exist on a device exactly if no counter runs out: each memory slice is there once, and every
further rule of the geometry is a `Limit`. Hardware that is cut in one mode as a whole cannot be said in sums: several
partitions of one mode go together, one of each of two modes do not.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.syntax.slice_syntax import dns_label
from .geometry import Geometry, Placement, most_of

MAX_COUNTERS = 32
"""Counters in a set, as a ResourceSlice takes them."""


@dataclass(frozen=True, slots=True)
class Limit:
    """There is `most` of something, and each partition of a profile takes so much of it."""

    name: str
    most: int
    takes: Mapping[str, int]

    def implies(self, other: "Limit") -> bool:
        """Whether partitions that keep this limit cannot break the other one."""
        own = self.takes
        return self.most > 0 and all(
            each * self.most <= own.get(name, 0) * other.most for name, each in other.takes.items()
        )


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a device: its memory slices, and its limits."""

    slices: int
    limits: tuple[Limit, ...]

    @property
    def all(self) -> dict[str, int]:
        """Everything that there is: what the whole device takes."""
        return {limit.name: limit.most for limit in self.limits} | dict.fromkeys(map(_slice, range(self.slices)), 1)

    def taken_by(self, placement: Placement) -> dict[str, int]:
        name = placement.profile.name
        taken = {limit.name: limit.takes[name] for limit in self.limits if name in limit.takes}
        return taken | dict.fromkeys(map(_slice, placement.slices), 1)


def counters(geometry: Geometry, known: Sequence[Limit] = ()) -> Counters:
    """The counters of a device of this geometry: those that are `known`, and as many more as its rules need."""
    limits = list(known)
    for limit in _rules(geometry):
        if not any(each.implies(limit) for each in limits):
            taken = {each.name for each in limits} | set(map(_slice, range(geometry.slices)))
            name = next(name for name in _names(limit.name) if name not in taken)
            limits.append(replace(limit, name=name))
    return Counters(geometry.slices, tuple(limits))


def placements(geometry: Geometry) -> Iterator[Placement]:
    """Every partition that the device can have, profile by profile."""
    return (
        Placement(profile, start, profile.slices) for profile in geometry.profiles for start in geometry.starts(profile)
    )


def _rules(geometry: Geometry) -> Iterator[Limit]:
    if geometry.compute is not None:
        takes = {each.name: each.compute for each in geometry.profiles if each.compute}
        yield Limit("compute-slices", geometry.compute, takes)
    yield from (Limit(dns_label(name), most, each) for name, most, each in geometry.engines)
    for word in dict.fromkeys(each.exclusive for each in geometry.profiles if each.exclusive):
        takes = {each.name: 1 for each in geometry.profiles if each.exclusive == word}
        yield Limit(dns_label(word) or "exclusive", 1, takes)
    for profile in geometry.profiles:
        if profile.max is not None and profile.max < most_of(geometry, replace(profile, max=None)):
            yield Limit(dns_label(f"max-{profile.name}"), profile.max, {profile.name: 1})


def _slice(number: int) -> str:
    return f"memory-slice-{number}"


def _names(name: str) -> Iterator[str]:
    """The name, then the name with a number."""
    yield name
    yield from (f"{name[:50]}-{number}" for number in range(2, 2**16))
