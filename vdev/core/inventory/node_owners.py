"""Each node of the host belongs to one device: of several that find it, the first one of the first entry in the file.

A device consists of certain nodes (`RawDevice.owns`) and may hand out others with them (`RawDevice.uses`). Two devices
are the same when one hands out what the other consists of. That both hand out a third node, such as the control node of
a sound card, is no conflict. For entries that are `shared`, discovery fills in neither.

The result depends on the entries and on what is there now, never on the order in which things were found.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ..model.device import RawDevice
from ..model.problem import Problem, warning
from ..spec import EntrySpec


@dataclass(frozen=True, slots=True)
class EntryDevices:
    """The devices that each entry gets, the ids of those that it found but does not get, and why."""

    devices: Mapping[str, Sequence[RawDevice]]
    left_out: frozenset[str] = frozenset()
    problems: tuple[Problem, ...] = ()


def same(one: RawDevice, other: RawDevice) -> bool:
    """Whether two devices are the same: one hands out what the other consists of."""
    return _meet(one.owns, other.owns) or _meet(one.owns, other.uses) or _meet(one.uses, other.owns)


def _meet(some: Sequence[str], others: Sequence[str]) -> bool:
    return bool(some and others) and not set(some).isdisjoint(others)


def settle(entries: Sequence[EntrySpec], found: Mapping[str, Sequence[RawDevice]]) -> EntryDevices:
    """Which of the devices that were found each entry gets; `entries` are in the order of the file."""
    owners: dict[str, RawDevice] = {}
    users: dict[str, RawDevice] = {}
    devices: dict[str, Sequence[RawDevice]] = {}
    twins: dict[tuple[str, str], list[tuple[RawDevice, RawDevice]]] = defaultdict(list)
    for entry in entries:
        had = []
        for raw in found.get(entry.name, ()):
            others = (owners.get(key) or users.get(key) for key in raw.owns)
            others_used = (owners.get(key) for key in raw.uses)
            other = next(filter(None, chain(others, others_used)), None)
            if other is not None:
                twins[entry.name, other.entry].append((raw, other))
                continue
            had.append(raw)
            for key in raw.owns:
                owners.setdefault(key, raw)
            for key in raw.uses:
                users.setdefault(key, raw)
        devices[entry.name] = had
    where = {entry.name: entry.where for entry in entries}
    return EntryDevices(
        devices=devices,
        left_out=frozenset(raw.id for pairs in twins.values() for raw, _ in pairs),
        problems=tuple(_problem(where[loser], pairs) for (loser, _), pairs in twins.items()),
    )


def _problem(where: str, pairs: Sequence[tuple[RawDevice, RawDevice]]) -> Problem:
    raw, other = pairs[0]
    more = f" (and {len(pairs) - 1} more like it)" if len(pairs) > 1 else ""
    subject = f"{_shown(raw)} is not advertised{more}: it is the same device as {_shown(other)}"
    shared = f"or set shared: true in {raw.entry!r} if pods may have it from both"
    if raw.entry == other.entry:
        return warning(where, f"{subject}, which this entry found first", f"exclude one of the two, {shared}")
    return warning(
        where,
        f"{subject} of the entry {other.entry!r}, which comes first",
        f"exclude it from one of the two entries, {shared}",
    )


def _shown(raw: RawDevice) -> str:
    return f"{raw.id} ({raw.paths[0]})" if raw.paths else raw.id
