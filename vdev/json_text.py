"""Reads JSON of other programs within bounds.

A value of three bytes takes seventy bytes in memory, and deeply nested lists end the parser with RecursionError.
"""

import json
from typing import Any

_LONGEST = 2**24  # bytes or characters
_PER_VALUE = 16  # bytes or characters, the least on average
_DEEPEST = 100  # nested lists and mappings; objects of Kubernetes have at most twenty


def parse_json(text: str | bytes, *, longest: int = _LONGEST) -> Any:
    """Parse a text of JSON. Raises ValueError if it is not JSON, or beyond these bounds."""
    if len(text) > longest:
        raise ValueError(f"longer than {longest} bytes")
    if _separators(text) > (most := longest // _PER_VALUE):
        raise ValueError(f"more than {most} values")
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    level = [found]
    for _ in range(_DEEPEST + 1):
        level = [
            below
            for each in level
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return found
    raise ValueError(_TOO_DEEP)


_TOO_DEEP = f"nested more than {_DEEPEST} deep"


def _separators(text: str | bytes) -> int:
    """Return an upper bound of the number of values."""
    if isinstance(text, str):
        return sum(map(text.count, ",[{"))
    return sum(map(text.count, (b",", b"[", b"{")))
