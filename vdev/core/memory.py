"""What was made from the very same values before is not made again.

Values are frozen, so what was made from certain objects is good for as long as these objects are the arguments. Ten
thousand devices of which one changed are thus arranged by making anew what that one is part of. A `Memory` changes no
result; with a new one everything is made.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from operator import is_
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Memory:
    """Of one computation that is done again and again: in each `round`, ask `recall` for each of its parts.

    `made` counts by kind what had to be made in the last round. A part that a round does not ask for is forgotten.
    """

    def __init__(self) -> None:
        self.made: Counter[str] = Counter()
        self._before: dict[Hashable, tuple[tuple[object, ...], Any]] = {}
        self._now: dict[Hashable, tuple[tuple[object, ...], Any]] = {}

    @contextmanager
    def round(self) -> Iterator[None]:
        """While the context lasts, the computation is done once."""
        self._before, self._now = self._now, {}
        self.made.clear()
        try:
            yield
        finally:
            self._before = {}

    def recall(self, kind: str, key: Hashable, of: tuple[object, ...], make: Callable[[Any], _Result]) -> _Result:
        """The part that `make` makes of these objects, or made of the very same ones in the round before.

        `make` is given the part's last result, None when there is none, so that it can use pieces of it again.
        """
        known = self._before.get((kind, key))
        if known is not None and len(known[0]) == len(of) and all(map(is_, known[0], of)):
            self._now[kind, key] = known
            result: _Result = known[1]
            return result
        self.made[kind] += 1
        result = make(None if known is None else known[1])
        self._now[kind, key] = (of, result)
        return result
