"""`validate` turns a document into the model. What is invalid is reported and left out, and the rest is checked too."""

from collections.abc import Collection
from typing import Any, TypeVar

from pydantic import ValidationError

from ..model.problem import KeyPath
from ..model.section import NO_VALUE, Section
from ..model.spec import Spec
from .loader import Document
from .messages import ITEM_LISTS, ProblemReport, explained
from .parser import Tree

Model = TypeVar("Model", bound=Section)

_STRICT = frozenset({"devices", "faults", "node"})
"""Sections in which each key needs a value. NVIDIA's sections are read as NVIDIA's plugin reads them."""


def validate(document: Document, report: ProblemReport) -> Spec:
    """The configuration of a document; every error goes to the report.

    Items of lists are validated one by one, then each section. So an error in one of them hides no error in another.
    """
    report.problems += document.problems
    root: Any = {key: _marked(value) if key in _STRICT and value else value for key, value in document.root.items()}
    shortened: set[KeyPath] = set()
    for path, model in ITEM_LISTS.items():
        items = _value(root, path)
        if not isinstance(items, list):
            continue  # validating the section reports it
        kept = []
        for index, item in enumerate(items):
            at = (*path, index)
            if (found := _validated(model, item, at, report)) is not None:
                kept.append(found.placed(report.where(at), for_nvidia=document.is_for_nvidia(at)))
        if len(kept) < len(items):
            shortened.add(path)  # that nothing is left of it is no error of its own
        root = _replaced(root, path, kept)
    sections: dict[str, object] = {}
    for key, value in root.items():
        section = _validated(Spec, {key: value}, (), report, known=shortened)
        if section is not None:
            sections |= {name: getattr(section, name) for name in section.model_fields_set}
    return Spec().model_copy(update=sections)


def _validated(
    model: type[Model], tree: Tree, path: KeyPath, report: ProblemReport, *, known: Collection[KeyPath] = ()
) -> Model | None:
    """The value at `path` as a model; None if it has errors, which are reported unless they are at a known place."""
    while True:
        try:
            return model.model_validate(tree)
        except ValidationError as error:
            problems = list(explained(error, report.document, Spec, path))
            unknown = [each["loc"] for each in error.errors(include_url=False) if each["type"] == "extra_forbidden"]
            ignored = [loc for loc in unknown if report.document.is_for_nvidia((*path, *loc))]
            if not ignored:
                report.problems += (each for each in problems if each.path not in known)
                return None
            # These are warnings. What else is wrong is found without them.
            report.problems += (each for each in problems if not each.is_error)
            for loc in ignored:
                tree = _without_key(tree, loc)


def _marked(tree: Any) -> Any:
    """The tree with NO_VALUE for each key of a mapping without a value."""
    match tree:
        case dict():
            return {key: NO_VALUE if value is None else _marked(value) for key, value in tree.items()}
        case list():
            return [_marked(item) for item in tree]
        case _:
            return tree


def _value(tree: Any, path: KeyPath) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


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
