"""What all sources give: devices with their numbers, problems, and why each candidate matched or did not."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..aio.program import shown
from ..model.device import RawDevice
from ..model.entry import Entry
from ..model.problem import Problem, Severity

MAX_SHOWN = 5  # of equal problems; the rest are counted


def is_usable(name: str) -> bool:
    """Whether a file's name can stand in a message and in a log line: valid UTF-8 without control characters."""
    return name.isprintable()


@dataclass(frozen=True, slots=True)
class Check:
    """One condition on one candidate: what was asked, what was there, and whether it fits."""

    condition: str
    actual: str
    ok: bool

    def __str__(self) -> str:
        """`ok: vendor = 046d` or `no: product = 0825, found 082d`, on one line whatever the device says."""
        if self.ok:
            return f"ok: {self.condition}"
        return f"no: {self.condition}" + (f", found {shown(self.actual)}" if self.actual else "")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something on the host that the source looked at; it became a device, or part of one, when every check is ok."""

    path: str
    checks: tuple[Check, ...] = ()

    @property
    def matched(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def why(self) -> tuple[str, ...]:
        """Each condition in words, met or not."""
        return tuple(str(check) for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One scan's result. `watch` holds the host directories whose changes can change the result."""

    devices: tuple[RawDevice, ...] = ()
    problems: tuple[Problem, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    watch: frozenset[str] = frozenset()

    @cached_property
    def by_id(self) -> Mapping[str, RawDevice]:
        return {device.id: device for device in self.devices}


class Problems:
    """Collects a scan's problems; of many equal ones a few are shown and the rest are counted."""

    def __init__(self, entry: Entry) -> None:
        self._where = entry.where or entry.name
        self._found: dict[tuple[Severity, str, str], list[str]] = {}

    def error(self, subject: str, message: str, hint: str = "") -> None:
        """`<subject> <message>; <hint>`: something that stops the subject from being used."""
        self._found.setdefault((Severity.ERROR, message, hint), []).append(subject)

    def warn(self, subject: str, message: str, hint: str = "") -> None:
        """`<subject> <message>; <hint>`: something worth knowing."""
        self._found.setdefault((Severity.WARNING, message, hint), []).append(subject)

    def all(self) -> tuple[Problem, ...]:
        """Every problem, in the order in which its kind was first met."""
        problems = []
        for (severity, message, hint), subjects in self._found.items():
            shown = subjects[:MAX_SHOWN]
            problems += [Problem.at(severity, self._where, f"{subject} {message}", hint) for subject in shown]
            if len(subjects) > len(shown):
                rest = f"{len(subjects) - len(shown)} more: each {message}"
                problems.append(Problem.at(severity, self._where, rest, hint))
        return tuple(problems)


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
