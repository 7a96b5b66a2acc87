"""GetPreferredAllocation: chooses the devices for a container from the devices that the kubelet offers.

    whole devices                        the devices that are nearest to each other
    several slots per physical device    replicas and partitions: spread over the devices, or packed onto few; among
                                         equally good devices, the nearest

A response has exactly `size` ids, including all required ones. If that is impossible, it is empty, and the kubelet
chooses. It depends on the given sets, not on their order.

Compared with NVIDIA's plugin: replicas are counted in the same way (gone = total - available; fewest or most first,
then least picked in this call), and so are partitions, for their physical device. With links, the best set for this
request wins, and ties are broken by the links to the remaining devices; NVIDIA divides all free devices into sets of
this size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, combinations

from ..model.device import Slot, grouped
from ..model.entry import AllocationPolicy

Weights = tuple[tuple[int, ...], ...]
"""The proximity of each pair of devices: a symmetric matrix of non-negative integers with a zero diagonal."""

_MAX_COMPARED = 128  # devices that are compared pairwise; if there are more, the first ones are chosen
_MAX_EXACT = 12  # devices up to which all subsets are compared, which takes some milliseconds
_SEEDS = 8  # starting devices of the greedy search, if there are more


class Allocator:
    """Chooses slots of one resource. Immutable; cached, because its construction is slow for many devices.

    Slots, raw devices, and their units (devices and partitions) are numbers here, in the order of the list.
    """

    def __init__(
        self,
        slots: Sequence[Slot],
        *,
        links: Mapping[tuple[str, str], int] | None = None,
        policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
    ) -> None:
        """`links` has the score of pairs of raw devices (NVIDIA's scale: 100 per NVLink); other pairs score 0."""
        raws = {slot.device.raw.id: slot.device.raw for slot in slots}
        number = {each: position for position, each in enumerate(raws)}
        unit: dict[str, int] = {}
        for position, slot in enumerate(slots):
            unit.setdefault(slot.device.id, position)
        self._policy = policy
        self._ids = [slot.id for slot in slots]
        self._numbers = {each: position for position, each in enumerate(self._ids)}
        self._raw_of = [number[slot.device.raw.id] for slot in slots]
        self._unit_of = [unit[slot.device.id] for slot in slots]  # the unit of each slot
        self._in_raw, self._in_unit = Counter(self._raw_of), Counter(self._unit_of)
        scores: dict[tuple[int, int], int] = {}
        for (one, other), score in (links or {}).items():
            if score > 0 and one in number and other in number and one != other:
                low, high = sorted((number[one], number[other]))
                scores[low, high] = max(score, scores.get((low, high), 0))
        self._weights = _weights([raw.numa for raw in raws.values()], scores)

    def prefer(self, available: Collection[str], must_include: Collection[str], size: int) -> list[str]:
        """The preferred ids: exactly `size`, with all of `must_include`, or an empty list if that is impossible.

        Ids that the resource does not have are ignored.
        """
        usable = {self._numbers[each] for each in available if each in self._numbers}
        chosen = {self._numbers.get(each, -1) for each in must_include}
        if not 0 < size <= len(usable) or len(chosen) > size or not chosen <= usable:
            return []
        held = {self._raw_of[each] for each in chosen}
        free = grouped((self._raw_of[each], each) for each in sorted(usable - chosen))
        counts = _portions(self._policy, free, self._in_raw, size - len(chosen), held, self._weights)
        for raw, count in counts.items():
            if count == len(free[raw]):  # all of its slots, as always for a whole device
                chosen.update(free[raw])
                continue
            units = grouped((self._unit_of[each], each) for each in free[raw])
            for unit, portion in _portions(self._policy, units, self._in_unit, count).items():
                chosen.update(units[unit][:portion])
        return [self._ids[each] for each in sorted(chosen)]


def _portions(
    policy: AllocationPolicy,
    free: Mapping[int, Sequence[int]],
    total: Mapping[int, int],
    needed: int,
    held: Collection[int] = (),
    weights: Weights | None = None,
) -> Mapping[int, int]:
    """The number of slots to take from each group of free slots, `needed` in total.

    distributed  one slot at a time from the group with the fewest slots gone; among equals, from the least picked
    packed       one group after the other, most slots gone first; among equals, as few groups as possible

    If there are more equal groups than needed, those near to each other and to groups that are `held` or picked are
    chosen; without `weights`, the first ones.
    """
    is_packed = policy is AllocationPolicy.PACKED
    picked: Counter[int] = Counter()

    while needed:
        by_rank: dict[tuple[int, int], list[int]] = {}
        for group, slots in free.items():
            if picked[group] < len(slots):
                gone = total[group] - len(slots)
                rank = (-gone, 0) if is_packed else (gone + picked[group], picked[group])
                by_rank.setdefault(rank, []).append(group)
        equals = sorted(by_rank[min(by_rank)])
        number = needed
        if is_packed:
            sums = accumulate(sorted((len(free[group]) for group in equals), reverse=True))
            number = next((count for count, room in enumerate(sums, 1) if room >= needed), needed)
        if weights is not None and number < len(equals):
            near = (set(held) | picked.keys()).difference(equals)
            equals = sorted(heaviest(weights, equals, sorted(near), number))
        for group in equals[:number]:
            portion = min(len(free[group]), needed) if is_packed else 1
            picked[group] += portion
            needed -= portion
    return picked


# --- nearness ---------------------------------------------------------------------------------------------------------


def _weights(numa: Sequence[tuple[int, ...]], scores: Mapping[tuple[int, int], int]) -> Weights | None:
    """The weights of pairs: first by the score of links, then by the number of pairs on one NUMA node.

    None: no two devices are near to each other, or there are too many devices to compare.
    """
    if len(numa) > _MAX_COMPARED or not (scores or any(numa)):
        return None
    scale = len(numa) ** 2  # more than all NUMA pairs together
    weights = [[0] * len(numa) for _ in numa]
    for low, high in combinations(range(len(numa)), 2):
        is_together = not set(numa[low]).isdisjoint(numa[high])
        weights[low][high] = weights[high][low] = scores.get((low, high), 0) * scale + is_together
    return tuple(map(tuple, weights))


def heaviest(weights: Weights, free: Sequence[int], must: Sequence[int], needed: int) -> list[int]:
    """The `needed` vertices of `free` that, together with all of `must`, have the largest sum of pair weights.

    The problem is NP-hard. For up to 12 vertices, all subsets are compared; for more, sets are grown greedily from
    several vertices. Among equals, the set that is linked least to the other vertices wins, so that a good set remains
    for the next request; then the set with the lowest indices.
    """
    to_must = {each: sum(weights[each][other] for other in must) for each in free}
    to_all = {each: sum(weights[each][other] for other in (*free, *must)) for each in free}

    def rank(chosen: tuple[int, ...]) -> tuple[int, int]:
        inside = sum(weights[one][other] for one, other in combinations(chosen, 2))
        return inside + sum(to_must[each] for each in chosen), -sum(to_all[each] for each in chosen)

    sets: Iterable[tuple[int, ...]] = combinations(free, needed)
    if len(free) + len(must) > _MAX_EXACT:
        sets = (_grown(weights, seed, to_must, needed) for seed in free[:: -(-len(free) // _SEEDS)])
    best = max(sets, key=rank)
    return list(best)


def _grown(weights: Weights, seed: int, to_must: Mapping[int, int], size: int) -> tuple[int, ...]:
    """Grow a set to its size: add the vertex that adds the most weight; among equals, the first."""
    chosen, gain = [seed], dict(to_must)
    while len(chosen) < size:
        last = chosen[-1]
        del gain[last]
        row = weights[last]
        for each in gain:
            gain[each] += row[each]
        chosen.append(max(gain, key=gain.__getitem__))
    return tuple(chosen)
