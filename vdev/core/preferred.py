"""Which devices a container should get, out of those that the kubelet offers: GetPreferredAllocation's decision.

Three roads, chosen by what the resource is, not by what is offered:

    several slots per physical device    replicas, partitions: spread over the devices, or packed onto few
    whole devices with links             the set with the best links (`heaviest`)
    whole devices                        as few NUMA nodes as possible

An answer has exactly `size` ids and holds all that must be included; where that cannot be, it is empty and the kubelet
chooses alone. It depends on the sets given, never on their order. What the devices alone decide is prepared once, in
`Allocator`.

Compared with NVIDIA's plugin: replicas are counted alike (gone = total - available; fewest or most first, then least
picked in this call). Partitions count for their physical device, so that `packed` means something for MIG: the fewest
devices, as ROCm's plugin chooses them. With links, the best set for this request wins, where NVIDIA cuts everything
that is free into sets of this size; the leftovers decide between equals.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from .heaviest import Weights, heaviest
from .inventory import Resource
from .spec import AllocationPolicy, VirtualSource

_MAX_MATRIX = 1024  # devices whose pairs are weighed one by one; beyond, devices that are linked count as one group


@dataclass(frozen=True, slots=True)
class Candidate:
    """A slot that can be chosen.

    `parent` is the physical device's id. `unit` is the device within it that this is a replica of (a partition's id);
    "" means that the slot is a unit of its own. `numa` holds its NUMA nodes, empty when unknown. `index` orders slots.
    """

    id: str
    parent: str
    numa: tuple[int, ...] = ()
    index: int = 0
    unit: str = ""


def allocator_for(resource: Resource) -> "Allocator":
    """The allocator of a resource of the inventory, with its links and policy."""
    candidates, devices = [], {}
    for index, slot in enumerate(resource.slots):
        raw = slot.device.raw
        candidates.append(Candidate(slot.id, raw.id, raw.numa, index, slot.device.id))
        devices[raw.entry, raw.index] = raw.id
    links: dict[tuple[str, str], int] = {}
    for name, entry in resource.entries.items():
        if isinstance(entry.source, VirtualSource):
            for (one, other), score in entry.source.links.items():
                if (name, one) in devices and (name, other) in devices:
                    links[devices[name, one], devices[name, other]] = score
    return Allocator(candidates, links=links, policy=resource.flags.shared_devices_allocation_policy)


class Allocator:
    """The preferences of one resource. Immutable after it is made; `prefer` keeps no state."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        links: Mapping[tuple[str, str], int] | None = None,
        policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
    ) -> None:
        """`links` scores pairs of parents (NVIDIA's scale: 100 per NVLink), in either order; absent pairs score 0."""
        self._candidates = sorted(candidates, key=lambda each: (each.index, each.id))
        self._number = {each.id: number for number, each in enumerate(self._candidates)}
        self._policy = policy
        slots = Counter(each.parent for each in self._candidates)
        units = Counter(each.unit or each.id for each in self._candidates)
        self._totals = slots, units
        self._several = any(count > 1 for count in slots.values())
        self._replicated = any(count > 1 for count in units.values())
        self._parents = _numbered([each.parent for each in self._candidates])
        self._weights: Weights | None = None
        self._groups = _numbered([each.numa for each in self._candidates])
        scores = {pair: score for pair, score in (links or {}).items() if score > 0 and slots.keys() >= set(pair)}
        if scores and not self._several:
            if len(self._candidates) <= _MAX_MATRIX:
                self._weights = _weights(self._candidates, scores)
            else:
                self._groups = _linked(self._candidates, scores)

    def prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """The preferred ids: exactly `size`, with all of `must_include`; or none where that cannot be.

        Ids that the resource does not have are passed over.
        """
        number = self._number
        usable = {number[each] for each in available if each in number}
        must = sorted({number.get(each, -1) for each in must_include})
        if not 0 < size <= len(usable) or len(must) > size or not usable.issuperset(must):
            return []
        free = sorted(usable.difference(must))
        if len(must) == size or len(usable) == size:
            chosen = must if len(must) == size else sorted(usable)
        elif self._weights is not None:
            chosen = heaviest(self._weights, free, must, size)
        elif not self._several:
            chosen = sorted([*must, *_from_fewest(self._groups, free, must, size - len(must))])
        elif self._policy is AllocationPolicy.PACKED and not self._replicated:
            gone = Counter(self._parents)
            gone.subtract(self._parents[each] for each in free)
            chosen = [*must, *_from_fewest(self._parents, free, must, size - len(must), gone)]
        else:
            chosen = [*must, *self._over_parents(free, size - len(must))]
        return [self._candidates[each].id for each in chosen]

    def _over_parents(self, free: Sequence[int], needed: int) -> list[int]:
        """Slot by slot from the parent with the fewest (distributed) or most (packed) slots gone, and so within it."""
        parents: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
        for each in reversed(free):  # so that the lowest index is at the end, where pop is cheap
            candidate = self._candidates[each]
            parents[candidate.parent][candidate.unit or candidate.id].append(each)
        parent_totals, unit_totals = self._totals
        sign = 1 if self._policy is AllocationPolicy.DISTRIBUTED else -1

        def rank(gone: int, picked: int, slots: list[int]) -> tuple[int, int, int]:
            return (sign * gone, picked, slots[-1])

        pools = []
        for parent, units in parents.items():
            inner = [(*rank(unit_totals[unit] - len(slots), 0, slots), slots) for unit, slots in units.items()]
            heapq.heapify(inner)
            gone = parent_totals[parent] - sum(map(len, units.values()))
            pools.append((sign * gone, 0, min(slots[-1] for slots in units.values()), inner))
        heapq.heapify(pools)

        chosen: list[int] = []
        while len(chosen) < needed:
            gone, picked, first, inner = pools[0]
            unit_gone, unit_picked, _, slots = inner[0]
            chosen.append(slots.pop())
            if slots:
                heapq.heapreplace(inner, (unit_gone + sign, unit_picked + 1, slots[-1], slots))
            else:
                heapq.heappop(inner)
            if inner:
                heapq.heapreplace(pools, (gone + sign, picked + 1, first, inner))
            else:
                heapq.heappop(pools)
        return chosen


