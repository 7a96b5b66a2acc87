"""JSON that somebody else wrote, read within bounds.

A short text can become much: a value of three bytes takes seventy in memory, and lists in each other end the parser.
"""

import json
from typing import Any

_LONGEST = 2**24  # bytes or characters
_PER_VALUE = 16  # of them at least, on the average
_DEEPEST = 100  # lists and mappings in each other; objects of Kubernetes have twenty at most


def parse_json(text: str | bytes, *, longest: int = _LONGEST) -> Any:
    """The value of a text of JSON. Raises ValueError where there is none, or none within these bounds."""
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
    """As many as there are values, or more."""
    if isinstance(text, str):
        return sum(map(text.count, ",[{"))
    return sum(map(text.count, (b",", b"[", b"{")))
