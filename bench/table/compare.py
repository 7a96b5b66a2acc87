"""Two runs, row by row: better, the same or worse, with the noise of both considered.

What is compared is the ratio to the floor where both runs have one, because it travels between machines and hours;
where not, the median in the row's unit. Of a hundred samples and more the 99th percentile is compared as well. Both are
taken again a few hundred times from rounds drawn at random (with repetition, seeded): the interval in which 99 of 100
such changes lie is what the rounds allow to say. A row is worse when the whole interval lies above what two runs of
one program differ by anyway (`_TOLERANCE`), better when it lies below; otherwise it is the same, for all that was seen.
"""

import math
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .row import Rounds

_DRAWS = 400
_OUTSIDE = 0.005  # of the draws, at each end
_TAIL_COUNT = 100  # samples from which a 99th percentile is not just the worst
_TOLERANCE = {"x floor": 0.05, "p99": 0.3, "MiB": 0.02, "threads": 0.0, "us": 0.1, "ms": 0.1, "s": 0.1}
_ONE_SECONDS = 0.5  # for a single number of seconds of CPU, which the kernel counts in hundredths
_MACHINE = ("cpu", "cores", "python", "grpcio", "protobuf")


class Verdict(Enum):
    """What is said of a row."""

    BETTER = "better"
    SAME = "same"
    WORSE = "worse"


@dataclass(frozen=True, slots=True)
class Change:
    """One number of a row in both runs; `low` and `high` are the interval of the ratio of now to before."""

    group: str
    what: str
    unit: str
    before: float
    now: float
    low: float
    high: float
    verdict: Verdict

    @property
    def ratio(self) -> float:
        """Now over before; 1 where both are zero, as the CPU of an idle process may be."""
        return _ratio(self.now, self.before)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All changes, the rows that one run alone has, and what makes both hard to compare."""

    changes: Sequence[Change]
    alone: Sequence[str]
    doubts: Sequence[str]

    @property
    def worse(self) -> list[Change]:
        """What is worse."""
        return [each for each in self.changes if each.verdict is Verdict.WORSE]


Row = dict[str, Any]


def compare(before: dict[str, Any], now: dict[str, Any]) -> Comparison:
    """The documents of two runs (`--json`). KeyError or TypeError where one is not such a document."""
    old, new = ({(row["group"], row["what"], row["unit"]): row for row in run["rows"]} for run in (before, now))
    changes = [change for key in new if key in old for change in _changes(old[key], new[key])]
    gone, fresh = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    alone = [f"{when}: {key[0]}, {key[1]}" for when, keys in (("before", gone), ("now", fresh)) for key in keys]
    return Comparison(changes, alone, _doubts(before, now))


def _changes(old: Row, new: Row) -> list[Change]:
    """The middle, and the tail where there is one."""
    both = old["rounds"], new["rounds"]
    floors = old["floor_rounds"], new["floor_rounds"]
    unit, over = ("x floor", floors) if all(floors) else (new["unit"], ((), ()))
    changes = [_change(new, unit, *map(_Middle, both, over))]
    if min(sum(map(len, each)) for each in both) >= _TAIL_COUNT:
        tail = "p99, x floor" if all(floors) else f"p99 {new['unit']}"
        changes.append(_change(new, tail, *map(_Tail, both, over)))
    return changes


class _Number:
    """What a row comes to if only these of its rounds, by index, had been measured."""

    def __init__(self, rounds: Rounds) -> None:
        self.count = len(rounds)

    def of(self, drawn: Sequence[int]) -> float:
        raise NotImplementedError


class _Middle(_Number):
    """The median of the rounds' medians, or of their ratios to the floor's."""

    def __init__(self, rounds: Rounds, floor: Rounds) -> None:
        super().__init__(rounds)
        self._medians = [statistics.median(one) for one in rounds]
        if floor:
            self._medians = [mine / statistics.median(one) for mine, one in zip(self._medians, floor, strict=True)]

    def of(self, drawn: Sequence[int]) -> float:
        return statistics.median(self._medians[each] for each in drawn)


class _Tail(_Number):
    """The 99th percentile of all samples of the rounds, or its ratio to the floor's."""

    def __init__(self, rounds: Rounds, floor: Rounds) -> None:
        super().__init__(rounds)
        self._lengths = [len(one) for one in rounds]
        self._falling = sorted(((each, number) for number, one in enumerate(rounds) for each in one), reverse=True)
        self._floor = _Tail(floor, ()) if floor else None

    def of(self, drawn: Sequence[int]) -> float:
        times = Counter(drawn)
        above = math.floor(sum(self._lengths[each] for each in drawn) * 0.01)
        for sample, number in self._falling:
            above -= times[number]
            if above < 0:
                return sample / self._floor.of(drawn) if self._floor else sample
        raise ValueError("no samples")


def _change(row: Row, unit: str, old: _Number, new: _Number) -> Change:
    before, now = (each.of(range(each.count)) for each in (old, new))
    chance = random.Random(0)  # the same verdict each time

    def draw(side: _Number) -> float:
        return side.of(chance.choices(range(side.count), k=side.count))

    single = old.count == new.count == 1
    draws = sorted(_ratio(draw(new), draw(old)) for _ in range(1 if single else _DRAWS))
    outside = int(len(draws) * _OUTSIDE)
    low, high = draws[outside], draws[-1 - outside]
    tolerance = _tolerance(row["unit"], unit, single=single)
    verdict = Verdict.SAME
    if low > 1 + tolerance:
        verdict = Verdict.WORSE
    elif high < 1 / (1 + tolerance):
        verdict = Verdict.BETTER
    return Change(row["group"], row["what"], unit, before, now, low, high, verdict)


def _tolerance(unit: str, compared: str, *, single: bool) -> float:
    """By how much two runs of one program differ."""
    if single:
        return _ONE_SECONDS if unit == "s" else _TOLERANCE[unit]
    return _TOLERANCE["p99" if compared.startswith("p99") else compared]


def _ratio(now: float, before: float) -> float:
    if before > 0:
        return now / before
    return 1.0 if now == before else float("inf")


def _doubts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Why a difference may not be the program's."""
    one, other = before["machine"], now["machine"]
    doubts = [f"{key} was {one.get(key)}, is {other.get(key)}" for key in _MACHINE if one.get(key) != other.get(key)]
    for when, run in (("before", before), ("now", now)):
        load, cores = run["machine"]["load"], run["machine"]["cores"]
        if run["quick"]:
            doubts.append(f"the run {when} was a quick one")
        if load > cores:
            doubts.append(f"others used the machine {when} (load {load:g} on {cores} cores)")
    return doubts
