"""Problems of a configuration, their places in files, and helpers for the text of messages."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

KeyPath = tuple[str | int, ...]
"""The path from the top of a file to a value: keys and list indices."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file. Lines and columns count from 1; both are 0 for the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """`file:line:column`, or the file alone."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def show(path: KeyPath) -> str:
    """Return a path as text: `devices[0].glob[1].permissions`, `devices[0].partitions["1-2"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


class Where(str):
    """The text `file:line:column: path` of a value, with both parts as attributes, for problems that are found later.

    `for_nvidia` is True for a file for NVIDIA's plugin, which ignores unknown values.
    """

    place: Place = Place("")
    path: KeyPath = ()
    for_nvidia: bool = False

    @classmethod
    def of(cls, place: Place, path: KeyPath = (), *, for_nvidia: bool = False) -> "Where":
        where = cls(f"{place}: {show(path)}" if path else place)
        where.place, where.path, where.for_nvidia = place, path, for_nvidia
        return where


@dataclass(frozen=True, slots=True)
class Override:
    """A value from the command line or the environment that replaces a value in the file."""

    value: str | int | bool | tuple[str, ...]
    source: str  # `flag --mig-strategy` or `env MIG_STRATEGY`


class Severity(StrEnum):
    """ERROR: that part of the configuration is unusable. WARNING: it is usable. NOTICE: for information only."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"


@dataclass(frozen=True, slots=True)
class Problem:
    """An error, a warning or a notice about a configuration."""

    severity: Severity
    where: str  # a `Where`, or the entry's name for a problem on the node
    message: str
    hint: str = ""

    @property
    def place(self) -> Place | None:
        return self.where.place if self.where and isinstance(self.where, Where) else None

    @property
    def path(self) -> KeyPath:
        return self.where.path if isinstance(self.where, Where) else ()

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    def __str__(self) -> str:
        """Return `where: message; hint`, with the severity if it is not an error."""
        kind = "" if self.is_error else f"{self.severity}: "
        where = f"{self.where}: " if self.where else ""
        return f"{where}{kind}{self.message}" + (f"; {self.hint}" if self.hint else "")


def error(where: str, message: str, hint: str = "") -> Problem:
    return Problem(Severity.ERROR, where, message, hint)


def warning(where: str, message: str, hint: str = "") -> Problem:
    return Problem(Severity.WARNING, where, message, hint)


def notice(where: str, message: str, hint: str = "") -> Problem:
    return Problem(Severity.NOTICE, where, message, hint)


def errors(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(problem for problem in problems if problem.is_error)


_MAX_SUGGESTIONS = 8  # of words with the same first part


def did_you_mean(word: str, allowed: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the nearest allowed word, or the empty string if none is near.

    If several words begin with it, such as the models of a device family, all of them are suggested.
    """
    known = list(allowed)
    lower = word.lower()
    family = sorted(each for each in known if lower == each.lower() or _is_first_part(lower, each.lower()))
    if family and len(family) <= _MAX_SUGGESTIONS:
        return f"did you mean {'one of ' if len(family) > 1 else ''}{', '.join(map(repr, family))}?"
    import difflib  # only needed for errors

    spelled = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6) or [
        spelled[each] for each in difflib.get_close_matches(word.lower(), spelled, n=1, cutoff=0.6)
    ]
    return f"did you mean {near[0]!r}?" if near else ""


MAX_LISTED = 10  # words in a message


def listed(words: Iterable[str], near: str = "", *, lead: str = "allowed:", command: str = "") -> str:
    """Return `did you mean 'x'? allowed: a, b, c`; `near` is the suggestion or empty.

    If there are more than ten words, the first ten are listed, with the command that shows all.
    """
    known = list(words)
    text = f"{lead} {', '.join(known[:MAX_LISTED])}"
    if len(known) > MAX_LISTED:
        text += f" and {len(known) - MAX_LISTED} more" + f"; see {command}" * bool(command)
    return f"{near} {text}" if near else text


def counted(number: int, noun: str) -> str:
    """Return `1 device`, or `2 devices`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def either(words: Sequence[str]) -> str:
    """Return `a, b or c`."""
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _is_first_part(word: str, whole: str) -> bool:
    """Whether `whole` starts with `word`, and `word` ends at the end of a word or number in `whole`."""
    last, following = word[-1:], whole[len(word) : len(word) + 1]
    is_inside = (last.isalpha() and following.isalpha()) or (last.isdigit() and following.isdigit())
    return bool(last and following) and not is_inside and whole.startswith(word)
