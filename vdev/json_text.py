"""JSON that somebody else wrote, read within bounds: it may be long, and nested so deeply that reading it fails."""

import json
from typing import Any

_LONGEST = 2**24  # bytes or characters
_DEEPEST = 100  # lists and mappings in each other; objects of Kubernetes have twenty at most


def parse_json(text: str | bytes, *, longest: int = _LONGEST) -> Any:
    """The value of a text of JSON. Raises ValueError where there is none, or none within these bounds."""
    if len(text) > longest:
        raise ValueError(f"longer than {longest} bytes")
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
