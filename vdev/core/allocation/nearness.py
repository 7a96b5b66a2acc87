"""How near devices are to each other: by their links where there are any, and by NUMA nodes.

Devices are numbers here, in the order in which they are preferred where nothing else decides.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import cached_property

from .heaviest import Weights, heaviest

_MAX_MATRIX = 1024  # devices whose pairs are weighed one by one; the links of more do not count


class Nearness:
    """The links and NUMA nodes of some devices. Immutable after it is made."""

    def __init__(
        self, ids: Sequence[str], numa: Sequence[tuple[int, ...]], links: Mapping[tuple[str, str], int]
    ) -> None:
        """`links` scores pairs of ids, in either order; pairs that are absent, or of others, score 0."""
        number = {each: position for position, each in enumerate(ids)}
        scores = {
            (number[one], number[other]): score
            for (one, other), score in links.items()
            if score > 0 and one in number and other in number and one != other
        }
        self._weights: Weights | None = None
        self._groups = _numbered(numa)
        if scores and len(ids) <= _MAX_MATRIX:
            self._weights = _weights(numa, scores)

    @cached_property
    def most(self) -> int:
        """The nearness of the nearest pair."""
        return max(map(max, self._weights)) if self._weights else 1

    @cached_property
    def differs(self) -> bool:
        """Whether some pairs are nearer than others."""
        if self._weights is None:
            return len(set(self._groups)) > 1
        return len({each for number, row in enumerate(self._weights) for each in row[:number]}) > 1

    def of(self, one: int, other: int) -> int:
        """How near two devices are; larger is nearer."""
        if self._weights is not None:
            return self._weights[one][other]
        return int(self._groups[one] == self._groups[other])

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


def _from_fewest(group_of: Sequence[int], free: Sequence[int], near: Collection[int], needed: int) -> list[int]:
    """From as few groups as possible: first those in use, then the largest, last the smallest that holds the rest."""
    groups: dict[int, list[int]] = defaultdict(list)
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


def _numbered(keys: Sequence[Hashable]) -> list[int]:
    """Equal keys get equal numbers, counted from 0 in order of appearance."""
    known: dict[Hashable, int] = {}
    return [known.setdefault(key, len(known)) for key in keys]


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
