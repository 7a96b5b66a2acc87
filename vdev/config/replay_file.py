"""The file of a replay, read row by row."""

from collections.abc import Iterator
from pathlib import Path

from ..core.model.place import Place
from ..core.telemetry.replay import ReplayError, Series, series
from .document.position import refusal

_LONGEST = 4096  # characters of a row
_MOST = 5_000_000  # rows, which take 160 MB


def replay(path: Path) -> Series:
    """The series that a file has. Raises ConfigError with the place of the first thing that is wrong."""
    place = Place(str(path))
    try:
        if not path.is_file():  # a pipe would keep its reader waiting
            raise refusal(place, "is not there, or is not a plain file")
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return series(_rows(iter(lambda: file.readline(_LONGEST + 1), "")))
    except OSError as error:
        raise refusal(place, f"cannot be read: {error.strerror}") from error
    except ReplayError as wrong:
        raise refusal(Place(str(path), wrong.line, 1), wrong.message, wrong.hint) from wrong


def _rows(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if len(line) > _LONGEST:
            raise ReplayError(number, f"the row has more than {_LONGEST} characters", "is it a CSV file?")
        if number > _MOST:
            raise ReplayError(number, f"there are more than {_MOST} rows", "leave some out; a row holds until the next")
        yield line
