"""`validate` turns a document into the model. What is invalid is reported and left out, and the rest is checked too."""

from typing import Any

from pydantic import ValidationError

from ..model.problem import KeyPath
from ..model.section import NO_VALUE, FileMapping
from ..model.spec import Spec
from .loader import Document
from .messages import ITEM_LISTS, ProblemReport, explained, scope_of

_STRICT = frozenset({"devices", "faults", "node"})
"""Sections in which each key needs a value. NVIDIA's sections are read as NVIDIA's plugin reads them."""


def validate(document: Document, report: ProblemReport) -> Spec:
    """The configuration of a document; every error goes to the report."""
    report.problems += document.problems
    root = {key: _copied(value, strict=key in _STRICT and bool(value)) for key, value in document.root.items()}
    shortened: set[KeyPath] = set()
    while True:
        try:
            return Spec.model_validate(root)
        except ValidationError as invalid:
            found = list(explained(invalid, document, Spec))
        # In a file for NVIDIA's plugin, unknown keys are ignored, and what else is wrong is found without them.
        gone = {each.path for each in found if not each.is_error}
        if gone:
            found = [each for each in found if not each.is_error]
        else:
            gone = {scope_of(each.path) for each in found}
        report.problems += (each for each in found if each.path not in shortened)
        shortened |= {path[:-1] for path in gone} & {*ITEM_LISTS}  # if nothing is left of a list, that is no error
        for path in sorted(gone, key=_last_index, reverse=True):
            _remove(root, path)


def _copied(tree: Any, *, strict: bool) -> Any:
    """A copy of mappings and lists; if `strict`, with NO_VALUE for each key of a mapping without a value."""
    match tree:
        case dict():
            values = {key: _copied(value, strict=strict) for key, value in tree.items()}
            if isinstance(tree, FileMapping):
                return FileMapping(values, tree.where)
            return values  # of an override
        case list():
            return [None if item is None else _copied(item, strict=strict) for item in tree]
        case None if strict:
            return NO_VALUE
        case _:
            return tree


def _last_index(path: KeyPath) -> int:
    """Sorts items of a list by their place."""
    return path[-1] if isinstance(path[-1], int) else -1


def _remove(tree: Any, path: KeyPath) -> None:
    *way, last = path
    for step in way:
        tree = tree[step]
    del tree[last]
