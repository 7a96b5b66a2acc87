"""How many slots each device gives, where devices have several: the three ways in which slots are spread or packed.

    spread    one slot after the other from the device with the fewest slots gone
    filled    from the device with the most slots gone until it has none, then from the next
    fewest    from as few devices as can hold them

Of devices that are as good as each other, those are taken that are nearest to each other and to what the request must
include. Every way takes the same arguments: `room`, the free slots of each device that has some; `gone`, the slots of
each that are not free; `held`, those that the request must include; and how many are `needed`, at most all that are
free. The answer maps devices to numbers of slots, in the order in which they were chosen.
"""

from collections import defaultdict
from collections.abc import Mapping

from .nearness import Nearness

_MAX_COMPARED = (
    128  # devices that are compared with each other where sets are grown; beyond, they count as equally near
)
_SEEDS = 16  # devices that sets are grown from


def spread(
    nearness: Nearness, room: Mapping[int, int], gone: Mapping[int, int], held: Mapping[int, int], needed: int
) -> dict[int, int]:
    """One slot at a time from the device with the fewest slots gone, and of these from the one picked least."""
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


def filled(
    nearness: Nearness, room: Mapping[int, int], gone: Mapping[int, int], held: Mapping[int, int], needed: int
) -> dict[int, int]:
    """One device after the other, most slots gone first; of those with equally many, as few as possible."""
    counts: dict[int, int] = {}
    used = dict(held)
    for most in sorted({gone[device] for device in room}, reverse=True):
        equals = {device: free for device, free in room.items() if gone[device] == most}
        taken = fewest(nearness, equals, gone, used, min(needed, sum(equals.values())))
        needed -= sum(taken.values())
        for device, count in taken.items():
            counts[device] = count
            used[device] = used.get(device, 0) + count
        if not needed:
            break
    return counts


def fewest(
    nearness: Nearness, room: Mapping[int, int], gone: Mapping[int, int], held: Mapping[int, int], needed: int
) -> dict[int, int]:
    """From the devices in use already, then from as few others as possible.

    Of all sets of so few devices, the one whose slots are nearest to each other is best: sets are grown from several
    devices, and the best is taken. Of equal sets, the one with most slots gone wins.
    """
    begun = _Grown(nearness, room, held)
    for device in sorted(held.keys() & room.keys(), key=lambda each: (-room[each], each)):
        if needed:
            needed -= begun.take(device, needed)
    if not needed or not begun.compares:
        return _grow(begun, gone, needed).counts
    least, count = begun.bounds(needed)
    seeds = [device for device, free in begun.left.items() if free >= least] if count > 1 else []
    seeds = seeds[:: -(-len(seeds) // _SEEDS) or 1]
    tried = [_grow(begun.copy(), gone, needed), *(_grow(begun.copy(), gone, needed, seed) for seed in seeds)]
    return max(tried, key=lambda each: (each.weight(), sum(gone[device] for device in each.counts))).counts


def _grow(grown: "_Grown", gone: Mapping[int, int], needed: int, seed: int | None = None) -> "_Grown":
    """Add the nearest of the devices with which the set stays as small as possible, of equally near ones the largest.

    The last one is that with most slots gone, of these the tightest.
    """
    if seed is not None:
        needed -= grown.take(seed, needed)
    if not grown.compares:  # the nearest are all, and so the largest are taken until the last one
        for device in sorted(grown.left, key=lambda each: (-grown.left[each], each)):
            if grown.left[device] >= needed:
                break
            needed -= grown.take(device, needed)
    while needed:
        least, count = grown.bounds(needed)
        devices = [device for device, room in grown.left.items() if room >= least]
        if count == 1:
            device = max(devices, key=lambda each: (grown.pull[each], gone[each], -grown.left[each], -each))
        else:
            device = max(devices, key=lambda each: (grown.pull[each], grown.left[each], -each))
        needed -= grown.take(device, needed)
    return grown


class _Grown:
    """A set of devices that grows: what each gives, the room of those that are left, and how near these are to it."""

    def __init__(self, nearness: Nearness, room: Mapping[int, int], held: Mapping[int, int]) -> None:
        self.compares = nearness.differs and len(room) <= _MAX_COMPARED
        self.left = dict(sorted(room.items()))
        self.counts: dict[int, int] = {}
        self._nearness = nearness
        self._all = dict(held)
        self.pull: dict[int, int] = dict.fromkeys(room, 0)
        for device, count in held.items():
            self._attract(device, count)

    def copy(self) -> "_Grown":
        """A copy that grows on its own."""
        twin = object.__new__(_Grown)
        twin.compares, twin._nearness = self.compares, self._nearness
        twin.left, twin.counts, twin._all = dict(self.left), dict(self.counts), dict(self._all)
        twin.pull = dict(self.pull)
        return twin

    def take(self, device: int, needed: int) -> int:
        """Add a device with all of its room, or what is needed of it; how much that is."""
        count = min(self.left.pop(device), needed)
        self.counts[device] = count
        self._all[device] = self._all.get(device, 0) + count
        self._attract(device, count)
        return count

    def bounds(self, needed: int) -> tuple[int, int]:
        """The least room of a next device with which the set stays as small as possible, and how many are to come."""
        for count, room in enumerate(sorted(self.left.values(), reverse=True), 1):
            if room >= needed:
                return needed, count
            needed -= room
        raise AssertionError("less room than is needed")

    def _attract(self, device: int, count: int) -> None:
        if self.compares:
            for each in self.left:
                self.pull[each] += count * self._nearness.of(device, each)

    def weight(self) -> int:
        """How near all its slots are to each other; those of one device are nearer than any others."""
        if not self.compares:
            return 0
        members = list(self._all.items())
        total = sum(count * (count - 1) // 2 for _, count in members) * (self._nearness.most + 1)
        for place, (one, count) in enumerate(members):
            total += sum(count * number * self._nearness.of(one, other) for other, number in members[:place])
        return total
