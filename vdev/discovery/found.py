"""The result of a scan: devices with their indices, problems, and why each candidate matched or did not."""

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..aio.program import shown
from ..model.device import RawDevice
from ..model.entry import Entry
from ..model.problem import Problem, Severity

MAX_SHOWN = 5  # of equal problems; the rest are counted


@dataclass(frozen=True, slots=True)
class Check:
    """One condition on one candidate, with the actual value, and whether it is met."""

    condition: str
    actual: str
    ok: bool

    def __str__(self) -> str:
        """`ok: vendor = 046d` or `no: product = 0825, found 082d`; always one line, even if a value has line breaks."""
        if self.ok:
            return f"ok: {self.condition}"
        return f"no: {self.condition}" + (f", found {shown(self.actual)}" if self.actual else "")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An object of the host that a source examined. It is a device, or part of one, if every check is ok."""

    path: str
    checks: tuple[Check, ...] = ()

    @property
    def matched(self) -> bool:
        return all(check.ok for check in self.checks)

    @property
    def why(self) -> tuple[str, ...]:
        """Each condition in words, and whether it is met."""
        return tuple(str(check) for check in self.checks)


@dataclass(frozen=True, kw_only=True)
class Found:
    devices: tuple[RawDevice, ...] = ()
    problems: tuple[Problem, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    watch: frozenset[str] = frozenset()
    """The directories of the host whose changes can change the result."""

    @cached_property
    def by_id(self) -> Mapping[str, RawDevice]:
        return {device.id: device for device in self.devices}


class Findings:
    """Collects the results of a scan. Of many equal problems, a few are shown and the rest are counted."""

    def __init__(self, entry: Entry) -> None:
        self.candidates: list[Candidate] = []
        self.watch: set[str] = set()
        self._where = entry.where or entry.name
        self._found: dict[tuple[Severity, str, str], list[str]] = {}

    def error(self, subject: str, message: str, hint: str = "") -> None:
        """Add the error `<subject> <message>; <hint>`: the subject cannot be used."""
        self._found.setdefault((Severity.ERROR, message, hint), []).append(subject)

    def warn(self, subject: str, message: str, hint: str = "") -> None:
        """Add the warning `<subject> <message>; <hint>`."""
        self._found.setdefault((Severity.WARNING, message, hint), []).append(subject)

    def with_devices(self, devices: Iterable[RawDevice]) -> Found:
        """The result with these devices. Problems are in the order in which the first of their kind was found."""
        devices = tuple(devices)  # which may find more problems and directories
        problems = []
        for (severity, message, hint), subjects in self._found.items():
            shown = subjects[:MAX_SHOWN]
            problems += [Problem(severity, self._where, f"{subject} {message}", hint) for subject in shown]
            if len(subjects) > len(shown):
                rest = f"{len(subjects) - len(shown)} more: each {message}"
                problems.append(Problem(severity, self._where, rest, hint))
        return Found(
            devices=devices,
            problems=tuple(problems),
            candidates=tuple(self.candidates),
            watch=frozenset(self.watch),
        )


class Numbering:
    """The index of each device id of one entry, and which devices have a serial number that is not unique.

    A device that is gone keeps its index, because it may come back and a pod may still hold it, until `retain` is
    called without it.
    """

    def __init__(self) -> None:
        self._indices: dict[str, int] = {}
        self._owners: dict[str, str] = {}  # the place of the device that is named after each serial number
        self._twins: set[tuple[str, str]] = set()  # devices that are named after their place

    def assign(self, ids: Iterable[str]) -> list[int]:
        """An index for each id, in the given order: its previous index, or otherwise the lowest free one."""
        taken = set(self._indices.values())
        free = itertools.filterfalse(taken.__contains__, itertools.count())
        indices = []
        for each in ids:
            if each not in self._indices:
                self._indices[each] = next(free)
            indices.append(self._indices[each])
        return indices

    def retain(self, ids: Collection[str]) -> None:
        """Forget all ids but these."""
        self._indices = {each: index for each, index in self._indices.items() if each in ids}

    def identities(self, devices: Sequence[tuple[str, str]]) -> list[str]:
        """An identity for each device, given as serial number (may be empty) and place: one of the two.

        The first device with a serial number is named after it, no matter in which port. A second device with the same
        serial number is named after its place, and so are both if they were found together. It keeps that name when
        the other device is removed, because its id must not change.
        """
        counts = Counter(serial for serial, place in devices if (serial, place) not in self._twins)
        identities = []
        for serial, place in devices:
            is_twin = (serial, place) in self._twins
            if serial and not is_twin and (counts[serial] == 1 or self._owners.get(serial) == place):
                self._owners[serial] = place
                identities.append(serial)
            else:
                self._twins.add((serial, place))
                identities.append(place)
        return identities
