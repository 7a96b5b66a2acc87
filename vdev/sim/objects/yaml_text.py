"""Parses YAML like Kubernetes' Go library: dates are strings, and there are no numbers in base 60.

All errors are `yaml.YAMLError`, including errors in values such as `!!int x`, for which PyYAML raises other exceptions.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    def construct_plain(self, node: yaml.ScalarNode) -> Any:
        """Return a number; the text of a date or of a number in base 60, such as `12:34`."""
        if node.tag.endswith(":timestamp") or ":" in node.value:
            return node.value
        return self.construct_yaml_int(node) if node.tag.endswith(":int") else self.construct_yaml_float(node)


for _name in ("int", "float", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_name}", _Loader.construct_plain)


def document(text: str | bytes) -> Any:
    """Parse a single document; None for an empty text. Raises yaml.YAMLError."""
    with _as_yaml_errors():
        return _Loader(text).get_single_data()


def numbered_documents(text: str | bytes) -> list[tuple[int, Any]]:
    """Parse all documents. Returns each with its first line number. Raises yaml.YAMLError."""
    found: list[tuple[int, Any]] = []
    with _as_yaml_errors():
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            assert node is not None  # check_node guarantees it
            found.append((node.start_mark.line + 1, loader.construct_document(node)))
    return found


def line_and_problem(error: yaml.YAMLError) -> tuple[int, str]:
    """Return the line of an error (0 if unknown) and its text."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return 0, str(error)
    return error.problem_mark.line + 1, ": ".join(filter(None, (error.context, error.problem)))


@contextlib.contextmanager
def _as_yaml_errors() -> Iterator[None]:
    try:
        yield
    except yaml.YAMLError:
        raise
    except Exception as error:
        raise yaml.YAMLError(f"a value cannot be read: {error}") from error
