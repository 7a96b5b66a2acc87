"""Positions in the configuration's files, and problems that know theirs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...core.model.problem import Problem, Severity
from ...errors import ConfigError

Path = tuple[str | int, ...]
"""The way from the top of the file to a value: keys and list indices."""

_MAX_MESSAGE = 600  # characters; a message may quote a value of any length
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file. Lines and columns count from 1; both are 0 when the whole file is meant."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """`file:line:column`, or the file alone."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Finding(Problem):
    """A problem of the configuration's text, with its place and the path of the value it concerns."""

    place: Place = Place("")
    path: Path = ()


def finding(place: Place, path: Path, message: str, *, hint: str = "", severity: Severity = Severity.ERROR) -> Finding:
    """A problem at a place; its `where` reads `file:line:column: path`."""
    if len(message) > _MAX_MESSAGE:
        message = f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"
    where = ": ".join(part for part in (str(place), show(path)) if part)
    return Finding(severity, where, message, hint, place, path)


def refusal(place: Place, message: str, hint: str = "") -> ConfigError:
    """The exception for what makes a whole file unreadable."""
    return ConfigError((finding(place, (), message, hint=hint),))


def show(path: Path) -> str:
    """A path as people write it: `devices[0].glob[1].permissions`, `devices[0].partitions["1-2"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def problem_document(problem: Problem) -> dict[str, str | int | None]:
    """A problem as JSON; `file`, `line`, `column` and `path` are null for one without a place in a file."""
    place, path = (problem.place, show(problem.path)) if isinstance(problem, Finding) else (None, None)
    return {
        "severity": problem.severity.value,
        "where": problem.where,
        "file": place.file if place else None,
        "line": (place.line or None) if place else None,
        "column": (place.column or None) if place else None,
        "path": path,
        "message": problem.message,
        "hint": problem.hint,
    }


def in_order(problems: Iterable[Problem], files: Iterable[str]) -> tuple[Problem, ...]:
    """The problems as a reader meets them: file by file as given, from top to bottom; each once."""
    rank = {file: number for number, file in reversed(list(enumerate(files)))}

    def position(problem: Problem) -> tuple[int, int, int]:
        if not isinstance(problem, Finding):
            return (len(rank), 0, 0)
        return (rank.get(problem.place.file, -1), problem.place.line, problem.place.column)

    return tuple(sorted(dict.fromkeys(problems), key=position))
