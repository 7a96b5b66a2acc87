"""What a device can be cut into: profiles on memory slices, budgets, and named layouts; values only.

It knows nothing of vendors: MIG's grid and AMD's modes are data (`vdev/presets`), of which `config` makes a `Geometry`.
Where the parts of a list sit is decided by `placement`.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..errors import VdevError
from .device import EMPTY
from .problem import did_you_mean, listed

_COMPUTE_SPLIT = re.compile(r"[0-9]+c\.([0-9]+g\..+)")  # a compute instance within a GPU instance, such as 1c.3g.20gb
_NVIDIA_NAME = re.compile(r"(all-)?([0-9]+g)\.[0-9]+gb(.*)")  # such as 1g.10gb, 1g.10gb+me, all-1g.10gb.me
PIN = "@"
_COMMAND = "vdev presets NAME"  # that shows all profiles and layouts


class LayoutError(VdevError, ValueError):
    """A layout that the device cannot have. The text says what clashes; `hint` says what to do, or is empty.

    `position` is the index of the first item of the list that does not fit beside those before it, or None when the
    whole list is meant.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "", position: int | None = None) -> None:
        self.hint = hint
        self.position = position
        super().__init__(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One kind of partition.

    `slices` counts the memory slices it occupies and `placements` holds the slices it may start at; empty means every
    one from which it fits. `memory` is in bytes. `compute` counts the compute slices it takes from the geometry's
    budget. `max` limits how many of it a device may hold, beside what the slices allow. Of all profiles with the same
    `exclusive` word at most one partition may exist on a device (NVIDIA's media extensions, `+me`). `id` is the maker's
    number of the profile.
    """

    name: str
    slices: int
    memory: int
    placements: tuple[int, ...] = ()
    compute: int | None = None
    max: int | None = None
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY, hash=False)
    exclusive: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """What a device can be cut into: memory slices, a budget of compute slices (None: no limit), and profiles.

    `layouts` holds named lists of profiles, beside the `all-<profile>` that every profile has (see `layouts_of`). With
    `whole_device` the hardware cuts the device in one mode, as AMD's does: all partitions are alike and fill it. A
    partition's resource is named `resource_prefix` + profile.

    `engines` are the kinds of engines, such as decoders, that profiles have by their attributes `engines.*`: the name,
    how many the device has, which is what the profile with most of them takes, and how many each profile takes.
    """

    slices: int
    compute: int | None = None
    profiles: tuple[Profile, ...]
    layouts: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    resource_prefix: str = "mig-"
    whole_device: bool = False
    engines: tuple[tuple[str, int, Mapping[str, int]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Collect `engines`, which placing asks for each list."""
        takes: dict[str, dict[str, int]] = {}
        for profile in self.profiles:
            for key, value in profile.attributes.items():
                if key.startswith("engines.") and value.isdecimal() and int(value):
                    takes.setdefault(key, {})[profile.name] = int(value)
        object.__setattr__(self, "engines", tuple((key, max(each.values()), each) for key, each in takes.items()))

    def profile(self, name: str) -> Profile:
        """The profile of that name. Raises LayoutError, with the allowed names, when there is none."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        if split := _COMPUTE_SPLIT.fullmatch(name):
            raise LayoutError(
                f"{name!r} is a compute instance inside a {split[1]}; only whole partitions can be advertised",
                hint=f"use {split[1]!r}"
                if any(each.name == split[1] for each in self.profiles)
                else self._allowed(split[1]),
            )
        raise LayoutError(f"unknown profile {name!r}", hint=self._allowed(name))

    @property
    def first_mode(self) -> str:
        """The profile of a device that nobody partitioned, where the hardware is always in a mode; else empty.

        ROCm's plugin names an MI300X in SPX `spx_nps1`.
        """
        full = (profile.name for profile in self.profiles if profile.slices == self.slices)
        return next(full, "") if self.whole_device else ""

    def starts(self, profile: Profile) -> tuple[int, ...]:
        """The slices that `profile` may start at, ascending."""
        return tuple(sorted(profile.placements)) or tuple(range(self.slices - profile.slices + 1))

    def _allowed(self, name: str) -> str:
        names = [profile.name for profile in self.profiles]
        return listed(names, nearest(name, names), command=_COMMAND)


@dataclass(frozen=True, slots=True)
class Placement:
    """A partition on its slices: `size` of them, from `start`."""

    profile: Profile
    start: int
    size: int

    @property
    def slices(self) -> range:
        return range(self.start, self.start + self.size)

    def overlaps(self, other: "Placement") -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size

    def __str__(self) -> str:
        """`1g.5gb@4`: the pinned form that `placement.place` takes."""
        return f"{self.profile.name}{PIN}{self.start}"


def resource_suffix(geometry: Geometry, profile: str) -> str:
    """The name part of a profile's resource: `mig-1g.5gb.me` for `1g.5gb+me`, as NVIDIA's plugin writes it."""
    return geometry.resource_prefix + profile.replace("+", ".")


def layouts_of(geometry: Geometry) -> dict[str, tuple[str, ...]]:
    """Every named layout: those of the geometry, and `all-<profile>` with as many as fit.

    NVIDIA's tools write `all-1g.5gb.me` for the profile `1g.5gb+me`; both forms are there. Where the whole device is
    cut in one mode, the mode's name alone is a layout as well.
    """
    found: dict[str, tuple[str, ...]] = {}
    for profile in geometry.profiles:
        full = (profile.name,) * most_of(geometry, profile)
        found |= {f"all-{profile.name}": full, f"all-{profile.name.replace('+', '.')}": full}
        if geometry.whole_device:
            found[profile.name] = full
    return found | dict(geometry.layouts)


def layout(geometry: Geometry, name: str) -> tuple[str, ...]:
    """The profiles of a named layout. Raises LayoutError, with the allowed names, when there is none."""
    known = layouts_of(geometry)
    if name in known:
        return known[name]
    raise LayoutError(f"unknown layout {name!r}", hint=listed(known, nearest(name, known), command=_COMMAND))


def nearest(name: str, known: Iterable[str]) -> str:
    """`did you mean 'x'?` for a profile or a layout.

    Another model has the same profiles under names with another memory size: for 1g.5gb of an A100 it is the first 1g
    of this device, not the name that is spelled most alike.
    """
    known = list(known)
    wanted = _NVIDIA_NAME.fullmatch(name)
    for each in known if wanted else ():
        found = _NVIDIA_NAME.fullmatch(each)
        if wanted and found and found.groups() == wanted.groups():
            return f"did you mean {each!r}?"
    return did_you_mean(name, known)


def most_of(geometry: Geometry, profile: Profile) -> int:
    """How many of one profile fit an otherwise empty device."""
    count, end = 0, 0
    for start in geometry.starts(profile):  # parts of one length: taking the first free one is optimal
        if start >= end:
            count, end = count + 1, start + profile.slices
    limits = [count, 1 if profile.exclusive else count, count if profile.max is None else profile.max]
    if geometry.compute is not None and profile.compute:
        limits.append(geometry.compute // profile.compute)
    limits += [most // takes[profile.name] for _, most, takes in geometry.engines if profile.name in takes]
    return min(limits)


def repeated(counts: Mapping[str, int]) -> tuple[str, ...]:
    """As many of each as the mapping says, as a list: mig-parted's `{1g.5gb: 2}` is `[1g.5gb, 1g.5gb]`."""
    return tuple(name for name, count in counts.items() for _ in range(count))


def counted(number: int, noun: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def instance_id(slices: int, taken: range) -> int:
    """The number of a GPU instance, as the driver gives it: level by level of a tree that halves the memory slices."""
    size = max(1, len(taken))
    return slices // size - 1 + taken.start // size


DISABLED = "all-disabled"
ENABLED = "all-enabled"

Parts = tuple[str, ...] | None
"""The profiles that a device is cut into; None: it stays whole."""


AMD_LABEL = "dcm.amd.com/gpu-config-profile"


@dataclass(frozen=True, slots=True)
class Protocol:
    """The label that tells what became of a chosen layout, and its values; `pending` is empty where none is written."""

    label: str
    pending: str = "pending"
    success: str = "success"
    failed: str = "failed"


AMD = Protocol(f"{AMD_LABEL}-state", pending="", failed="failure")
"""As AMD's device-config-manager tells it. Others do as NVIDIA's mig-manager does."""


def protocol_of(label: str) -> Protocol:
    """How it is told what became of the value of a label that chooses a layout."""
    return AMD if label == AMD_LABEL else Protocol(f"{label}.state")


@dataclass(frozen=True, slots=True)
class NamedLayout:
    """What a layout makes of an entry's devices, by their index; devices that it does not name stay as they are.

    `refusal` is why these devices cannot have it, or empty: one file of layouts may be for many models.
    """

    parts: Mapping[int, Parts] = field(hash=False)
    refusal: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChoice:
    """The label whose value names one of `layouts`.

    `default` is the layout of a node without the label; empty: whole devices.
    """

    label: str
    default: str
    layouts: Mapping[str, NamedLayout] = field(hash=False)

    @property
    def protocol(self) -> Protocol:
        """How it is told what became of the label's value."""
        return protocol_of(self.label)

    @property
    def state_label(self) -> str:
        """The label that tells what became of the label's value."""
        return self.protocol.label

    @property
    def initial(self) -> dict[int, tuple[str, ...]]:
        """The profiles of each device that is cut, on a node without the label."""
        layout = self.layouts.get(self.default)
        return {index: parts for index, parts in layout.parts.items() if parts is not None} if layout else {}


def generated(geometry: Geometry, count: int) -> dict[str, NamedLayout]:
    """The layouts under the names that mig-parted makes up, for `count` devices, and those of the geometry.

    A device that the hardware always keeps in one mode has no layout without partitions.
    """
    named: dict[str, Parts] = {DISABLED: None}
    if not geometry.whole_device:
        named[ENABLED] = ()
    named |= layouts_of(geometry)
    return {name: NamedLayout(dict.fromkeys(range(count), parts)) for name, parts in named.items()}
