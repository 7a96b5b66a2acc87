"""What several commands share: arguments, exit codes and tables."""

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..agent.options import Group
from ..errors import UsageError, VdevError
from ..model.problem import Place, Problem
from . import options, sentence


async def watch(frame: Callable[[], Awaitable[Sequence[str]]], every: float, *, as_json: bool = False) -> None:
    """Show the lines every `every` seconds until cancelled. A failure is shown in their place; as JSON, on stderr.

    On a terminal, each view replaces the previous one and is cut to the height of the screen.
    """
    in_place = not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    while True:
        try:
            lines, output = list(await frame()), sys.stdout
        except VdevError as failed:
            lines, output = [f"vdev: {failed}"], sys.stderr if as_json else sys.stdout
        end = "" if as_json else "\n"
        print(_screen(lines) if in_place else "\n".join([*lines, end]), end="", file=output, flush=True)
        await asyncio.sleep(every)


def _screen(lines: Sequence[str]) -> str:
    room = shutil.get_terminal_size().lines - 1
    if len(lines) > room:
        lines = [*lines[: room - 1], f"… and {len(lines) - room + 1} more lines"]
    shown = "".join(f"{line}\x1b[K\n" for line in lines)
    return f"\x1b[?7l\x1b[H{shown}\x1b[J\x1b[?7h"  # without line wrap, so the terminal cuts long lines


SHOWN = 40  # rows of a table; the others are only counted
Columns = Mapping[str, str | int | Callable[[Any], object]]
"""The columns of a table by heading. Each is a key of the items, or a function of an item."""


def add_actions(parser: argparse.ArgumentParser, *names: str) -> Any:
    """Add the argument that selects an action. Returns the object for `add_action`."""
    return parser.add_subparsers(title="actions", metavar="|".join(names), dest="action", required=True)


def add_action(actions: Any, name: str, text: str, *fields: str) -> argparse.ArgumentParser:
    """Add an action with the options of these fields, and `--output`. `text` is its line in the help."""
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=sentence(text))
    options.add(parser, *fields)
    add_output(parser)
    return parser


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-o", "--output", choices=("text", "json"), default="text", help="output format [default: text]"
    )


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the files of a configuration, the options that replace values in them, and `--output`."""
    parser.usage = f"{parser.prog} [option ...] FILE [FILE ...]"
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="configuration files, joined by section; - for standard input, or a directory with a file for each node",
    )
    add_output(parser)
    add_flags(parser)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options that change what is advertised, for commands without a kubelet."""
    options.add_all(parser, (Group.PLUGIN, Group.PRESETS, Group.UNUSED))


def show(args: argparse.Namespace, document: object, lines: Iterable[str]) -> None:
    """Print the document with `--output json`, else the lines for people."""
    for line in [json.dumps(document, indent=2)] if args.output == "json" else lines:
        print(line)


def ask(args: argparse.Namespace, request: Mapping[str, Any]) -> Any:
    """Send a request to the running plugin, and return its answer."""
    from ..agent import command_socket  # it imports structlog, which other commands do not need

    return asyncio.run(command_socket.ask(options.read(args).run_dir, request))


def complain(problems: Iterable[Problem]) -> None:
    """Print problems on stderr; on a terminal each with the line of its file, and a caret below the column."""
    for problem in problems:
        print(problem, file=sys.stderr)
        if sys.stderr.isatty() and problem.place is not None:
            sys.stderr.write(_excerpt(problem.place))


def _excerpt(place: Place) -> str:
    """The line at this place, and a caret below its column; empty if the file cannot be read any more."""
    with contextlib.suppress(OSError, UnicodeDecodeError, IndexError):
        if place.line and Path(place.file).is_file():  # opening a pipe again would wait for a writer
            line = Path(place.file).read_text().splitlines()[place.line - 1]
            return f"  {line}\n  {' ' * (place.column - 1)}^\n"
    return ""


def exit_code(problems: Iterable[Problem]) -> int:
    """2 if the configuration has an error, else 0."""
    return 2 if any(problem.is_error for problem in problems) else 0


def table(columns: Columns, items: Sequence[Any], *, most: int | None = None, indent: str = "  ") -> Iterator[str]:
    """Yield the first `most` items in columns, and the number of the others.

    Columns without values are left out, so a table without items is empty. Control characters are replaced.
    """
    shown = items[:most]
    filled = []
    for head, key in columns.items():
        cells = [_cell(key(each) if callable(key) else each[key]) for each in shown]
        if {*cells} - {"-"}:
            filled.append([head, *cells])
    rooms = [max(map(len, column)) for column in filled]
    for row in zip(*filled, strict=True):
        yield indent + "  ".join(cell.ljust(room) for cell, room in zip(row, rooms, strict=True)).rstrip()
    yield from more(items, shown=len(shown))


def _cell(value: object) -> str:
    if value is None:
        return "-"
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return "".join(each if each.isprintable() else " " for each in text) or "-"


def more(found: Sequence[object], *, shown: int = SHOWN) -> Iterator[str]:
    """Yield a line with the number of items that are not shown, if there are any."""
    if len(found) > shown:
        yield f"  … and {len(found) - shown} more; --output json lists all"


def cdi_lines(devices: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """What the runtime injects for each CDI device."""
    for name, edits in devices.items():
        yield f"  {name} stands for"
        for text in edits.get("env", ()):
            yield f"    env       {text}"
        for node in edits.get("deviceNodes", ()):
            yield f"    device    {node.get('hostPath', node['path'])} -> {node['path']} ({node['permissions']})"
        for mount in edits.get("mounts", ()):
            source, access = mount.get("type") or mount["hostPath"], "ro" if "ro" in mount["options"] else "rw"
            yield f"    mount     {source} -> {mount['containerPath']} ({access})"


def pair(text: str, flag: str, example: str) -> tuple[str, str]:
    """The key and the value of an argument KEY=VALUE. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise UsageError(f"{flag}: expected KEY=VALUE, such as {example}, got {text!r}")
    return key, value


def seconds(text: str, flag: str) -> float:
    """Parse the interval at which a command repeats. Raises UsageError."""
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0.1 <= found <= 3600:
        raise UsageError(f"{flag}: expected seconds from 0.1 to 3600, got {text!r}")
    return found
