"""Places in the configuration's files: where a text stands, and which value it belongs to."""

import re
from dataclasses import dataclass

KeyPath = tuple[str | int, ...]
"""The way from the top of a file to a value: keys and list indices."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in a file. Lines and columns count from 1; both are 0 when the whole file is meant."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """`file:line:column`, or the file alone."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


def show(path: KeyPath) -> str:
    """A path as people write it: `devices[0].glob[1].permissions`, `devices[0].partitions["1-2"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text
