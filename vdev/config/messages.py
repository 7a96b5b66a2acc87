"""Pydantic's errors as messages for users: the place, the fact, the allowed values, and a suggestion."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ..errors import ConfigError
from ..model.device import grouped
from ..model.problem import KeyPath, Place, Problem, Severity, listed, show
from ..model.section import NO_VALUE, PROBLEM, Placed, Section, described, fields_of, unlisted
from .loader import Document
from .parser import problem_at

Form = TypeVar("Form", bound=Section)

_WORD = re.compile(r"'([^']*)'")
_ALIKE = 0.8  # how similar a key of another section must be to be suggested; 1 is equal


def explained(error: ValidationError, document: Document, root: type[Section]) -> Iterator[Problem]:
    return (_explained(detail, document, root) for detail in error.errors(include_url=False))


def _explained(detail: ErrorDetails, document: Document, root: type[Section]) -> Problem:
    path = detail["loc"]
    is_key = path[-1:] == ("[key]",) and detail["type"] != "extra_forbidden"  # pydantic's mark
    if is_key:
        path = path[:-1]
    known = document.known(path)
    got = f"got {described(detail['input'])}"
    match detail["type"]:
        case "extra_forbidden":
            return _unknown_key(document, path, root)
        case _ if detail["input"] is NO_VALUE:
            message, hint = f"{str(known[-1])!r} has no value", "remove the key or give it one"
        case "missing":
            model = _model_at(path[:-1], root)
            description = (fields_of(model)[str(path[-1])].description if model else "") or ""
            what = " ".join(description.split()).partition(". ")[0].rstrip(".")
            hint = f"needed: {what[:1].lower()}{what[1:]}" if what else ""
            return problem_at(document.value_place(known), known, f"{str(path[-1])!r} is missing", hint=hint)
        case kind if kind == PROBLEM:
            message, hint = detail["ctx"]["message"], detail["ctx"]["hint"]
        case "enum" | "literal_error":
            message, hint = unlisted(detail["input"], _WORD.findall(detail["ctx"]["expected"]))
        case "list_type" | "tuple_type":
            message = f"expected a list, {got}"
            hint = "write '- ' before each item" if isinstance(detail["input"], dict) else ""
        case "dict_type" | "model_type" | "model_attributes_type":
            model = _model_at(path, root)
            message = f"expected a mapping, {got}"
            hint = "write 'name: value' pairs, without '- '" if isinstance(detail["input"], list | tuple) else ""
            if model:
                hint = listed(fields_of(model), lead="its keys:", command="vdev schema")
        case _:
            message, hint = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, {got}", ""
    place = document.key_place(known) if is_key else document.value_place(known)
    return problem_at(place, known, message, hint=hint)


def _unknown_key(document: Document, path: KeyPath, root: type[Section]) -> Problem:
    """Return a problem for an unknown key, with the section that has it, if there is one."""
    key = str(path[-1])
    model = _model_at(path[:-1], root)
    allowed = list(fields_of(model)) if model else []
    hint = ""
    homes = _homes(root)
    from difflib import get_close_matches  # only needed for errors

    mistyped = get_close_matches(key, allowed, n=1, cutoff=_ALIKE)
    near = mistyped or get_close_matches(key, [*allowed, *get_close_matches(key, homes, n=1, cutoff=_ALIKE)], n=1)
    if key in homes and not mistyped:
        hint = f"it belongs under {' or '.join(homes[key])};"
    elif near:
        home = "" if near[0] in allowed else f" under {' or '.join(homes[near[0]])}"
        hint = f"did you mean {near[0]!r}{home}?"
    if allowed:
        hint = listed(allowed, hint, command="vdev schema")
    message, severity = f"unknown key {key!r}", Severity.ERROR
    if document.is_for_nvidia(path):
        message, severity = f"{message} is ignored, as by NVIDIA's plugin", Severity.WARNING
    return problem_at(document.key_place(path), document.known(path), message, hint=hint, severity=severity)


@cache
def _sections(root: type[Section]) -> dict[KeyPath, type[Section]]:
    """Return the model of each mapping by its path, in which 0 stands for any index and for any user-defined key."""
    found: dict[KeyPath, type[Section]] = {}

    def visit(annotation: Any, path: KeyPath) -> None:
        if isinstance(annotation, type) and issubclass(annotation, Section):
            found.setdefault(path, annotation)
            for key, known in fields_of(annotation).items():
                visit(known.annotation, (*path, key))
        elif (origin := get_origin(annotation)) in (list, tuple, dict):
            visit(get_args(annotation)[1 if origin is dict else 0], (*path, 0))
        else:  # a union or an Annotated
            for part in get_args(annotation):
                visit(part, path)

    visit(root, ())
    return found


def _model_at(path: KeyPath, root: type[Section]) -> type[Section] | None:
    """Return the model of the mapping at this path, or None if its keys are user-defined."""
    sections = _sections(root)
    at: KeyPath = ()
    for step in path:
        at = (*at, step if at in sections else 0)
    return sections.get(at)


@cache
def _homes(root: type[Section]) -> dict[str, list[str]]:
    """Return every key below the top of the file, with the sections that have it."""
    below = ((key, path) for path, model in _sections(root).items() if path for key in fields_of(model))
    return {key: [show(path).replace("[0]", "[]") for path in paths] for key, paths in grouped(below).items()}


ITEM_LISTS: Sequence[KeyPath] = (
    ("devices",),
    ("sharing", "timeSlicing", "resources"),
    ("sharing", "mps", "resources"),
    ("resources", "gpus"),
    ("resources", "mig"),
    ("faults", "rules"),
)
"""Lists from which items with errors are left out, and the other items are checked."""


Below = str | int | KeyPath
"""The path from a value to a value below it: a key, an index, or several; () is the value itself."""


@dataclass(slots=True)
class ProblemReport:
    """The problems of a document's values, in the order in which they are found.

    `path` leads to the value that is checked. Problems are reported for this value and for values below it.
    """

    document: Document
    problems: list[Problem] = field(default_factory=list)
    in_files: list[tuple[KeyPath, Problem]] = field(default_factory=list)  # errors of files, with the item that uses it
    path: KeyPath = ()

    def at(self, *steps: str | int) -> "ProblemReport":
        """Return the same report for checks of a value below."""
        return replace(self, path=(*self.path, *steps))

    def of(self, item: Placed) -> "ProblemReport":
        """Return the same report for checks of an item of a list."""
        return replace(self, path=item.where.path)

    def has(self, below: Below) -> bool:
        return self._full(below) in self.document.values

    def place(self, below: Below) -> Place:
        return self.document.value_place(self._full(below))

    def is_for_nvidia(self, below: Below) -> bool:
        return self.document.is_for_nvidia(self._full(below))

    def error(self, below: Below, message: str, hint: str = "") -> None:
        known = self.document.known(self._full(below))
        self.problems.append(problem_at(self.document.value_place(known), known, message, hint=hint))

    def unless(self, below: Below, message: str, hint: str, instead: str, *, lenient: bool) -> None:
        """Add an error at a value; with `lenient`, as for NVIDIA's plugin, a warning that names vdev's fallback."""
        if lenient:
            self.warning(below, message, instead)
        else:
            self.error(below, message, hint)

    def key_error(self, below: Below, message: str, hint: str = "") -> None:
        self._at_key(below, message, hint, Severity.ERROR)

    def warning(self, below: Below, message: str, hint: str = "") -> None:
        self._at_key(below, message, hint, Severity.WARNING)

    def errors_in_file(self, below: Below, bad: ConfigError) -> None:
        """Add the errors of a file that a value names, at their places in that file. Others are errors of the value."""
        for problem in bad.problems:
            if problem.where:
                self.in_files.append((scope_of(self._full(below)), problem))
            else:
                self.error(below, problem.message, problem.hint)

    def exactly_one(self, values: Mapping[str, object], none: str) -> str:
        """Return the only key whose value is neither None nor False.

        Otherwise adds an error and returns ""; `none` is the message if no key is given.
        """
        given = [key for key, value in values.items() if value is not None and value is not False]
        if len(given) == 1:
            return given[0]
        message = f"{' and '.join(given)} exclude each other" if given else none
        self.error((), message, f"give exactly one of {', '.join(values)}")
        return ""

    def keys_fit(self, section: Section, kind: str, owners: Mapping[str, Sequence[str]]) -> None:
        """Add an error at each given key of the section that is only for other kinds than `kind`."""
        for key, kinds in owners.items():
            if key in section.given and kind not in kinds:
                *others, last = kinds
                named = f"{', '.join(others)} and {last}" if others else last
                self.key_error(key, f"{key} is for {named} only, and this is {kind}")

    def one_at_most(self, given: Sequence[str], hint: str = "use one of them") -> None:
        """Add an error at the second of the given keys, which exclude each other."""
        if len(given) > 1:
            self.key_error(given[1], f"{given[0]} and {given[1]} exclude each other", hint)

    def broken(self) -> frozenset[KeyPath]:
        """The paths of the items and sections that have errors."""
        own = frozenset(scope_of(each.path) for each in self.problems if each.is_error)
        return own | {scope for scope, _ in self.in_files}

    def _full(self, below: Below) -> KeyPath:
        return (*self.path, *(below if isinstance(below, tuple) else (below,)))

    def _at_key(self, below: Below, message: str, hint: str, severity: Severity) -> None:
        known = self.document.known(self._full(below))
        self.problems.append(problem_at(self.document.key_place(known), known, message, hint=hint, severity=severity))


def checked(document: Document, model: type[Form]) -> tuple[ProblemReport, Form]:
    """Validate a document that is not a configuration. Raises ConfigError with every problem."""
    report = ProblemReport(document, [*document.problems])
    try:
        found = model.model_validate(document.root)
    except ValidationError as error:
        report.problems += explained(error, document, model)
    else:
        if not report.problems:
            return report, found
    raise ConfigError(tuple(report.problems))


def scope_of(path: KeyPath) -> KeyPath:
    """Return the path of the part that an error at `path` makes unusable: an item of a list, or a whole section."""
    for items in ITEM_LISTS:
        if path[: len(items)] == items and len(path) > len(items):
            return path[: len(items) + 1]
    return path[:1]


def stands_alone(scope: KeyPath) -> bool:
    """Whether the item can be left out without a change to the rest. Fault rules are applied together or not at all."""
    return scope[:-1] in ITEM_LISTS and scope[0] != "faults"
