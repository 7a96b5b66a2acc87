"""A document to validated models. What is broken is reported and left out, so that the rest is checked as well."""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from ..core.model.place import KeyPath
from .document.loader import Document
from .document.parser import Tree
from .messages import empty_values, explained
from .report import ITEM_LISTS, ProblemReport, unit_of
from .schema.config_file import ConfigFile


@dataclass(frozen=True, slots=True)
class Validated:
    """The models of what is valid in itself, and where each item stood in its list."""

    file: ConfigFile
    places: dict[KeyPath, list[int]]

    def items(self, path: KeyPath, models: Sequence[Any]) -> Iterator[tuple[KeyPath, Any]]:
        """The items of a list that were kept, each with its path in the document."""
        numbers = self.places.get(path)
        for index, model in enumerate(models):
            yield (*path, index if numbers is None else numbers[index]), model


def validate(document: Document, report: ProblemReport) -> Validated:
    """The models of a document; every error goes to the report."""
    report.problems += document.problems
    tree: Any = dict(document.root)
    places: dict[KeyPath, list[int]] = {}
    empty = {each.path: each for each in empty_values(document)}
    report.problems += empty.values()
    broken = {unit_of(path) for path in empty}
    first = True
    while True:
        try:
            validated = Validated(ConfigFile.model_validate(tree), places)
        except ValidationError as error:
            if ignored := _unknown_to_nvidia(error, document):
                # These are warnings. What else is wrong is found without them.
                report.problems += (each for each in explained(error, document, ConfigFile) if not each.is_error)
                tree = functools.reduce(_without_key, ignored, tree)
                continue
            if first:
                report.problems += (each for each in explained(error, document, ConfigFile) if each.path not in empty)
            broken |= {unit_of(detail["loc"]) for detail in error.errors(include_url=False)}
        else:
            if not broken:
                return validated
        tree = _without(tree, broken, places)
        first, broken = False, set()


def _without(tree: dict[str, Tree], broken: set[KeyPath], places: dict[KeyPath, list[int]]) -> dict[str, Tree]:
    """The tree without the broken units; `places` learns the numbers of the items that stay."""
    result = {key: value for key, value in tree.items() if (key,) not in broken}
    for path in ITEM_LISTS:
        gone = {unit[-1] for unit in broken if unit[:-1] == path}
        if gone and path[0] in result:
            items: Any = result
            for step in path:
                items = items[step]
            kept = [index for index in range(len(items)) if index not in gone]
            before = places.get(path, range(len(items)))
            places[path] = [before[index] for index in kept]
            result = _replaced(result, path, [items[index] for index in kept])
    return result


def _unknown_to_nvidia(error: ValidationError, document: Document) -> list[KeyPath]:
    """The unknown keys in files for NVIDIA's plugin."""
    unknown = [each["loc"] for each in error.errors(include_url=False) if each["type"] == "extra_forbidden"]
    return [path for path in unknown if document.is_for_nvidia(path)]


def _without_key(tree: Any, path: KeyPath) -> Any:
    if len(path) == 1:
        return {key: value for key, value in tree.items() if key != path[0]}
    return _replaced(tree, path[:1], _without_key(tree[path[0]], path[1:]))


def _replaced(tree: Any, path: KeyPath, value: Any) -> Any:
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = _replaced(tree[path[0]], path[1:], value)
    return copy
