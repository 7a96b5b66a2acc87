"""`validate` turns a document into models. What is invalid is reported and left out, so that the rest is checked too.

`numa_nodes` and `device_links` check lists of virtual devices against their number.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from pydantic import ValidationError

from ..model.problem import KeyPath
from .config_file import ConfigFile
from .loader import Document
from .messages import ITEM_LISTS, ProblemReport, empty_values, explained, unit_of
from .parser import Tree


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


MAX_LINKED = 256  # devices with fast links; the largest known domain, an NVL72 rack, has 72
FAST_LINK = 100  # one NVLink on NVIDIA's scale, in which devices on one PCIe switch have 50

Links = Mapping[tuple[int, int], int]
"""Scores of pairs of indices, both ways."""


def numa_nodes(nodes: Sequence[int], count: int, path: KeyPath, report: ProblemReport) -> tuple[int, ...]:
    """One NUMA node for all devices, or one per device. A `count` of 0 fits any number of devices."""
    if len(nodes) not in (1, count):
        message = f"{len(nodes)} NUMA nodes for {count or 'any number of'} devices"
        report.error(path, message, "give one for all devices, or one per device")
    return tuple(nodes)


def device_links(
    rows: list[list[int]], count: int, path: KeyPath, report: ProblemReport, *, score: int = FAST_LINK
) -> Links:
    """The links of `count` devices. `count` lists of `count` numbers are scores, anything else groups of indices.

    A pair of a group gets `score`. No list of groups is taken for scores: each of its groups would hold every device.
    """
    if not rows:
        return {}
    if count > MAX_LINKED:
        report.error(path, f"there are {count} devices", f"links are for at most {MAX_LINKED}")
        return {}
    if len(rows) == count and all(len(row) == count for row in rows):
        return _scores(rows, path, report)
    links: dict[tuple[int, int], int] = {}
    for number, group in enumerate(rows):
        members: set[int] = set()
        for position, index in enumerate(group):
            here = (*path, number, position)
            if index >= count:
                expected = f"expected 0 to {count - 1}" if count else "links need a count"
                report.error(here, f"there is no device {index}", expected)
            elif index in members:
                report.error(here, f"device {index} is in this group twice", "name each device once")
            else:
                members.add(index)
        if len(group) < 2:  # a link has two ends
            report.error((*path, number), "a group of linked devices needs at least two indices")
        links |= dict.fromkeys(permutations(members, 2), score)
    return links


def _scores(rows: list[list[int]], path: KeyPath, report: ProblemReport) -> Links:
    hint = "as many lists of as many numbers as there are devices are scores of pairs, not groups of indices"
    for one, row in enumerate(rows):
        if row[one]:
            report.error((*path, one, one), f"device {one} is linked to itself; the diagonal must be 0", hint)
        for other in range(one):
            if row[other] != rows[other][one]:
                back = rows[other][one]
                message = f"the score of {one} with {other} is {row[other]}, and of {other} with {one} it is {back}"
                report.error((*path, one, other), message, hint)
    scores = {(one, other): score for one, row in enumerate(rows) for other, score in enumerate(row)}
    return {(one, other): score for (one, other), score in scores.items() if score and one != other}
