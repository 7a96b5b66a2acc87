"""Problems of the configuration's text, each at its place, and their order."""

from collections.abc import Iterable

from ...core.model.place import KeyPath, Place, show
from ...core.model.problem import Problem, Severity
from ...errors import ConfigError

_MAX_MESSAGE = 600  # characters; a message may quote a value of any length


def problem_at(
    place: Place, path: KeyPath, message: str, *, hint: str = "", severity: Severity = Severity.ERROR
) -> Problem:
    """A problem at a place; its `where` reads `file:line:column: path`."""
    if len(message) > _MAX_MESSAGE:
        message = f"{message[: _MAX_MESSAGE // 2]} … {message[-_MAX_MESSAGE // 2 :]}"
    where = ": ".join(part for part in (str(place), show(path)) if part)
    return Problem(severity, where, message, hint, place, path)


def refusal(place: Place, message: str, hint: str = "", *, path: KeyPath = ()) -> ConfigError:
    """The exception for what makes a whole file unreadable."""
    return ConfigError((problem_at(place, path, message, hint=hint),))


def in_order(problems: Iterable[Problem], files: Iterable[str]) -> tuple[Problem, ...]:
    """Each problem once: file by file as given, from top to bottom; then those without a place in a file."""
    rank = {file: number for number, file in reversed(list(enumerate(files)))}

    def position(problem: Problem) -> tuple[int, int, int]:
        place = problem.place
        return (rank.get(place.file, -1), place.line, place.column) if place else (len(rank), 0, 0)

    return tuple(sorted(dict.fromkeys(problems), key=position))
