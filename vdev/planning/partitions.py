"""Intervals on a row of slices: the exact search behind `placement.place`, free of profiles and names.

Sets of slices are bit masks. The search is depth first in the order given, so the first solution is the preferred one.
Dead ends are remembered by what is occupied, and the grids of real hardware take a few dozen steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..model.device import grouped
from ..model.geometry import PIN, Geometry, LayoutError, Placement, Profile, counted, most_of
from ..model.names import dns_label
from ..model.problem import either

MAX_STEPS = 200_000  # about a third of a second; no real hardware needs more


class TooManyStepsError(Exception):
    """The search gave up after MAX_STEPS steps: neither found nor proved impossible."""


def mask_of(size: int, start: int) -> int:
    return ((1 << size) - 1) << start


def pack(slices: int, items: Sequence[tuple[int, tuple[int, ...]]], occupied: int = 0) -> list[int] | None:
    """A start for each item, given as (size, starts in order of preference), or None when they do not all fit.

    Earlier items choose first; equal items should stand next to each other. `occupied` masks slices that are taken
    already. Raises TooManyStepsError.
    """
    needed = [0]
    for size, _ in reversed(items):
        needed.append(needed[-1] + size)
    needed.reverse()
    dead: set[tuple[int, int, int]] = set()
    steps = 0

    def fit(item: int, occupied: int, first: int) -> list[int] | None:
        """Starts for the items from `item` on; equal items take ever later choices, so that no set is tried twice."""
        nonlocal steps
        if item == len(items):
            return []
        state = (item, occupied, first)
        if state in dead or slices - occupied.bit_count() < needed[item]:
            return None
        size, choices = items[item]
        alike = item + 1 < len(items) and items[item + 1] == items[item]
        for choice, start in enumerate(choices[first:], first):
            mask = mask_of(size, start)
            if occupied & mask:
                continue
            steps += 1
            if steps > MAX_STEPS:
                raise TooManyStepsError
            rest = fit(item + 1, occupied | mask, choice + 1 if alike else 0)
            if rest is not None:
                return [start, *rest]
        dead.add(state)
        return None

    return fit(0, occupied, 0)


@dataclass(frozen=True, slots=True)
class _Want:
    """One item of the wanted list; `pin` is the start that the user gave."""

    profile: Profile
    pin: int | None


def place(geometry: Geometry, wanted: Sequence[str]) -> tuple[Placement, ...]:
    """Where each wanted partition sits, in the order of the list; the k-th of equal profiles keeps its place.

    An item is a profile's name, or `<profile>@<start>`. Finds an arrangement whenever one exists. Raises LayoutError.
    """
    wants = [_want(geometry, item, position) for position, item in enumerate(wanted)]
    if geometry.whole_device:
        _check_whole_device(geometry, wants)
    broken = _count_rule(geometry, wants) or _compute_rule(geometry, wants) or _engine_rule(geometry, wants)
    found = None if broken else _arrange(geometry, wants)
    if found is None:
        raise _first_clash(geometry, wants)
    return found


def _want(geometry: Geometry, item: str, position: int) -> _Want:
    name, pinned, start = item.partition(PIN)
    try:
        profile = geometry.profile(name)
    except LayoutError as unknown:
        raise LayoutError(str(unknown), hint=unknown.hint, position=position) from None
    if not pinned:
        return _Want(profile, None)
    allowed = geometry.starts(profile)
    if not (start.isascii() and start.isdigit() and int(start) in allowed):
        raise LayoutError(
            f"{item!r}: {name} cannot start at slice {start or '(nothing)'}",
            hint="it starts at " + either([str(each) for each in allowed]),
            position=position,
        )
    return _Want(profile, int(start))


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


def _count_rule(geometry: Geometry, wants: Sequence[_Want]) -> str:
    """Which limit of numbers the list breaks, or the empty string."""
    holders = Counter(want.profile.exclusive for want in wants if want.profile.exclusive)
    for word, count in holders.items():
        if count > 1:
            names = dict.fromkeys(want.profile.name for want in wants if want.profile.exclusive == word)
            return f"a device holds one {either(list(names))} at most, and the list has {count}"
    for profile, count in Counter(want.profile for want in wants).items():
        if count > (most := most_of(geometry, profile)):
            return f"a device holds at most {most} of {profile.name}, and the list has {count}"
    return ""


def _compute_rule(geometry: Geometry, wants: Sequence[_Want]) -> str:
    """Why the compute slices do not suffice, or the empty string; the message names the last item."""
    needed = sum(want.profile.compute or 0 for want in wants)
    if geometry.compute is None or needed <= geometry.compute:
        return ""
    own = wants[-1].profile.compute or 0
    return (
        f"{wants[-1].profile.name} needs {counted(own, 'compute slice')}, "
        f"and those before it leave {geometry.compute - needed + own} of {geometry.compute}"
    )


def _engine_rule(geometry: Geometry, wants: Sequence[_Want]) -> str:
    """Why the engines of a kind do not suffice, or the empty string; the message names the last item."""
    for name, most, takes in geometry.engines:
        needed = sum(takes.get(want.profile.name, 0) for want in wants)
        if needed > most:
            last = wants[-1].profile.name
            own = takes.get(last, 0)
            return f"{last} needs {own} of {name}, and those before it leave {most - needed + own} of {most}"
    return ""


def _arrange(geometry: Geometry, wants: Sequence[_Want]) -> tuple[Placement, ...] | None:
    """The preferred arrangement on the slices alone, in the order of the list, or None."""
    occupied = 0
    starts: dict[int, int] = {}
    for position, want in enumerate(wants):
        if want.pin is not None:
            mask = mask_of(want.profile.slices, want.pin)
            if occupied & mask:
                return None
            occupied |= mask
            starts[position] = want.pin
    free = [position for position in range(len(wants)) if position not in starts]
    free.sort(key=lambda position: _rank(geometry, wants[position].profile))  # stable: equal profiles keep list order
    items = [(wants[position].profile.slices, _preference(geometry, wants[position].profile)) for position in free]
    try:
        packed = pack(geometry.slices, items, occupied)
    except TooManyStepsError:
        raise LayoutError(
            f"no arrangement of the {len(wants)} partitions was found within {MAX_STEPS} steps",
            hint=f"say where the large ones start: <profile>{PIN}<slice>",
        ) from None
    if packed is None:
        return None
    starts |= zip(free, packed, strict=True)
    return tuple(_placement(want.profile, starts[position]) for position, want in enumerate(wants))


def _placement(profile: Profile, start: int) -> Placement:
    return Placement(profile, start, profile.slices)


def _rank(geometry: Geometry, profile: Profile) -> tuple[int, int, str]:
    """Larger profiles choose first, of equal size those with fewer starts; the name decides ties, not the list."""
    return (-profile.slices, len(geometry.starts(profile)), profile.name)


def _preference(geometry: Geometry, profile: Profile) -> tuple[int, ...]:
    """The profile's starts, best first: the smallest parts meet the larger ones in the middle."""
    starts = geometry.starts(profile)
    return starts if profile.slices == min(each.slices for each in geometry.profiles.values()) else starts[::-1]


