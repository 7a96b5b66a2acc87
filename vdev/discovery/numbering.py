"""The memory that a scan needs of earlier ones, so that devices keep their index and name while others come and go."""

from collections.abc import Collection, Iterable


class Numbering:
    """Of one entry: the index of each device id ever seen, and the serial numbers that turned out not to be unique.

    An id keeps its index while it is away, because it may come back and a pod may still hold it; `retain` ends that.
    """

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._ambiguous: set[str] = set()

    def assign(self, ids: Iterable[str]) -> list[int]:
        """An index for each id: its own when it was seen before, else the lowest that is free, in the order given."""
        ids = list(ids)
        taken = set(self._indices.values())
        free = 0
        for each in ids:
            if each not in self._indices:
                while free in taken:
                    free += 1
                self._indices[each] = free
                taken.add(free)
        return [self._indices[each] for each in ids]

    def retain(self, ids: Collection[str]) -> None:
        """Forget all ids but these."""
        self._indices = {each: index for each, index in self._indices.items() if each in ids}

    def mark_ambiguous(self, names: Iterable[str]) -> None:
        """Remember that these do not tell devices apart."""
        self._ambiguous.update(names)

    def is_ambiguous(self, name: str) -> bool:
        """Whether two devices of that name were ever seen at once."""
        return name in self._ambiguous
