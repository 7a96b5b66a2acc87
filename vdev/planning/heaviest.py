"""The heaviest set of a given size in a graph of pair weights: exact for up to 16 vertices, close to it beyond.

Pure arithmetic behind `preferred`, free of devices. Weights are a symmetric matrix of non-negative integers with a zero
diagonal; a set weighs the sum over its pairs. Among equally heavy sets the one whose leftovers (the other vertices that
were free to choose) are heaviest wins, so that a good set remains for the next request; then the one with the lowest
indices. Both answers depend on the arguments alone.

Exact: the weights of all 2^n subsets are tabulated once per matrix, and every request walks the subsets of its size
from the heaviest down, until one fits. The problem is NP-hard, so beyond 16 vertices sets are grown greedily from
several seeds and improved by swaps.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from operator import add, itemgetter, sub

Weights = tuple[tuple[int, ...], ...]

MAX_EXACT = 16
_SEEDS = 12  # greedy starts, half of them the strongest vertices, half spread evenly
_MAX_SWAPS = 64  # per start; a local optimum is usually a handful away


def heaviest(weights: Weights, free: Sequence[int], must: Sequence[int], size: int) -> list[int]:
    """The vertices of the chosen set, ascending: all of `must` and enough of `free`.

    `free` and `must` are disjoint, and together hold at least `size` vertices, `must` at most `size`.
    """
    if len(must) == size:
        return sorted(must)
    if len(must) + len(free) == size:
        return sorted((*must, *free))
    if len(weights) <= MAX_EXACT:
        return _exact(weights, free, must, size)
    vertices = sorted((*free, *must))
    if len(vertices) > MAX_EXACT:
        return _close(weights, sorted(free), must, size)
    place = {vertex: number for number, vertex in enumerate(vertices)}
    part = tuple(tuple(weights[a][b] for b in vertices) for a in vertices)
    return [vertices[number] for number in _exact(part, [place[v] for v in free], [place[v] for v in must], size)]


# --- exact ------------------------------------------------------------------------------------------------------------
# A set is a mask in which vertex 0 is the highest bit: of two sets of one size, the one with lower indices is larger.


class _Table:
    """The weight of every subset of one matrix, and the subsets of each size in order of preference."""

    def __init__(self, weights: Weights) -> None:
        self.bits = [1 << bit for bit in reversed(range(len(weights)))]
        self.weight = _subset_weights(weights)
        self._by_size: dict[int, list[int]] = {}

    def of_size(self, size: int) -> list[int]:
        """All sets of that size, heaviest first, among equals those with lower indices first."""
        if size not in self._by_size:
            sets = [mask for mask in range(len(self.weight) - 1, -1, -1) if mask.bit_count() == size]
            sets.sort(key=self.weight.__getitem__, reverse=True)  # stable, also in reverse
            self._by_size[size] = sets
        return self._by_size[size]

    def mask(self, vertices: Sequence[int]) -> int:
        return sum(self.bits[vertex] for vertex in vertices)

    def vertices(self, mask: int) -> list[int]:
        return [vertex for vertex, bit in enumerate(self.bits) if mask & bit]


def _subset_weights(weights: Weights) -> list[int]:
    """By doubling: the sets with a new vertex weigh what they weighed without it, plus its weights to their members."""
    total = [0]
    for vertex, row in enumerate(reversed(weights)):  # the last vertex is the lowest bit
        to_members = [0]
        for other in range(vertex):
            weight = row[len(weights) - 1 - other]
            to_members += [each + weight for each in to_members]
        total += [old + new for old, new in zip(total, to_members, strict=True)]
    return total


_table = lru_cache(maxsize=8)(_Table)  # of a matrix, not of an inventory: reloads that keep the links keep it


def _exact(weights: Weights, free: Sequence[int], must: Sequence[int], size: int) -> list[int]:
    table = _table(weights)
    weight = table.weight
    required = table.mask(must)
    usable = table.mask(free) | required
    banned = ~usable
    # The heaviest leftovers that any choice can have: once they are reached, no later set of equal weight is better.
    most = next(weight[each] for each in table.of_size(usable.bit_count() - size) if not each & (banned | required))
    for _, equals in groupby(table.of_size(size), key=weight.__getitem__):
        best, best_left = -1, -1
        for each in equals:
            if not each & banned and each & required == required and weight[usable ^ each] > best_left:
                best, best_left = each, weight[usable ^ each]
                if best_left == most:
                    break
        if best >= 0:
            return table.vertices(best)
    raise AssertionError("fewer vertices than the size")


# --- close ------------------------------------------------------------------------------------------------------------


def _close(weights: Weights, free: Sequence[int], must: Sequence[int], size: int) -> list[int]:
    of_usable = itemgetter(*free, *must)
    pull = {vertex: sum(of_usable(weights[vertex])) for vertex in free}  # to all that could be chosen

    def preference(chosen: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        """Heavier first, then heavier leftovers (at equal weight: less pull of the chosen ones), then lower indices."""
        inside = sum(weights[a][b] for position, a in enumerate(chosen) for b in chosen[:position])
        return (-inside, sum(pull.get(vertex, 0) for vertex in chosen), chosen)

    strongest = sorted(free, key=lambda vertex: (-pull[vertex], vertex))
    step = max(1, 2 * len(free) // _SEEDS)
    seeds = dict.fromkeys((*strongest[: _SEEDS // 2], *free[::step]))
    search = _Search(weights, must, sorted(free, key=lambda vertex: (pull[vertex], vertex)), pull)
    grown = {search.grown(seed, size) for seed in (seeds if size - len(must) > 1 else free)}
    found = min((search.improved(each) for each in grown), key=preference)
    return list(found)


class _Search:
    """Sets that hold `must`, grown from seeds and improved by swaps.

    `order` has the vertices that are free, two at least, as equals are taken: those with the least `pull`, then the
    lowest. So the first with the most gain is the one, and `max` and `index` find it.
    """

    def __init__(self, weights: Weights, must: Sequence[int], order: Sequence[int], pull: Mapping[int, int]) -> None:
        self._weights = weights
        self._must = tuple(must)
        self._order = order
        self._of_order = itemgetter(*order)
        self._place = {vertex: place for place, vertex in enumerate(order)}
        self._pull = pull
        self._taken = -1 - len(weights) * max(map(max, weights))  # the gain of a vertex that is none to choose any more
        self._rows: dict[int, tuple[int, ...]] = {}

    def _row(self, vertex: int) -> tuple[int, ...]:
        """The weights of the vertex to those that are free, in their order."""
        if vertex not in self._rows:
            self._rows[vertex] = self._of_order(self._weights[vertex])
        return self._rows[vertex]

    def _gains(self, chosen: Iterable[int]) -> list[int]:
        """How much weight each vertex that is free would bring; below zero for those that are chosen."""
        gain = [*map(sum, zip(*map(self._row, chosen), strict=True))]
        for vertex in self._place.keys() & set(chosen):
            gain[self._place[vertex]] = self._taken
        return gain

    def grown(self, seed: int, size: int) -> frozenset[int]:
        """The seed, what every set must hold, and the vertex with the most weight to those chosen, again and again."""
        chosen = [*self._must, seed]
        gain = self._gains(chosen)
        while len(chosen) < size:
            place = gain.index(max(gain))
            chosen.append(self._order[place])
            gain = [*map(add, gain, self._row(self._order[place]))]
            gain[place] = self._taken
        return frozenset(chosen)

    def improved(self, chosen: frozenset[int]) -> tuple[int, ...]:
        """The set, ascending, after swaps of one chosen vertex for a better one while that helps."""
        inside = set(chosen)
        for _ in range(_MAX_SWAPS):
            swap = self._best_swap(inside)
            if swap is None:
                break
            inside ^= set(swap)
        return tuple(sorted(inside))

    def _best_swap(self, inside: set[int]) -> tuple[int, int] | None:
        gain = self._gains(inside)
        most = max(gain)
        best, swap = (0, 0), None
        for old in sorted(inside.difference(self._must)):
            lost = sum(self._weights[old][each] for each in inside)
            if most - lost < best[0]:
                continue  # whatever came in its place
            left = [*map(sub, gain, self._row(old))]
            better = max(left)
            new = self._order[left.index(better)]
            found = better - lost, self._pull[old] - self._pull[new]
            if found > best:
                best, swap = found, (old, new)
        return swap
