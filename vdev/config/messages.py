"""Pydantic's errors as findings a person can act on: place, what is wrong, what is allowed, what was probably meant."""

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .document.loader import Document
from .document.parser import Tree
from .document.position import Finding, Path, finding, show
from .schema import field_docs
from .schema.config_file import ConfigFile
from .schema.scalars import PROBLEM, Section, described

MAX_FINDINGS = 1000
_FAR = 0.8  # how like a key of another section must be to be suggested; 1 is the same


def findings(error: ValidationError, document: Document) -> Iterator[Finding]:
    """One finding for each error, as far as anybody reads."""
    details = error.errors(include_url=False)
    for detail in details[:MAX_FINDINGS]:
        yield _finding(detail, document)
    if len(details) > MAX_FINDINGS:
        yield finding(document.value_place(()), (), f"there are {len(details) - MAX_FINDINGS} more errors")


def empty_values(document: Document) -> Iterator[Finding]:
    """A finding for each key of `devices` and `faults` that has nothing behind it.

    A whole section may be empty, and NVIDIA's own sections are read as NVIDIA's plugin reads them.
    """
    for section in ("devices", "faults"):
        for path in _nothing(document.root.get(section), (section,)):
            key, model = str(path[-1]), model_at(path[:-1])
            if len(path) > 1 and model and key in _fields(model) and key not in _may_be_empty(model):
                hint = "remove the key or give it one"
                yield finding(document.value_place(path), path, f"{key!r} has no value", hint=hint)


def _nothing(tree: Tree, path: Path) -> Iterator[Path]:
    """The paths at which there is no value."""
    match tree:
        case None:
            yield path
        case list():
            for index, item in enumerate(tree):
                yield from _nothing(item, (*path, index))
        case dict():
            for key, value in tree.items():
                yield from _nothing(value, (*path, key))


def _may_be_empty(model: type[BaseModel]) -> frozenset[str]:
    return model.may_be_empty if issubclass(model, Section) else frozenset()


def _finding(detail: ErrorDetails, document: Document) -> Finding:
    path, is_key = document.located(detail["loc"])
    known = document.known(path)
    match detail["type"]:
        case "extra_forbidden":
            return unknown_key(document, path)
        case "missing":
            field = model_at(path[:-1])
            what = _described(field, str(path[-1])) if field else ""
            hint = f"needed: {what[:1].lower()}{what[1:]}" if what else ""
            return finding(document.value_place(known), known, f"{str(path[-1])!r} is missing", hint=hint)
        case kind if kind == PROBLEM:
            ctx = detail["ctx"]
            message, hint = ctx["message"], ctx["hint"]
        case "list_type":
            message, hint = f"expected a list, got {described(detail['input'])}", ""
        case "dict_type" | "model_type" | "model_attributes_type":
            message, hint = f"expected a mapping, got {described(detail['input'])}", _keys_hint(path)
        case _:
            message, hint = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, got {described(detail['input'])}", ""
    place = document.key_place(known) if is_key else document.value_place(known)
    return finding(place, known, message, hint=hint)


def unknown_key(document: Document, path: Path) -> Finding:
    """A finding for a key that its mapping does not have, with where it belongs."""
    key = str(path[-1])
    model = model_at(path[:-1])
    allowed = list(_fields(model)) if model else []
    hints = ["allowed: " + ", ".join(allowed)] if allowed else []
    homes = _homes()
    near = get_close_matches(key, [*allowed, *get_close_matches(key, homes, n=1, cutoff=_FAR)], n=1)
    if key in homes:
        hints.append(f"it belongs under {' or '.join(homes[key])}")
    elif near and near[0] in allowed:
        hints.append(f"did you mean {near[0]!r}?")
    elif near:
        hints.append(f"did you mean {near[0]!r} under {' or '.join(homes[near[0]])}?")
    return finding(document.key_place(path), path, f"unknown key {key!r}", hint="; ".join(hints))


def model_at(path: Path) -> type[BaseModel] | None:
    """The model of the mapping at that path, or None where keys are free."""
    annotation: Any = ConfigFile
    for step in path:
        model = _model(annotation)
        if isinstance(step, int):
            annotation = _inner(annotation, list, 0)
        elif model is not None:
            annotation = _fields(model).get(step)
        else:
            annotation = _inner(annotation, dict, 1)
        if annotation is None:
            return None
    return _model(annotation)


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _described(model: type[BaseModel], key: str) -> str:
    """The first sentence about a field."""
    for name, field in model.model_fields.items():
        if key == (field.alias or name):
            text = " ".join(field_docs.sentences(model).get(name, "").split())
            return text.partition(". ")[0].rstrip(".")
    return ""


def _keys_hint(path: Path) -> str:
    model = model_at(path)
    return "its keys: " + ", ".join(_fields(model)) if model else ""


def _model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(
        (
            found
            for part in get_args(annotation)
            if getattr(annotation, "__origin__", None) not in (list, dict) and (found := _model(part))
        ),
        None,
    )


def _inner(annotation: Any, kind: type, argument: int) -> Any:
    """The item type of a list or mapping inside the annotation, or None."""
    if getattr(annotation, "__origin__", None) is kind:
        return get_args(annotation)[argument]
    return next((found for part in get_args(annotation) if (found := _inner(part, kind, argument))), None)


@cache
def _homes() -> dict[str, list[str]]:
    """Every key of the schema, with the sections that have it."""
    homes: dict[str, list[str]] = {}

    def visit(model: type[BaseModel], path: Path) -> None:
        for key, annotation in _fields(model).items():
            if path:
                homes.setdefault(key, []).append(show(path).replace("[0]", "[]"))
            listed = _inner(annotation, list, 0) or _inner(annotation, dict, 1)
            if inner := _model(annotation):
                visit(inner, (*path, key))
            elif listed and (inner := _model(listed)):
                visit(inner, (*path, key, 0))

    visit(ConfigFile, ())
    return homes