def _first_clash(geometry: Geometry, wants: Sequence[_Want]) -> LayoutError:
    """Why the list is impossible: the first item that does not fit beside those before it."""
    before: tuple[Placement, ...] = ()
    for position, want in enumerate(wants):
        prefix = wants[: position + 1]
        if rule := _count_rule(geometry, prefix):
            return LayoutError(rule, position=position)
        arranged = _arrange(geometry, prefix)
        if arranged is None:
            return LayoutError(_clash(geometry, want, before), position=position)
        if rule := _compute_rule(geometry, prefix) or _engine_rule(geometry, prefix):
            return LayoutError(rule, position=position)
        before = arranged
    raise AssertionError("called for a list that can be placed")


def _clash(geometry: Geometry, want: _Want, before: Sequence[Placement]) -> str:
    """Each place that the item could have, and who has it: `0-3 are taken by 1g.5gb at 0, 1`."""
    profile = want.profile
    places = [_placement(profile, start) for start in (geometry.starts(profile) if want.pin is None else (want.pin,))]
    needs = either(_spans(places)) if profile.slices > 1 else ", ".join(_spans(places))
    taken = {slice_ for each in before for slice_ in each.slices}
    reasons = [
        f"{' and '.join(spans)} {'are' if len(spans) > 1 or '-' in spans[0] else 'is'} taken by {holders}"
        for holders, group in groupby(places, key=lambda place: _holders(place, before))
        for spans in [_runs(sorted(taken & {slice_ for each in group for slice_ in each.slices}))]
    ]
    one_of = "one of " if profile.slices == 1 and len(places) > 1 else ""
    return "; ".join([f"{profile.name} needs {one_of}slice{'s' * ('-' in needs)} {needs}", *reasons])


def _holders(place: Placement, before: Sequence[Placement]) -> str:
    """Who is in the way, grouped by profile: `1g.5gb at 4, 5 and 2g.10gb at 6`."""
    others = sorted(before, key=lambda placement: placement.start)
    starts = grouped((other.profile.name, other.start) for other in others if other.overlaps(place))
    return " and ".join(f"{name} at {', '.join(map(str, each))}" for name, each in starts.items())


def _spans(places: Sequence[Placement]) -> list[str]:
    """The slices of each place; single slices in a row become one span."""
    if all(place.size == 1 for place in places):
        return _runs([place.start for place in places])
    return [_span(place.start, place.start + place.size - 1) for place in places]


def _runs(slices: Sequence[int]) -> list[str]:
    """Slices in order, those in a row as one span."""
    first = [each for each in slices if each - 1 not in slices]
    last = [each for each in slices if each + 1 not in slices]
    return list(map(_span, first, last))


def _span(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"


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
        Placement(profile, start, profile.slices)
        for profile in geometry.profiles.values()
        for start in geometry.starts(profile)
    )


def _rules(geometry: Geometry) -> Iterator[Limit]:
    if geometry.compute is not None:
        takes = {each.name: each.compute for each in geometry.profiles.values() if each.compute}
        yield Limit("compute-slices", geometry.compute, takes)
    yield from (Limit(dns_label(name), most, each) for name, most, each in geometry.engines)
    for word in dict.fromkeys(each.exclusive for each in geometry.profiles.values() if each.exclusive):
        takes = {each.name: 1 for each in geometry.profiles.values() if each.exclusive == word}
        yield Limit(dns_label(word) or "exclusive", 1, takes)
    for profile in geometry.profiles.values():
        if profile.max is not None and profile.max < most_of(geometry, profile.model_copy(update={"max": None})):
            yield Limit(dns_label(f"max-{profile.name}"), profile.max, {profile.name: 1})


def _slice(number: int) -> str:
    return f"memory-slice-{number}"


def _names(name: str) -> Iterator[str]:
    """The name, then the name with a number."""
    yield name
    yield from (f"{name[:50]}-{number}" for number in range(2, 2**16))
