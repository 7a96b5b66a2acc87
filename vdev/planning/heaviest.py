"""The heaviest set of a given size in a graph of pair weights: exact for up to 16 vertices, close to it beyond.

The arithmetic behind `preferred`. Weights are a symmetric matrix of non-negative integers with a zero diagonal. The
weight of a set is the sum over its pairs. Among equally heavy sets of up to 16 vertices, the set wins whose remaining
vertices are heaviest, so that a good set remains for the next request; then the set with the lowest indices.

The problem is NP-hard. For up to 16 vertices, all sets of the size are compared. For more, sets are grown greedily from
several vertices, and the heaviest set wins.
"""

from collections.abc import Sequence
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
    if len(vertices) > MAX_EXACT:
        return _close(weights, vertices, must, size)
    among = tuple(tuple(weights[one][other] for other in vertices) for one in vertices)
    return [vertices[each] for each in _best(among, tuple(map(vertices.index, must)), size)]


@lru_cache(maxsize=16)  # the kubelet asks for the same devices until one of them is allocated
def _best(weights: Weights, must: tuple[int, ...], size: int) -> list[int]:
    """The best set of all, from all vertices."""
    free = [each for each in range(len(weights)) if each not in must]
    to_must = [sum(row[each] for each in must) for row in weights]
    to_free = [sum(row[each] for each in free) for row in weights]

    def rank(chosen: tuple[int, ...]) -> tuple[int, int]:
        """The weight of the set with `must`, then that of the free vertices that remain; both without constants."""
        inside = sum(weights[one][other] for one, other in combinations(chosen, 2))
        return inside + sum(to_must[each] for each in chosen), inside - sum(to_free[each] for each in chosen)

    # Combinations come in lexicographic order, and the first of equals is the maximum.
    return sorted((*must, *max(combinations(free, size - len(must)), key=rank)))


def _close(weights: Weights, vertices: Sequence[int], must: Sequence[int], size: int) -> list[int]:
    free = sorted(set(vertices).difference(must))
    if len(must) == size:
        return sorted(must)
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
