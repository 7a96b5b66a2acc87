"""A document to validated models: what is broken is reported and left out, so that the rest can be checked as well.

An item of `devices`, of a sharing block or of `resources` can be left out alone; any other error concerns everything.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from ..core.model.problem import Severity
from .document.loader import Document
from .document.parser import Tree
from .document.position import Finding, Path, finding, show
from .messages import empty_values, findings
from .schema.config_file import ConfigFile

_ITEMS = (
    ("devices",),
    ("sharing", "timeSlicing", "resources"),
    ("sharing", "mps", "resources"),
    ("resources", "gpus"),
    ("resources", "mig"),
    ("faults", "rules"),
)  # lists whose items are judged alone


@dataclass(slots=True)
class Report:
    """Collects findings about a document's values."""

    document: Document
    findings: list[Finding] = field(default_factory=list)

    def error(self, path: Path, message: str, hint: str = "") -> None:
        """Something that stops what it concerns, at the value of `path`."""
        known = self.document.known(path)
        self.findings.append(finding(self.document.value_place(known), known, message, hint=hint))

    def key_error(self, path: Path, message: str, hint: str = "") -> None:
        """As `error`, at the key."""
        known = self.document.known(path)
        self.findings.append(finding(self.document.key_place(known), known, message, hint=hint))

    def warning(self, path: Path, message: str, hint: str = "") -> None:
        """Something worth knowing, at the key of `path`."""
        known, severity = self.document.known(path), Severity.WARNING
        self.findings.append(finding(self.document.key_place(known), known, message, hint=hint, severity=severity))

    def where(self, path: Path) -> str:
        """`file:line:column: path`, for problems that are found later."""
        return f"{self.document.value_place(path)}: {show(path)}"

    def broken(self) -> frozenset[Path]:
        """The paths of the items, or sections, that have errors."""
        return frozenset(unit_of(each.path) for each in self.findings if each.is_error)


@dataclass(frozen=True, slots=True)
class Reading:
    """The models of what is valid in itself, and where each item stood in its list."""

    file: ConfigFile
    places: dict[Path, list[int]]

    def items(self, path: Path, models: Sequence[Any]) -> Iterator[tuple[Path, Any]]:
        """The items of a list that were kept, each with its path in the document."""
        numbers = self.places.get(path)
        for index, model in enumerate(models):
            yield (*path, index if numbers is None else numbers[index]), model


def read(document: Document, report: Report) -> Reading:
    """The models of a document; every error goes to the report."""
    report.findings += document.problems
    tree: Any = dict(document.root)
    places: dict[Path, list[int]] = {}
    empty = {each.path: each for each in empty_values(document)}
    report.findings += empty.values()
    broken = {unit_of(path) for path in empty}
    first = True
    while True:
        try:
            reading = Reading(ConfigFile.model_validate(tree), places)
        except ValidationError as error:
            if first:
                report.findings += (each for each in findings(error, document) if each.path not in empty)
            broken |= {unit_of(detail["loc"]) for detail in error.errors(include_url=False)}
        else:
            if not broken:
                return reading
        tree = _without(tree, broken, places)
        first, broken = False, set()


def unit_of(path: Path) -> Path:
    """What is left out for an error at that path: an item of a list, or a whole section."""
    for items in _ITEMS:
        if path[: len(items)] == items and len(path) > len(items):
            return path[: len(items) + 1]
    return path[:1]


def stands_alone(unit: Path) -> bool:
    """Whether the unit can be left out without changing what the rest means: timelines are applied whole or not."""
    return unit[:-1] in _ITEMS and unit[0] != "faults"


def _without(tree: dict[str, Tree], broken: set[Path], places: dict[Path, list[int]]) -> dict[str, Tree]:
    """The tree without the broken units; `places` learns the numbers of the items that stay."""
    result = {key: value for key, value in tree.items() if (key,) not in broken}
    for path in _ITEMS:
        gone = {unit[-1] for unit in broken if unit[:-1] == path}
        if gone and path[0] in result:
            items = _at(result, path)
            kept = [index for index in range(len(items)) if index not in gone]
            before = places.get(path, range(len(items)))
            places[path] = [before[index] for index in kept]
            result = _replaced(result, path, [items[index] for index in kept])
    return result


def _at(tree: Any, path: Path) -> list[Tree]:
    for step in path:
        tree = tree[step]
    return list(tree)


def _replaced(tree: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    return {**tree, path[0]: _replaced(tree[path[0]], path[1:], value)}
