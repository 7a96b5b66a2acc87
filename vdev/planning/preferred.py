"""GetPreferredAllocation: which of the devices that the kubelet offers a container should get.

    whole devices                        the devices that are nearest to each other
    several slots per physical device    replicas and partitions: spread over the devices, or packed onto few; among
                                         equally good devices, the nearest

An answer has exactly `size` ids, with all that must be included. If that is impossible, it is empty, and the kubelet
chooses. It depends on the sets given, not on their order.

Compared with NVIDIA's plugin: replicas are counted in the same way (gone = total - available; fewest or most first,
then least picked in this call), and so are partitions, for their physical device. With links, the best set for this
request wins, and the links of the remaining devices decide between equals; NVIDIA divides all free devices into sets
of this size.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from ..model.entry import AllocationPolicy
from .heaviest import Weights, heaviest

_MAX_COMPARED = 128  # devices that are compared pair by pair; the links of more do not count


class Nearness:
    """The links and NUMA nodes of some devices. Immutable."""

    def __init__(
        self, ids: Sequence[str], numa: Sequence[tuple[int, ...]], links: Mapping[tuple[str, str], int]
    ) -> None:
        """`links` has the score of pairs of ids, in either order; other pairs score 0."""
        number = {each: position for position, each in enumerate(ids)}
        scores = {
            (number[one], number[other]): score
            for (one, other), score in links.items()
            if score > 0 and one in number and other in number and one != other
        }
        self._weights: Weights | None = None
        self._groups = numa
        if scores and len(ids) <= _MAX_COMPARED:
            self._weights = _weights(numa, scores)

    def nearest(self, free: Sequence[int], near: Collection[int], needed: int) -> list[int]:
        """The `needed` devices of `free` that are nearest to each other and to those in `near`; ascending.

        With links it is the set with the best links, else devices from as few NUMA nodes as possible. `free` is
        ascending and has none of `near`.
        """
        if self._weights is None:
            return sorted(_from_fewest(self._groups, free, near, needed))
        kept = set(near)
        chosen = heaviest(self._weights, free, sorted(kept), needed + len(kept))
        return [each for each in chosen if each not in kept]


def _from_fewest(group_of: Sequence[Hashable], free: Sequence[int], near: Collection[int], needed: int) -> list[int]:
    """Devices from as few groups as possible: groups in use, then the largest, last the smallest with enough."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for each in free:
        groups[group_of[each]].append(each)
    chosen: list[int] = []
    in_use = {group_of[each] for each in near} & groups.keys()
    for group in sorted(in_use, key=lambda group: (-len(groups[group]), groups[group][0])):
        chosen += groups.pop(group)[: needed - len(chosen)]
    while len(chosen) < needed:
        short = needed - len(chosen)
        if fitting := [group for group, members in groups.items() if len(members) >= short]:
            best = min(fitting, key=lambda group: (len(groups[group]), groups[group][0]))
        else:
            best = min(groups, key=lambda group: (-len(groups[group]), groups[group][0]))
        chosen += groups.pop(best)[:short]
    return chosen


def _weights(numa: Sequence[tuple[int, ...]], scores: Mapping[tuple[int, int], int]) -> Weights:
    """Pair weights: the links' score decides, and among equal scores the number of pairs on one NUMA node."""
    scale = len(numa) ** 2  # more than all NUMA pairs together
    weights = [
        [int(row != column and not set(one).isdisjoint(other)) for column, other in enumerate(numa)]
        for row, one in enumerate(numa)
    ]
    best: dict[tuple[int, int], int] = {}
    for (one, other), score in scores.items():
        pair = (min(one, other), max(one, other))
        best[pair] = max(score, best.get(pair, 0))
    for (low, high), score in best.items():
        weights[low][high] += score * scale
        weights[high][low] += score * scale
    return tuple(map(tuple, weights))


def spread(
    nearness: Nearness, room: Mapping[int, int], gone: Mapping[int, int], held: Mapping[int, int], needed: int
) -> dict[int, int]:
    """Take one slot at a time from the device with the fewest slots gone; among equals, from the least picked."""
    counts: dict[int, int] = {}
    ranks: dict[tuple[int, int], list[int]] = defaultdict(list)
    for device in sorted(room):
        ranks[gone[device], 0].append(device)
    while needed:
        rank = min(ranks)
        devices = sorted(ranks.pop(rank))
        if len(devices) > needed:
            devices = nearness.nearest(devices, (held.keys() | counts.keys()) - set(devices), needed)
        needed -= len(devices)
        for device in devices:
            counts[device] = counts.get(device, 0) + 1
            if counts[device] < room[device]:
                ranks[rank[0] + 1, rank[1] + 1].append(device)
    return counts


