"""YAML as Kubernetes' reader in Go has it: a date is a text, and there are no numbers in base 60.

All errors are `yaml.YAMLError`, also those for values such as `!!int x`, for which PyYAML raises other exceptions.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import yaml

_INT, _FLOAT, _TIME = (f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_NOT_YAML = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: dict[str, list[tuple[str, Any]]] = {
        first: [(tag, pattern) for tag, pattern in rules if tag not in (_INT, _FLOAT, _TIME)]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    _INT, re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$"), list("-+0123456789")
)
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"[-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$"),
    list("-+0123456789."),
)


def document(text: str | bytes) -> Any:
    """The only document; None for an empty text. Raises yaml.YAMLError."""
    with _as_yaml_errors():
        return _Loader(text).get_single_data()


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
            assert node is not None  # says check_node
            found.append((node.start_mark.line + 1, loader.construct_document(node)))
    return found


def line_and_problem(error: yaml.YAMLError) -> tuple[int, str]:
    """The line of an error, 0 if it is not known, and its text."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return 0, str(error)
    return error.problem_mark.line + 1, ": ".join(filter(None, (error.context, error.problem)))


@contextlib.contextmanager
def _as_yaml_errors() -> Iterator[None]:
    try:
        yield
    except RecursionError as error:
        raise yaml.YAMLError("nested too deep") from error
    except _NOT_YAML as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error
