"""A recorded load: rows of a CSV file, played one after the other and then again from the start.

The first row names the columns: `time` (seconds, rising), `gpu` (percent), and `memory` (percent), which may be left
out. A row holds until the time of the next. An empty cell goes on with the value above it.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

COLUMNS = ("time", "gpu", "memory")
_HUNDRED = 100.0
_MOST_SHOWN = 40


class ReplayError(ValueError):
    """A file that cannot be played: `line` counts from 1, `hint` says what to do."""

    def __init__(self, line: int, message: str, hint: str = "") -> None:
        super().__init__(f"line {line}: {message}")
        self.line, self.message, self.hint = line, message, hint


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """Levels in percent from each of `times` on (seconds, from 0), for `length` seconds, over and over.

    `summed` is what `gpu` comes to (percent seconds) up to each of the times.
    """

    times: Sequence[float]
    gpu: Sequence[float]
    memory: Sequence[float]
    length: float
    summed: Sequence[float] = field(repr=False)

    def level(self, values: Sequence[float], at: float) -> float:
        """The level of a column at an instant, in percent."""
        return values[bisect_right(self.times, at % self.length) - 1]

    def total(self, until: float) -> float:
        """What `gpu` comes to from 0 on, in percent seconds."""
        rounds, rest = divmod(until, self.length)
        place = bisect_right(self.times, rest) - 1
        within = self.summed[place] + self.gpu[place] * (rest - self.times[place])
        in_all = self.summed[-1] + self.gpu[-1] * (self.length - self.times[-1])
        return rounds * in_all + within


def series(lines: Iterable[str]) -> Series:
    """The series of the lines of a file, which are taken one by one. Raises ReplayError at the first that is wrong."""
    rows = iter(enumerate(lines, start=1))
    names = _header(next(rows, (1, ""))[1])
    start = 0.0  # the time of the first row
    times, gpu, memory, summed = (array("d") for _ in range(4))
    for number, line in rows:
        if not line.strip():
            continue
        cells = line.rstrip("\r\n").split(",")
        if len(cells) != len(names):
            message = f"{len(cells)} cells under {len(names)} columns"
            raise ReplayError(number, message, "give each row a cell for each column; an empty one keeps the value")
        row = dict(zip(names, cells, strict=True))
        at = _number(row["time"], number, "time", None)
        if times and at <= times[-1] + start:
            raise ReplayError(number, f"time {at:g} is not after {times[-1] + start:g}", "let time rise")
        if not times:
            start = at
        level = _number(row["gpu"], number, "gpu", gpu[-1] if gpu else None)
        filled = _number(row["memory"], number, "memory", memory[-1] if memory else None) if "memory" in row else 0.0
        here = at - start
        summed.append(summed[-1] + gpu[-1] * (here - times[-1]) if times else 0.0)
        times.append(here)
        gpu.append(level)
        memory.append(filled)
    if not times:
        raise ReplayError(1, "there are no rows below the names of the columns", "add rows such as 0,50,30")
    step = times[-1] - times[-2] if len(times) > 1 else 1.0
    return Series(times, gpu, memory, times[-1] + step, summed)


def _header(line: str) -> list[str]:
    names = [name.strip().strip('"').lower() for name in line.lstrip("\ufeff").rstrip("\r\n").split(",")]
    expected = f"the first line must name the columns: {', '.join(COLUMNS)}"
    for name in names:
        if name not in COLUMNS:
            shown = name[:_MOST_SHOWN] + "…" * (len(name) > _MOST_SHOWN)
            raise ReplayError(1, f"there is no column {shown!r}" if name else "a column has no name", expected)
        if names.count(name) > 1:
            raise ReplayError(1, f"the column {name!r} is there twice", expected)
    for name in COLUMNS[:2]:
        if name not in names:
            raise ReplayError(1, f"the column {name!r} is missing", expected)
    return names


def _number(cell: str, line: int, name: str, above: float | None) -> float:
    text = cell.strip().strip('"')
    if not text:
        if above is None:
            what = "a time" if name == "time" else f"a first value of {name}"
            raise ReplayError(line, f"there is no {name}", f"give {what}")
        return above
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ReplayError(line, f"{name} is {text[:_MOST_SHOWN]!r}, which is no number", "write numbers such as 12.5")
    if name != "time" and not 0 <= value <= _HUNDRED:
        raise ReplayError(line, f"{name} is {value:g}", "levels are in percent, 0 to 100")
    return value