def packed(
    nearness: Nearness, room: Mapping[int, int], gone: Mapping[int, int], held: Mapping[int, int], needed: int
) -> dict[int, int]:
    """Take one device after the other, most slots gone first; among equals, as few devices as possible."""
    counts: dict[int, int] = {}
    while needed:
        left = room.keys() - counts.keys()
        most = max(gone[device] for device in left)
        equals = sorted(device for device in left if gone[device] == most)
        sums = accumulate(sorted((room[device] for device in equals), reverse=True))
        few = next((count for count, total in enumerate(sums, 1) if total >= needed), len(equals))
        for device in nearness.nearest(equals, (held.keys() | counts.keys()) - set(equals), few):
            counts[device] = min(room[device], needed)
            needed -= counts[device]
    return {device: count for device, count in counts.items() if count}


@dataclass(frozen=True, slots=True)
class AllocatableSlot:
    """A slot that can be chosen."""

    id: str
    parent: str
    """The id of the physical device."""
    numa: tuple[int, ...] = ()
    """The NUMA nodes; empty if they are unknown."""
    index: int = 0
    """The position among all slots."""
    unit: str = ""
    """The id of the device or partition of which this is a replica; empty for a slot that is not a replica."""


class Allocator:
    """Chooses devices of one resource. It is made once, because that takes long for many devices. Immutable."""

    def __init__(
        self,
        candidates: Sequence[AllocatableSlot],
        *,
        links: Mapping[tuple[str, str], int] | None = None,
        policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
    ) -> None:
        """`links` has the score of pairs of parents (NVIDIA's scale: 100 per NVLink); other pairs score 0."""
        self._candidates = sorted(candidates, key=attrgetter("index", "id"))
        self._policy = policy
        self._number: dict[str, int] = {}  # of each candidate
        self._parents: list[int] = []  # the number of each candidate's parent
        self._units = Counter[str]()
        parents: dict[str, int] = {}
        numa = []  # of each parent
        for number, each in enumerate(self._candidates):
            if each.parent not in parents:
                parents[each.parent] = len(parents)
                numa.append(each.numa)
            self._number[each.id] = number
            self._parents.append(parents[each.parent])
            self._units[each.unit or each.id] += 1
        self._slots = Counter(self._parents)
        self._several = len(parents) < len(self._candidates)
        self._replicated = len(self._units) < len(self._candidates)
        self._nearness = Nearness(list(parents), numa, links or {})

    def prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """The preferred ids: exactly `size`, with all of `must_include`, or an empty list if that is impossible.

        Ids that the resource does not have are ignored.
        """
        number = self._number
        usable = {number[each] for each in available if each in number}
        must = sorted({number.get(each, -1) for each in must_include})
        if not 0 < size <= len(usable) or len(must) > size or not usable.issuperset(must):
            return []
        free = sorted(usable.difference(must))
        if len(must) == size or len(usable) == size:
            chosen = must if len(must) == size else sorted(usable)
        elif not self._several:
            chosen = sorted([*must, *self._nearness.nearest(free, must, size - len(must))])
        else:
            chosen = [*must, *self._over_parents(free, must, size - len(must))]
        return [self._candidates[each].id for each in chosen]

    def _over_parents(self, free: Sequence[int], must: Sequence[int], needed: int) -> list[int]:
        """Slots of each parent, and of its units, as the policy says."""
        slots: dict[int, list[int]] = defaultdict(list)
        for each in free:
            slots[self._parents[each]].append(each)
        room = {parent: len(members) for parent, members in slots.items()}
        gone = {parent: self._slots[parent] - count for parent, count in room.items()}
        held = Counter(self._parents[each] for each in must)
        if self._policy is AllocationPolicy.DISTRIBUTED:
            counts = spread(self._nearness, room, gone, held, needed)
        else:
            counts = packed(self._nearness, room, gone, held, needed)
        return [each for parent, count in counts.items() for each in self._of_one(slots[parent], count)]

    def _of_one(self, free: Sequence[int], needed: int) -> list[int]:
        """Slot by slot from the unit with the fewest (distributed) or most (packed) slots gone."""
        if not self._replicated:
            return list(free[:needed])
        units: dict[str, list[int]] = defaultdict(list)
        for each in free:
            candidate = self._candidates[each]
            units[candidate.unit or candidate.id].append(each)
        gone = {unit: self._units[unit] - len(slots) for unit, slots in units.items()}
        picked = dict.fromkeys(units, 0)
        sign = 1 if self._policy is AllocationPolicy.DISTRIBUTED else -1
        chosen: list[int] = []
        while len(chosen) < needed:
            unit = min(units, key=lambda each: (sign * (gone[each] + picked[each]), picked[each], units[each][0]))
            chosen.append(units[unit].pop(0))
            picked[unit] += 1
            if not units[unit]:
                del units[unit]
        return chosen
