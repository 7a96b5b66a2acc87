"""Reads JSON of other programs within bounds."""

import json
from typing import Any

_LONGEST = 2**24  # bytes or characters


def parse_json(text: str | bytes, *, longest: int = _LONGEST) -> Any:
    """Parse a text of JSON. Raises ValueError if it is not JSON, too long, or nested too deeply for the parser."""
    if len(text) > longest:
        raise ValueError(f"longer than {longest} bytes")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
