"""The heaviest set of a given size in a graph of pair weights: exact for up to 16 vertices, close to it beyond.

The arithmetic behind `preferred`. Weights are a symmetric matrix of non-negative integers with a zero diagonal. The
weight of a set is the sum over its pairs. Among equally heavy sets of up to 16 vertices, the set wins whose remaining
vertices are heaviest, so that a good set remains for the next request; then the set with the lowest indices.

The problem is NP-hard. For up to 16 vertices, all sets of the size are sorted. For more, sets are grown greedily from
several vertices, and the heaviest set wins.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import combinations

Weights = tuple[tuple[int, ...], ...]

MAX_EXACT = 16
_SEEDS = 16  # vertices that sets are grown from


def heaviest(weights: Weights, free: Sequence[int], must: Sequence[int], size: int) -> list[int]:
    """The vertices of the chosen set, ascending: all of `must` and enough of `free`.

    `free` and `must` are disjoint, and together hold at least `size` vertices, `must` at most `size`.
    """
    vertices = sorted((*free, *must))
    if len(vertices) == size:
        return vertices
    if len(must) == size:
        return sorted(must)
    if len(vertices) > MAX_EXACT:
        return _close(weights, vertices, must, size)
    among = tuple(tuple(weights[one][other] for other in vertices) for one in vertices)
    required = _mask(len(vertices), map(vertices.index, must))
    best = next(each for each in _sets(among, size) if each & required == required)
    return [vertex for number, vertex in enumerate(vertices) if best & _mask(len(vertices), [number])]


# --- exact ------------------------------------------------------------------------------------------------------------


def _mask(count: int, numbers: Iterable[int]) -> int:
    """A set of vertices as bits. Vertex 0 is the highest: of two sets of one size, lower indices are a larger mask."""
    return sum(1 << (count - 1 - number) for number in numbers)


@lru_cache(maxsize=4)  # the same devices are offered again and again while nothing is allocated
def _sets(weights: Weights, size: int) -> list[int]:
    """All sets of a size, the best first."""
    weight = _subset_weights(weights)
    everything = len(weight) - 1
    sets = (each for each in range(everything + 1) if each.bit_count() == size)
    return sorted(sets, key=lambda each: (weight[each], weight[everything ^ each], each), reverse=True)


def _subset_weights(weights: Weights) -> list[int]:
    """The weight of every set, by its mask.

    By doubling: the sets with a new vertex weigh what they weighed without it, plus its weights to their members.
    """
    total = [0]
    for vertex, row in enumerate(reversed(weights)):  # the last vertex is the lowest bit
        to_members = [0]
        for other in range(vertex):
            weight = row[len(weights) - 1 - other]
            to_members += [each + weight for each in to_members]
        total += [old + new for old, new in zip(total, to_members, strict=True)]
    return total


# --- close ------------------------------------------------------------------------------------------------------------


def _close(weights: Weights, vertices: Sequence[int], must: Sequence[int], size: int) -> list[int]:
    free = sorted(set(vertices).difference(must))
    seeds = free[:: -(-len(free) // _SEEDS)]
    sets = [sorted(_grown(weights, free, [*must, seed], size)) for seed in seeds]
    return max(sets, key=lambda chosen: sum(weights[one][other] for one, other in combinations(chosen, 2)))


def _grown(weights: Weights, free: Sequence[int], begun: Sequence[int], size: int) -> list[int]:
    """Add the vertex that adds the most weight, until the set has its size; among equals, the first."""
    chosen = list(begun)
    gain = {each: sum(weights[each][other] for other in chosen) for each in free if each not in chosen}
    while len(chosen) < size:
        best = max(gain, key=gain.__getitem__)
        chosen.append(best)
        del gain[best]
        for each in gain:
            gain[each] += weights[best][each]
    return chosen
