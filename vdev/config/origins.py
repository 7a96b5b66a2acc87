"""The effective configuration: every value with its origin, as a list or as YAML with comments.

Also writes the YAML of `importers`.
"""

import functools
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import yaml

from ..model.problem import KeyPath, Override, show
from ..model.section import Placed, Plain, Section
from ..model.sources import AttributeTest
from ..model.spec import Spec
from ..model.telemetry import Range
from ..model.template import Template
from ..model.virtual import VirtualDevices
from .loader import Document

DEFAULT = "default"
_SHORTHANDS = ("path", "names", "value", "p50", "max")  # keys that can be written as a plain value instead of a mapping
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_RESERVED = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}  # no strings in YAML without quotes


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


def origins(spec: Spec, document: Document, overrides: Mapping[KeyPath, Override]) -> tuple[Origin, ...]:
    """Return every value of the configuration, in the schema's order, without empty defaults.

    A mapping without values appears as an empty one: `virtual: {}`.
    """

    def source_of(written: KeyPath) -> str:
        for end in range(len(written), 0, -1):
            if override := overrides.get(written[:end]):
                return override.source
        known, rest = document.split(written)
        # Values of a shorthand have its place, such as a pattern for {path: pattern}.
        root: Any = document.root
        inside = all(isinstance(step, int) or step in _SHORTHANDS for step in rest)
        short = inside and not isinstance(functools.reduce(operator.getitem, known, root), dict)
        return str(document.value_place(known)) if known and (not rest or short) else DEFAULT

    return tuple(_below(spec, (), (), source_of))


def _plain(value: Any) -> Any:
    """Return the value as YAML, down to the next mapping or list, without keys that have no value."""
    match value:
        case VirtualDevices():
            return {key: item for key, item in value.by_key.items() if key in value.written}  # a preset has the others
        case Section():
            return {key: item for key, item in value.by_key.items() if item is not None}
        case AttributeTest():
            operand = _plain(value.operand)
            return {value.operator: operand} if value.operator else operand
        case Range():
            return [value.low, value.high] if value.low != value.high else value.low
        case Template():
            return value.source
        case Enum():
            return value.value
        case tuple():
            return list(value)
        case _:
            return value


def _below(value: Any, path: KeyPath, written: KeyPath, source_of: Callable[[KeyPath], str]) -> list[Origin]:
    """Return the values at a path and below, without empty defaults.

    `written` is the path in the file, which differs from `path` if items before it were left out.
    """
    if isinstance(value, Placed) and value.where:
        written = value.where.path
    value = _plain(value)
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [origin for key, item in items for origin in _below(item, (*path, key), (*written, key), source_of)]
    if found or not path:
        return found
    source = source_of(written)
    is_empty = value in ("", [], {}) or isinstance(value, (dict, list))
    own = type(value)() if isinstance(value, (dict, list)) else value
    return [] if is_empty and source == DEFAULT else [Origin(show(path), own, source, path)]


# --- YAML -------------------------------------------------------------------------------------------------------------


def render(values: tuple[Origin, ...]) -> str:
    """Write the values as YAML that loads to the same configuration, each with its origin as a comment."""
    tree: dict[str | int, Any] = {}
    for origin in values:
        *way, last = origin.steps
        holder = functools.reduce(lambda inner, step: inner.setdefault(step, {}), way, tree)
        holder[last] = origin.value
    lines = dumped(_with_lists(tree), default_flow_style=False, width=math.inf).splitlines()
    sources = (origin.source for origin in values)
    is_key = re.compile(r".*:|[ -]*\? .*")  # without a value; `?` is before a long key
    return "".join(f"{line}\n" if is_key.fullmatch(line) else f"{line}  # {next(sources)}\n" for line in lines)


def _with_lists(tree: Any) -> Any:
    """Return the tree with a list for each mapping from indices."""
    if not isinstance(tree, dict):
        return tree
    inner = {step: _with_lists(value) for step, value in tree.items()}
    return [*inner.values()] if any(isinstance(step, int) for step in inner) else inner


class _Dumper(yaml.SafeDumper):
    """Indents lists, and quotes strings that a YAML reader could take for another type."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        is_plain = _PLAIN.fullmatch(text) and text.lower() not in _RESERVED
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')

    def number(self, written: str) -> yaml.ScalarNode:
        tag = self.resolve(yaml.ScalarNode, written, (True, False))  # type: ignore[no-untyped-call]
        return self.represent_scalar(tag, written)


_Dumper.add_representer(str, _Dumper.text)
_Dumper.add_representer(Plain, _Dumper.number)
_Dumper.add_multi_representer(dict, _Dumper.represent_dict)


def dumped(value: object, **options: Any) -> str:
    """Return a value as YAML. `options` are those of PyYAML's `dump`."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, **options))
