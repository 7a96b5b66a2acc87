"""YAML as Kubernetes reads it, by way of Go: a date is a text, and there are no numbers in base 60.

Whatever cannot be read is a `yaml.YAMLError`. PyYAML alone has others for values that only look like what they are
not, such as the 13th month, recurses without a limit, and expands aliases and merge keys to any size.
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"
_BASE_60 = re.compile(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?")
_MOST_VALUES = 100_000  # of a document; an alias of aliases doubles them with every line
_NOT_YAML = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError, RecursionError)


class _Resolver:
    """Stands for the pattern of a kind of numbers, and matches none in base 60."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def match(self, text: str) -> re.Match[str] | None:
        return None if _BASE_60.fullmatch(text) else self._pattern.match(text)


_RESOLVERS: dict[str, list[tuple[str, Any]]] = {
    first: [
        (tag, _Resolver(pattern) if tag in (f"{_TAG}int", f"{_TAG}float") else pattern)
        for tag, pattern in rules
        if tag != f"{_TAG}timestamp"
    ]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = _RESOLVERS


def document(text: str | bytes) -> Any:
    """The only document; None where there is none. Raises yaml.YAMLError."""
    with _as_yaml_errors():
        loader = _Loader(text)
        node = loader.get_single_node()
        return None if node is None else _value(loader, node)


def documents(text: str | bytes) -> list[Any]:
    """All documents. Raises yaml.YAMLError."""
    return [document for _, document in numbered_documents(text)]


def numbered_documents(text: str | bytes) -> list[tuple[int, Any]]:
    """All documents, each with its first line. Raises yaml.YAMLError."""
    found: list[tuple[int, Any]] = []
    with _as_yaml_errors():
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # as there is one
            found.append((node.start_mark.line + 1, _value(loader, node)))
    return found


def line_and_problem(error: yaml.YAMLError) -> tuple[int, str]:
    """The line of what cannot be read, 0 if it is not known, and what is wrong there."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return 0, str(error)
    return error.problem_mark.line + 1, ": ".join(filter(None, (error.context, error.problem)))


def _value(loader: _Loader, node: yaml.Node) -> Any:
    if _size(node, {}) > _MOST_VALUES:
        raise yaml.YAMLError(f"aliases and merge keys expand to more than {_MOST_VALUES} values")
    return loader.construct_document(node)


def _size(node: yaml.Node, known: dict[yaml.Node, int]) -> int:
    """The number of values once every alias and merge key is written out. Raises RecursionError for a loop."""
    if node not in known:
        pairs = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = itertools.chain.from_iterable(pairs) if isinstance(node, yaml.MappingNode) else pairs
        known[node] = 1 + sum(_size(each, known) for each in parts)
    return known[node]


@contextlib.contextmanager
def _as_yaml_errors() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise yaml.YAMLError("nested too deep") from error
    except _NOT_YAML as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error
