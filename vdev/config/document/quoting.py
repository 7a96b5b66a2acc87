"""Texts in double quotes that JSON and YAML do not write alike: characters beyond U+FFFF, such as emoji.

JSON writes two halves of them (surrogates), which are no characters, and YAML refuses that.
"""

import json
import re

_BEYOND = re.compile("([\U00010000-\U0010ffff])")
_ESCAPE = re.compile(r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|.)", re.DOTALL)


def quoted(text: str) -> str:
    """Any text in quotes, as YAML and in ASCII."""
    parts = (f"\\U{ord(part):08x}" if _BEYOND.match(part) else json.dumps(part)[1:-1] for part in _BEYOND.split(text))
    return f'"{"".join(parts)}"'


def as_yaml(text: str) -> str:
    """A file's text; of one that is JSON, with whole characters in the place of halves."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    return _ESCAPE.sub(lambda found: _whole(found[1], found[2]) if found[1] else found[0], text)


def _whole(high: str, low: str) -> str:
    return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
