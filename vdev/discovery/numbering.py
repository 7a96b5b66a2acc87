"""What a scan remembers of earlier ones, so that devices keep their index and name while others come and go."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence


class Numbering:
    """For one entry: the index of each device id ever seen, and which device has a name that is not unique.

    An id keeps its index while it is away, because it may come back and a pod may still hold it; `retain` ends that.
    """

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._owners: dict[str, str] = {}
        self._twins: set[tuple[str, str]] = set()

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
        if not all(map(ids.__contains__, self._indices)):
            self._indices = {each: index for each, index in self._indices.items() if each in ids}

    def tell_apart(self, devices: Sequence[tuple[str, str]]) -> list[str]:
        """For each device's name (a serial number; may be empty) and place: the name if it is enough, else the place.

        The first device with a name keeps it, wherever it is plugged in; a twin that joins later is named by its place,
        and so are twins that were there together from the start. A twin stays a twin when the other leaves, because an
        id must not change then.
        """
        strangers = Counter(name for name, place in devices if (name, place) not in self._twins)
        told = []
        for name, place in devices:
            known_twin = (name, place) in self._twins
            if name and not known_twin and (strangers[name] == 1 or self._owners.get(name) == place):
                self._owners[name] = place
                told.append(name)
            else:
                self._twins.add((name, place))
                told.append(place)
        return told
