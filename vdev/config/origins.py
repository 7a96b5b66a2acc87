"""The effective configuration: every value with its origin, as a list or as YAML with comments."""

import functools
import json
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..model.problem import KeyPath, Override, show
from ..model.scalars import Plain, Section
from ..model.sources import AttributeTest
from ..model.telemetry import Range
from ..model.template import Template
from .loader import Document
from .parser import quoted
from .validation import Validated

DEFAULT = "default"
_SHORTHANDS = ("path", "names", "p50", "max")  # keys that a value without a mapping stands for
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


@dataclass(frozen=True, slots=True)
class Origin:
    """One value of the effective configuration.

    `source` is `flag --x`, `env X`, `file:line:column` or `default`. `value` is a text, number, boolean, or an empty
    list or mapping; a `Plain` text is a number or boolean as it was written.
    """

    path: str
    value: Any
    source: str
    steps: KeyPath = ()


def origins(validated: Validated, document: Document, overrides: Mapping[KeyPath, Override]) -> tuple[Origin, ...]:
    """Every value of the configuration, in the schema's order; empty defaults are left out.

    A mapping that is given, and of which nothing else would be left, is there as an empty one: `virtual: {}`.
    """

    def source_of(path: KeyPath) -> str:
        written = _written(validated, path)
        for end in range(len(written), 0, -1):
            if override := overrides.get(written[:end]):
                return override.source
        known = document.known(written)
        # What a shorthand stands for has its place: a single value for a list of it, a pattern for {path: pattern}.
        root: Any = document.root
        inside = all(isinstance(step, int) or step in _SHORTHANDS for step in written[len(known) :])
        short = inside and not isinstance(functools.reduce(operator.getitem, known, root), dict)
        return str(document.value_place(known)) if known and (len(known) == len(written) or short) else DEFAULT

    return tuple(_below(_plain(validated.file), (), source_of))


def _written(validated: Validated, path: KeyPath) -> KeyPath:
    """The path in the file, which counts the items that were left out."""
    for items, numbers in validated.places.items():
        if path[: len(items)] == items and len(path) > len(items):
            return (*items, numbers[int(path[len(items)])], *path[len(items) + 1 :])
    return path


def _plain(value: Any) -> Any:
    """The value as YAML; keys without a value are left out."""
    match value:
        case Section():
            return {key: _plain(item) for key, item in value.by_key.items() if item is not None}
        case AttributeTest():
            return value.written
        case Range():
            return [value.low, value.high] if value.low != value.high else value.low
        case Template():
            return value.source
        case Enum():
            return value.value
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _below(value: Any, path: KeyPath, source_of: Callable[[KeyPath], str]) -> list[Origin]:
    """The values at a path and below that are worth telling."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [origin for key, item in items for origin in _below(item, (*path, key), source_of)]
    if found or not path:
        return found
    source = source_of(path)
    is_empty = value in ("", [], {}) or isinstance(value, (dict, list))
    own = type(value)() if isinstance(value, (dict, list)) else value
    return [] if is_empty and source == DEFAULT else [Origin(show(path), own, source, path)]


def render(values: tuple[Origin, ...]) -> str:
    """The values as YAML that loads to the same configuration, each with its origin as a comment."""
    lines: list[str] = []
    before: KeyPath = ()
    for origin in values:
        path = origin.steps
        common = next(
            (n for n, (a, b) in enumerate(zip(before, path, strict=False)) if a != b), min(len(before), len(path))
        )
        lead = ""
        for depth in range(common, len(path)):
            step = path[depth]
            if isinstance(step, int):
                lead += "- " if lead else "  " * depth + "- "
                continue
            if lead and not lead.endswith("- "):
                lines.append(lead)
                lead = ""
            lead = (lead or "  " * depth) + f"{_scalar(step)}:"
            if depth + 1 < len(path):
                lines.append(lead)
                lead = ""
        lines.append(f"{lead}{'' if lead.endswith('- ') else ' '}{_scalar(origin.value)}  # {origin.source}")
        before = path
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    if isinstance(value, Plain):
        return value
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) and value.lower() not in _RESERVED else quoted(value)
    return json.dumps(value)
