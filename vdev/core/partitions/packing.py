"""Intervals on a row of slices: the exact search behind `placement.place`, free of profiles and names.

Sets of slices are bit masks. The search is depth first in the order given, so the first solution is the preferred one.
Dead ends are remembered by what is occupied, and the grids of real hardware take a few dozen steps.
"""

from collections.abc import Sequence

MAX_STEPS = 200_000  # about a third of a second; no real hardware needs more


class TooManyStepsError(Exception):
    """The search gave up after MAX_STEPS steps: neither found nor proved impossible."""


def mask_of(size: int, start: int) -> int:
    return ((1 << size) - 1) << start


def pack(slices: int, items: Sequence[tuple[int, tuple[int, ...]]], occupied: int = 0) -> list[int] | None:
    """A start for each item, given as (size, starts in order of preference), or None when they do not all fit.

    Earlier items choose first; equal items should stand next to each other. `occupied` masks slices that are taken
    already. Raises TooManyStepsError.
    """
    needed = [0]
    for size, _ in reversed(items):
        needed.append(needed[-1] + size)
    needed.reverse()
    dead: set[tuple[int, int, int]] = set()
    steps = 0

    def fit(item: int, occupied: int, first: int) -> list[int] | None:
        """Starts for the items from `item` on; equal items take ever later choices, so that no set is tried twice."""
        nonlocal steps
        if item == len(items):
            return []
        state = (item, occupied, first)
        if state in dead or slices - occupied.bit_count() < needed[item]:
            return None
        size, choices = items[item]
        alike = item + 1 < len(items) and items[item + 1] == items[item]
        for choice, start in enumerate(choices[first:], first):
            mask = mask_of(size, start)
            if occupied & mask:
                continue
            steps += 1
            if steps > MAX_STEPS:
                raise TooManyStepsError
            rest = fit(item + 1, occupied | mask, choice + 1 if alike else 0)
            if rest is not None:
                return [start, *rest]
        dead.add(state)
        return None

    return fit(0, occupied, 0)
