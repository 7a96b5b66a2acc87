"""What commands for people do on a terminal: colours, and a view that refreshes."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum

from ..errors import VdevError

_CODE = re.compile(r"(\x1b\[[0-9;]*m)")


class Colour(StrEnum):
    """What a colour says."""

    BAD = "31"
    DOUBT = "33"
    GOOD = "32"
    FAINT = "2"
    BOLD = "1"


def has_colours(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the standard output is a terminal that shows colours, and nobody asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def painted(text: str, *colours: Colour) -> str:
    """The text in these colours, on a terminal; else as it is."""
    return f"\x1b[{';'.join(colours)}m{text}\x1b[0m" if colours and has_colours() else text


def width() -> int | None:
    """The columns of the terminal; None if the output goes elsewhere: nothing is cut then."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(line: str, columns: int | None) -> str:
    """The line, cut with an ellipsis if it is longer than that; colours take no room."""
    parts = _CODE.split(line)
    if columns is None or sum(len(each) for each in parts[::2]) <= columns:
        return line
    found, left = "", columns - 1
    for number, part in enumerate(parts):
        if number % 2:
            found += part
        elif left >= 0:
            found += part if len(part) <= left else part[:left] + "…"
            left = left - len(part) if len(part) <= left else -1
    return found


async def watch(
    frame: Callable[[], Awaitable[Sequence[str]]], every: float, *, environ: Mapping[str, str] = os.environ
) -> None:
    """Show the lines again and again, every so many seconds, until cancelled. A failure is shown, and outlived.

    On a terminal each view takes the place of the one before, cut to its height; else an empty line is between them.
    """
    while True:
        try:
            lines = list(await frame())
        except VdevError as failed:
            lines = [painted(f"vdev: {failed}", Colour.BAD)]
        in_place = sys.stdout.isatty() and environ.get("TERM") != "dumb"
        print(_screen(lines) if in_place else "\n".join([*lines, "", ""]), end="", flush=True)
        await asyncio.sleep(every)


async def stream(document: Callable[[], Awaitable[str]], every: float) -> None:
    """Print a line of JSON every so many seconds, until cancelled. A failure goes to stderr, and is outlived."""
    while True:
        try:
            print(await document(), flush=True)
        except VdevError as failed:
            print(f"vdev: {failed}", file=sys.stderr, flush=True)
        await asyncio.sleep(every)


def height() -> int:
    """The lines of a view that fits on the terminal."""
    return max(8, shutil.get_terminal_size().lines - 1)


def _screen(lines: Sequence[str]) -> str:
    columns, lines_there = shutil.get_terminal_size()
    height = lines_there - 1
    if len(lines) > height:
        lines = [*lines[: height - 1], painted(f"… and {len(lines) - height + 1} more lines", Colour.FAINT)]
    shown = "".join(f"{fitted(line, columns)}\x1b[K\n" for line in lines)
    return f"\x1b[H{shown}\x1b[J"
