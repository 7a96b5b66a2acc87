"""Collects what is wrong with a document, and tells which part of it an error concerns.

An item of `devices`, of a sharing block or of `resources` can be left out alone; any other error concerns its section.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core.model.place import KeyPath, show
from ..core.model.problem import Problem, Severity
from ..errors import ConfigError
from .document.loader import Document
from .document.position import problem_at

ITEM_LISTS: tuple[KeyPath, ...] = (
    ("devices",),
    ("sharing", "timeSlicing", "resources"),
    ("sharing", "mps", "resources"),
    ("resources", "gpus"),
    ("resources", "mig"),
    ("faults", "rules"),
)
"""Lists whose items are judged one by one."""


@dataclass(slots=True)
class ProblemReport:
    """The problems of a document's values, in the order in which they are found."""

    document: Document
    problems: list[Problem] = field(default_factory=list)
    elsewhere: list[Problem] = field(default_factory=list)  # in files that the document takes
    _broken_elsewhere: set[KeyPath] = field(default_factory=set)

    def error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """An error at the value of `path`."""
        known = self.document.known(path)
        self.problems.append(problem_at(self.document.value_place(known), known, message, hint=hint))

    def unless_for_nvidia(self, path: KeyPath, message: str, hint: str, instead: str) -> None:
        """An error at the value of `path`; a warning in a file for NVIDIA's plugin, with what vdev does instead."""
        if self.document.is_for_nvidia(path):
            self.warning(path, message, instead)
        else:
            self.error(path, message, hint)

    def key_error(self, path: KeyPath, message: str, hint: str = "") -> None:
        """An error at the key of `path`."""
        self._at_key(path, message, hint, Severity.ERROR)

    def warning(self, path: KeyPath, message: str, hint: str = "") -> None:
        """A warning at the key of `path`."""
        self._at_key(path, message, hint, Severity.WARNING)

    def errors_elsewhere(self, path: KeyPath, bad: ConfigError) -> None:
        """Errors of a file that the value at `path` names; they are at their places in that file."""
        found = (problem for problem in bad.problems if isinstance(problem, Problem))
        self.elsewhere += (problem for problem in found if problem not in self.elsewhere)
        self._broken_elsewhere.add(unit_of(path))

    def exactly_one(self, path: KeyPath, values: Mapping[str, object], none: str) -> str:
        """The only key of `values` that is given: neither None nor False. An error and "" if it is not exactly one.

        `none` is the message where none is given.
        """
        given = [key for key, value in values.items() if value is not None and value is not False]
        if len(given) == 1:
            return given[0]
        message = f"{' and '.join(given)} exclude each other" if given else none
        self.error(path, message, f"give exactly one of {', '.join(values)}")
        return ""

    def one_at_most(self, path: KeyPath, given: Sequence[str], hint: str = "use one of them") -> None:
        """An error at the second of the keys that are given, which exclude each other."""
        if len(given) > 1:
            self.key_error((*path, given[1]), f"{given[0]} and {given[1]} exclude each other", hint)

    def where(self, path: KeyPath) -> str:
        """`file:line:column: path`, for problems that are found later."""
        return f"{self.document.value_place(path)}: {show(path)}"

    def broken(self) -> frozenset[KeyPath]:
        """The paths of the items and sections that have errors."""
        return frozenset(unit_of(each.path) for each in self.problems if each.is_error) | self._broken_elsewhere

    def _at_key(self, path: KeyPath, message: str, hint: str, severity: Severity) -> None:
        known = self.document.known(path)
        self.problems.append(problem_at(self.document.key_place(known), known, message, hint=hint, severity=severity))


def unit_of(path: KeyPath) -> KeyPath:
    """What is left out for an error at that path: an item of a list, or a whole section."""
    for items in ITEM_LISTS:
        if path[: len(items)] == items and len(path) > len(items):
            return path[: len(items) + 1]
    return path[:1]


def stands_alone(unit: KeyPath) -> bool:
    """Whether the rest means the same without the unit. Fault rules are applied all or none."""
    return unit[:-1] in ITEM_LISTS and unit[0] != "faults"
