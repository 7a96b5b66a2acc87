"""Which devices a container should get, out of those that the kubelet offers: GetPreferredAllocation's decision.

Two roads, chosen by what the resource is, not by what is offered:

    whole devices                        those that are nearest to each other (`nearness`)
    several slots per physical device    replicas, partitions: spread over the devices, or packed onto few (`portions`);
                                         of devices that are as good as each other, those that are nearest

An answer has exactly `size` ids and holds all that must be included; where that cannot be, it is empty and the kubelet
chooses alone. It depends on the sets given, never on their order. What the devices alone decide is prepared once, in
`Allocator`.

Compared with NVIDIA's plugin: replicas are counted alike (gone = total - available; fewest or most first, then least
picked in this call). Partitions count for their physical device, so that `packed` means something for MIG: the fewest
devices, and of these the nearest, as ROCm's plugin chooses them. With links, the best set for this request wins, where
NVIDIA cuts everything that is free into sets of this size; the leftovers decide between equals.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..inventory.resources import Resource
from ..spec import AllocationPolicy, VirtualSource
from .nearness import Nearness
from .portions import fewest, filled, spread


@dataclass(frozen=True, slots=True)
class AllocatableSlot:
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
        candidates.append(AllocatableSlot(slot.id, raw.id, raw.numa, index, slot.device.id))
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
        candidates: Sequence[AllocatableSlot],
        *,
        links: Mapping[tuple[str, str], int] | None = None,
        policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED,
    ) -> None:
        """`links` scores pairs of parents (NVIDIA's scale: 100 per NVLink), in either order; absent pairs score 0."""
        self._candidates = sorted(candidates, key=lambda each: (each.index, each.id))
        self._number = {each.id: number for number, each in enumerate(self._candidates)}
        self._policy = policy
        first_of = {each.parent: each for each in reversed(self._candidates)}
        numbers = {
            parent: number for number, parent in enumerate(dict.fromkeys(each.parent for each in self._candidates))
        }
        self._parents = [numbers[each.parent] for each in self._candidates]
        self._slots = Counter(self._parents)
        self._units = Counter(each.unit or each.id for each in self._candidates)
        self._several = len(numbers) < len(self._candidates)
        self._replicated = len(self._units) < len(self._candidates)
        self._nearness = Nearness(list(numbers), [first_of[parent].numa for parent in numbers], links or {})

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
        elif not self._several:
            chosen = sorted([*must, *self._nearness.nearest(free, must, size - len(must))])
        else:
            chosen = [*must, *self._over_parents(free, must, size - len(must))]
        return [self._candidates[each].id for each in chosen]

    def _over_parents(self, free: Sequence[int], must: Sequence[int], needed: int) -> list[int]:
        """So many slots of each parent as the policy says, and of its units likewise."""
        slots: dict[int, list[int]] = defaultdict(list)
        for each in free:
            slots[self._parents[each]].append(each)
        room = {parent: len(members) for parent, members in slots.items()}
        gone = {parent: self._slots[parent] - count for parent, count in room.items()}
        held = Counter(self._parents[each] for each in must)
        if self._policy is AllocationPolicy.DISTRIBUTED:
            counts = spread(self._nearness, room, gone, held, needed)
        elif self._replicated:
            counts = filled(self._nearness, room, gone, held, needed)
        else:
            counts = fewest(self._nearness, room, gone, held, needed)
        return [each for parent, count in counts.items() for each in self._of_one(slots[parent], count)]

    def _of_one(self, free: Sequence[int], needed: int) -> list[int]:
        """Slot by slot from the unit with the fewest (distributed) or most (packed) slots gone."""
        if not self._replicated:
            return list(free[:needed])
        units: dict[str, list[int]] = defaultdict(list)
        for each in reversed(free):  # so that the lowest index is at the end, where pop is cheap
            candidate = self._candidates[each]
            units[candidate.unit or candidate.id].append(each)
        sign = 1 if self._policy is AllocationPolicy.DISTRIBUTED else -1
        pools = [(sign * (self._units[unit] - len(slots)), 0, slots[-1], slots) for unit, slots in units.items()]
        heapq.heapify(pools)
        chosen: list[int] = []
        while len(chosen) < needed:
            gone, picked, _, slots = pools[0]
            chosen.append(slots.pop())
            if slots:
                heapq.heapreplace(pools, (gone + sign, picked + 1, slots[-1], slots))
            else:
                heapq.heappop(pools)
        return chosen