def _from_fewest(
    group_of: Sequence[int],
    free: Sequence[int],
    must: Sequence[int],
    needed: int,
    gone: Mapping[int, int] | None = None,
) -> list[int]:
    """From as few groups as possible: those in use first, then the largest, and last a group that holds all the rest.

    That last one is the one with most members gone, of these the tightest, of these the first.
    """
    groups: dict[int, list[int]] = defaultdict(list)
    for each in free:
        groups[group_of[each]].append(each)
    gone = gone or {}
    chosen: list[int] = []
    in_use = {group_of[each] for each in must} & groups.keys()
    for group in sorted(in_use, key=lambda group: (-len(groups[group]), groups[group][0])):
        chosen += groups.pop(group)[: needed - len(chosen)]
    while len(chosen) < needed:
        short = needed - len(chosen)
        if fitting := [group for group, members in groups.items() if len(members) >= short]:
            best = min(fitting, key=lambda group: (-gone.get(group, 0), len(groups[group]), groups[group][0]))
        else:
            best = min(groups, key=lambda group: (-len(groups[group]), groups[group][0]))
        chosen += groups.pop(best)[:short]
    return chosen


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    """Equal keys get equal numbers, counted from 0 in order of appearance."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


def _weights(candidates: Sequence[Candidate], scores: Mapping[tuple[str, str], int]) -> Weights:
    """Pair weights: the links' score decides, and among equal scores the number of pairs on one NUMA node."""
    number = {each.parent: position for position, each in enumerate(candidates)}
    scale = len(candidates) ** 2  # more than all NUMA pairs together
    weights = [
        [int(one is not other and not set(one.numa).isdisjoint(other.numa)) for other in candidates]
        for one in candidates
    ]
    best: dict[tuple[int, int], int] = {}
    for (one, other), score in scores.items():
        pair = (min(number[one], number[other]), max(number[one], number[other]))
        best[pair] = max(score, best.get(pair, 0))
    for (low, high), score in best.items():
        if low != high:
            weights[low][high] += score * scale
            weights[high][low] += score * scale
    return tuple(map(tuple, weights))


def _linked(candidates: Sequence[Candidate], scores: Mapping[tuple[str, str], int]) -> list[int]:
    """Group numbers by who reaches whom over links."""
    leader = {each.parent: each.parent for each in candidates}

    def find(parent: str) -> str:
        while leader[parent] != parent:
            leader[parent] = leader[leader[parent]]
            parent = leader[parent]
        return parent

    for one, other in scores:
        leader[find(one)] = find(other)
    return _numbered([find(each.parent) for each in candidates])
