"""Where two long sequences of the same objects differ: what is before and after that need not be looked at."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import is_
from typing import NamedTuple, TypeVar

_Item = TypeVar("_Item")

_PIECE = 1000  # that Python's own loops go over in one go; they hold the interpreter meanwhile


class Span(NamedTuple):
    """The items from `start` to `old_end` were replaced with those from `start` to `new_end`."""

    start: int
    old_end: int
    new_end: int


def changed(old: Sequence[object], new: Sequence[object]) -> Span:
    """The shortest span outside of which both have the very same objects."""
    most = min(len(old), len(new))
    start = 0
    while start < most:
        end = min(start + _PIECE, most)
        same = _same(old[start:end], new[start:end])
        start += same
        if start < end:
            break
    tail = 0
    while tail < most - start:
        piece = min(_PIECE, most - start - tail)
        before, now = old[len(old) - tail - piece : len(old) - tail], new[len(new) - tail - piece : len(new) - tail]
        same = _same(before[::-1], now[::-1])
        tail += same
        if same < piece:
            break
    return Span(start, len(old) - tail, len(new) - tail)


def _same(some: Sequence[object], others: Sequence[object]) -> int:
    """How many at the beginning are the same."""
    if all(map(is_, some, others)):
        return len(some)
    return next(number for number, pair in enumerate(zip(some, others, strict=True)) if pair[0] is not pair[1])


def pieces(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """The items, some at a time."""
    return (items[at : at + _PIECE] for at in range(0, len(items), _PIECE))


def batches(items: Iterable[_Item], most: int = _PIECE) -> Iterator[list[_Item]]:
    """The items of what has no places, such as a mapping, some at a time."""
    rest = iter(items)
    while some := list(islice(rest, most)):
        yield some
