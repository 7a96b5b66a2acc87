"""Many names in one: `gpu-{0..999}`, `rack{01..20}-gpu{0..7}`.

Each pair of braces is a range of whole numbers, both ends included. A first number that is written with leading zeros
fixes the width: `{000..999}` is 000, 001 and so on. Several ranges are combined, the last one running fastest.
"""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_RANGE = re.compile(r"\{(\d{1,9})\.\.(\d{1,9})\}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_BRACES = re.compile(r"[{}]")


class NameRangeError(ValueError):
    """A text that is no range of names; says why."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of one range, with at least so many digits."""

    first: int
    last: int
    width: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __iter__(self) -> Iterator[str]:
        return (str(number).zfill(self.width) for number in range(self.first, self.last + 1))


@dataclass(frozen=True, slots=True)
class NameRange:
    """The names: `literals` and, between them, `ranges`."""

    source: str
    literals: tuple[str, ...]
    ranges: tuple[Numbers, ...]

    def __len__(self) -> int:
        return math.prod(map(len, self.ranges))

    def __iter__(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Every name, with the number of each range in it."""
        for numbers in itertools.product(*self.ranges):
            pairs = zip(self.literals, (*numbers, ""), strict=True)
            yield "".join(itertools.chain.from_iterable(pairs)), numbers


def filled(text: str, name: str, numbers: Sequence[str]) -> str:
    """The text with `{name}` and the numbers of the name, `{1}` for its first range, in it.

    Raises NameRangeError for a number that the name has not.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] == "name":
            return name
        if not found[1].isdecimal() or not 0 < int(found[1]) <= len(numbers):
            known = ", ".join(["{name}", *(f"{{{place}}}" for place in range(1, len(numbers) + 1))])
            raise NameRangeError(f"{text!r} names {found[0]}; there are {known}")
        return numbers[int(found[1]) - 1]

    return _PLACEHOLDER.sub(value, text)


def parse_names(source: str) -> NameRange:
    """The names that a text stands for. Raises NameRangeError."""
    pieces = _RANGE.split(source)
    literals, ends = tuple(pieces[::3]), list(zip(pieces[1::3], pieces[2::3], strict=True))
    if any(_BRACES.search(each) for each in literals):
        raise NameRangeError(f"{source!r} has braces that are no range; a range is written as in gpu-{{0..99}}")
    ranges = []
    for first, last in ends:
        if int(first) > int(last):
            raise NameRangeError(f"the range {{{first}..{last}}} ends before it begins")
        ranges.append(Numbers(int(first), int(last), len(first) if first.startswith("0") else 1))
    return NameRange(source, literals, tuple(ranges))
