"""Places partitions on the slices of a device (`place`), and makes counters for partitioning by claims (`counters`).

Sets of slices are bit masks. The search is depth first in order of preference, so the first solution is the preferred
one. Dead ends are memoized by the occupied slices. Real hardware takes a few dozen steps.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..model.geometry import PIN, Geometry, LayoutError, Limit, Placement, Profile, most_of
from ..model.problem import counted, either

MAX_STEPS = 200_000  # about a third of a second; no real hardware needs more


class _Want(NamedTuple):
    profile: Profile
    starts: tuple[int, ...]
    """The slices at which it may start, best first; only the given one if the item has `@<start>`."""


def _rank(want: _Want) -> tuple[int, int, str]:
    """Sort larger profiles first, then those with fewer starts; then by name."""
    return (-want.profile.slices, len(want.starts), want.profile.name)


def place(geometry: Geometry, wanted: Sequence[str]) -> tuple[Placement, ...]:
    """The place of each wanted partition, in the order of the list.

    An item is a profile's name, or `<profile>@<start>`. Finds an arrangement if there is one. Raises LayoutError.
    """
    wants = [_want(geometry, item, position) for position, item in enumerate(wanted)]
    if geometry.whole_device:
        _check_whole_device(geometry, wants)
    found = None if _broken_limit(geometry, wants) else _arrange(geometry, wants)
    if found is None:
        raise _first_clash(geometry, wants)
    return found


def _want(geometry: Geometry, item: str, position: int) -> _Want:
    name, pinned, start = item.partition(PIN)
    try:
        profile = geometry.profile(name)
    except LayoutError as unknown:
        unknown.position = position
        raise
    allowed = geometry.starts(profile)
    if not pinned:  # small partitions from the left, larger ones from the right
        is_small = profile.slices == min(each.slices for each in geometry.profiles.values())
        return _Want(profile, allowed if is_small else allowed[::-1])
    if not (start.isascii() and start.isdigit() and int(start) in allowed):
        raise LayoutError(
            f"{item!r}: {name} cannot start at slice {start or '(nothing)'}",
            hint="it starts at " + either([str(each) for each in allowed]),
            position=position,
        )
    return _Want(profile, (int(start),))


def _check_whole_device(geometry: Geometry, wants: Sequence[_Want]) -> None:
    names = list(dict.fromkeys(want.profile.name for want in wants))
    if len(names) > 1:
        raise LayoutError(
            f"the device is cut in one mode, with all partitions alike, and the list mixes {' and '.join(names)}",
            hint=f"name one mode: {either(names)}",
        )
    if wants and len(wants) != (full := most_of(geometry, wants[0].profile)):
        raise LayoutError(
            f"a device in mode {names[0]} has {counted(full, 'partition')}, and the list has {len(wants)}",
            hint=f"name the mode alone: {names[0]}",
        )


def _broken_limit(geometry: Geometry, wants: Sequence[_Want]) -> str:
    """A sentence about the limit that the last item exceeds; empty if none."""
    for limit in geometry.limits:
        needed = sum(limit.takes.get(want.profile.name, 0) for want in wants)
        if needed > limit.most:
            last = wants[-1].profile.name
            own = limit.takes.get(last, 0)
            left = limit.most - needed + own
            return f"{last} needs {own} of {limit.name}, and those before it leave {left} of {limit.most}"
    return ""


def _arrange(geometry: Geometry, wants: Sequence[_Want]) -> tuple[Placement, ...] | None:
    """The preferred arrangement in the order of the list, or None. Limits are not checked.

    Raises LayoutError if the search takes too long.
    """
    order = sorted(
        range(len(wants)), key=lambda position: _rank(wants[position])
    )  # stable: equal items keep their order
    needed = [sum(wants[position].profile.slices for position in order[item:]) for item in range(len(order))]
    dead: set[tuple[int, int]] = set()
    steps = 0

    def fit(item: int, occupied: int) -> list[int] | None:
        """Starts for the items from `item` on."""
        nonlocal steps
        if item == len(order):
            return []
        if (item, occupied) in dead or geometry.slices - occupied.bit_count() < needed[item]:
            return None
        want = wants[order[item]]
        for start in want.starts:
            mask = ((1 << want.profile.slices) - 1) << start
            if occupied & mask:
                continue
            steps += 1
            if steps > MAX_STEPS:
                raise LayoutError(
                    f"no arrangement of the {len(wants)} partitions was found within {MAX_STEPS} steps",
                    hint=f"give the first slice of the large ones: <profile>{PIN}<slice>",
                )
            rest = fit(item + 1, occupied | mask)
            if rest is not None:
                return [start, *rest]
        dead.add((item, occupied))
        return None

    packed = fit(0, 0)
    if packed is None:
        return None
    starts = dict(zip(order, packed, strict=True))
    return tuple(Placement(want.profile, starts[place]) for place, want in enumerate(wants))


def _first_clash(geometry: Geometry, wants: Sequence[_Want]) -> LayoutError:
    """The error for an impossible list: it names the first item that does not fit with the items before it."""
    before: tuple[Placement, ...] = ()
    for position, want in enumerate(wants):
        prefix, profile = wants[: position + 1], want.profile
        arranged = _arrange(geometry, prefix)
        if arranged is None:
            starts = either([str(start) for start in sorted(want.starts)])
            others = ", ".join(str(each) for each in sorted(before, key=lambda placement: placement.start))
            return LayoutError(
                f"{profile.name} takes {counted(profile.slices, 'slice')} from {starts}, "
                f"and does not fit beside {others}",
                position=position,
            )
        if broken := _broken_limit(geometry, prefix):
            return LayoutError(broken, position=position)
        before = arranged
    raise AssertionError("called for a list that can be placed")


MAX_COUNTERS = 32
"""The maximum of counters in a counter set of a ResourceSlice."""


@dataclass(frozen=True, slots=True)
class Counters:
    """The counters of a device: its memory slices, and its limits."""

    slices: int
    limits: tuple[Limit, ...]

    @property
    def all(self) -> dict[str, int]:
        """All counters with the full values of the device."""
        return {limit.name: limit.most for limit in self.limits} | dict.fromkeys(map(_slice, range(self.slices)), 1)

    def taken_by(self, profile: str, slices: range) -> dict[str, int]:
        taken = {limit.name: limit.takes[profile] for limit in self.limits if profile in limit.takes}
        return taken | dict.fromkeys(map(_slice, slices), 1)


def counters(geometry: Geometry, known: Sequence[Limit] = ()) -> Counters:
    """The counters of a device with this geometry: `known` limits, and additional ones that its rules need."""
    limits = list(known)
    for limit in geometry.limits:
        if not any(each.implies(limit) for each in limits):
            taken = {each.name for each in limits} | set(map(_slice, range(geometry.slices)))
            name = f"{limit.name[:50]}-{len(limits)}" if limit.name in taken else limit.name
            limits.append(replace(limit, name=name))
    return Counters(geometry.slices, tuple(limits))


def placements(geometry: Geometry) -> Iterator[Placement]:
    """Every partition that the device can have."""
    return (Placement(profile, start) for profile in geometry.profiles.values() for start in geometry.starts(profile))


def _slice(number: int) -> str:
    return f"memory-slice-{number}"
