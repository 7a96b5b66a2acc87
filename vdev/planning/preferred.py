"""GetPreferredAllocation: chooses the devices for a container from the devices that the kubelet offers.

    whole devices                        the devices that are nearest to each other
    several slots per physical device    replicas and partitions: spread over the devices, or packed onto few; among
                                         equally good devices, the nearest

A response has exactly `size` ids, including all required ones. If that is impossible, it is empty, and the kubelet
chooses. It depends on the given sets, not on their order.

Compared with NVIDIA's plugin: replicas are counted in the same way (gone = total - available; fewest or most first,
then least picked in this call). Partitions are counted alike, by physical device. With links, the best set for this
request wins, and ties are broken by the links to the remaining devices; NVIDIA divides all free devices into sets of
this size.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, combinations

from ..model.device import RawDevice, Slot, grouped
from ..model.entry import AllocationPolicy

Weights = Mapping[str, Mapping[str, int]]
"""The proximity of each pair of raw devices, by id: symmetric and not negative; 0 for a device itself."""

_MAX_COMPARED = 128  # devices that are compared pairwise; if there are more, the first ones are chosen
_MAX_EXACT = 12  # devices up to which all subsets are compared, which takes some milliseconds
NO_LINKS: Mapping[tuple[str, str], int] = {}
_SEEDS = 8  # starting devices of the greedy search, if there are more


def preferred(
    slots: Sequence[Slot],
    available: Iterable[str],
    must_include: Collection[str],
    size: int,
    *,
    links: Mapping[tuple[str, str], int] = NO_LINKS,
    policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
) -> list[str]:
    """The preferred ids: exactly `size`, with all of `must_include`, or an empty list if that is impossible.

    Ids that the resource does not have are ignored. `links` has the score of pairs of raw devices (NVIDIA's scale: 100
    per NVLink); other pairs score 0.
    """
    offered = frozenset(available)
    usable = {slot.id: slot for slot in slots if slot.id in offered}
    chosen = set(must_include)
    if not 0 < size <= len(usable) or len(chosen) > size or not chosen <= usable.keys():
        return []

    # 1. Choose physical devices, and how many slots to take from each.
    free = grouped((slot.device.raw.id, slot) for slot in usable.values() if slot.id not in chosen)
    held = {usable[each].device.raw.id for each in chosen}
    total = Counter(slot.device.raw.id for slot in slots)
    raws = {slot.device.raw.id: slot.device.raw for slot in slots}
    counts = _portions(policy, free, total, size - len(chosen), held, _weights([*raws.values()], links))

    # 2. Choose among the partitions and replicas of each.
    total = Counter(slot.device.id for slot in slots)
    for raw, count in counts.items():
        units = grouped((slot.device.id, slot) for slot in free[raw])
        for unit, portion in _portions(policy, units, total, count).items():
            chosen.update(slot.id for slot in units[unit][:portion])
    return [each for each in usable if each in chosen]


def _portions(
    policy: AllocationPolicy,
    free: Mapping[str, Sequence[Slot]],
    total: Mapping[str, int],
    needed: int,
    held: Collection[str] = (),
    weights: Weights | None = None,
) -> Mapping[str, int]:
    """The number of slots to take from each group of free slots, `needed` in total.

    distributed  one slot at a time from the group with the fewest slots gone; among equals, from the least picked
    packed       one group after the other, most slots gone first; among equals, as few groups as possible

    If there are more equal groups than needed, groups are chosen that are near to each other and to groups that are
    `held` or picked; without `weights`, the first groups are chosen.
    """
    is_packed = policy is AllocationPolicy.PACKED
    picked = Counter[str]()

    while needed:
        by_rank: dict[tuple[int, int], list[str]] = {}
        for group, slots in free.items():
            if picked[group] < len(slots):
                gone = total[group] - len(slots)
                rank = (-gone, 0) if is_packed else (gone + picked[group], picked[group])
                by_rank.setdefault(rank, []).append(group)
        equals = by_rank[min(by_rank)]
        number = needed
        if is_packed:
            sums = accumulate(sorted((len(free[group]) for group in equals), reverse=True))
            number = next((count for count, room in enumerate(sums, 1) if room >= needed), needed)
        if weights is not None and number < len(equals):
            near = (set(held) | picked.keys()).difference(equals)
            best = heaviest(weights, equals, near, number)
            equals = [group for group in equals if group in best]
        for group in equals[:number]:
            portion = min(len(free[group]), needed) if is_packed else 1
            picked[group] += portion
            needed -= portion
    return picked


# --- nearness ---------------------------------------------------------------------------------------------------------


def _weights(raws: Sequence[RawDevice], links: Mapping[tuple[str, str], int]) -> Weights | None:
    """The weights of pairs: first by the score of links, then by the number of pairs on one NUMA node.

    None: no two devices are near to each other, or there are too many devices to compare.
    """
    if len(raws) > _MAX_COMPARED or not (links or any(raw.numa for raw in raws)):
        return None
    scale = len(raws) ** 2  # more than all NUMA pairs together
    weights: dict[str, dict[str, int]] = {raw.id: {raw.id: 0} for raw in raws}
    for one, other in combinations(raws, 2):
        score = max(links.get((one.id, other.id), 0), links.get((other.id, one.id), 0))
        is_together = not set(one.numa).isdisjoint(other.numa)
        weights[one.id][other.id] = weights[other.id][one.id] = score * scale + is_together
    return weights


def heaviest(weights: Weights, free: Sequence[str], must: Collection[str], needed: int) -> tuple[str, ...]:
    """The `needed` vertices of `free` that, together with all of `must`, have the largest sum of pair weights.

    The problem is NP-hard. For up to 12 vertices, all subsets are compared; for more, sets are grown greedily from
    several vertices. Among equal sets, the one with the weakest links to the other vertices wins, so that a good set
    remains for the next request. If sets are still equal, the first one in `free` wins.
    """
    to_must = {each: sum(weights[each][other] for other in must) for each in free}
    to_all = {each: sum(weights[each][other] for other in (*free, *must)) for each in free}

    def rank(chosen: tuple[str, ...]) -> tuple[int, int]:
        inside = sum(weights[one][other] for one, other in combinations(chosen, 2))
        return inside + sum(to_must[each] for each in chosen), -sum(to_all[each] for each in chosen)

    sets: Iterable[tuple[str, ...]] = combinations(free, needed)
    if len(free) + len(must) > _MAX_EXACT:
        sets = (_grown(weights, seed, to_must, needed) for seed in free[:: -(-len(free) // _SEEDS)])
    return max(sets, key=rank)


def _grown(weights: Weights, seed: str, to_must: Mapping[str, int], size: int) -> tuple[str, ...]:
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
