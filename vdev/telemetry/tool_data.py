"""The vendors' command-line tools for containers: their scripts, and the form of their data files.

A tool is one POSIX shell script, mounted at the path of the vendor's own tool. It prints from the data files of the
container's devices, which `nvidia_tool` and `amd_tool` render.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

# --- scripts ----------------------------------------------------------------------------------------------------------


def packaged(name: str) -> str:
    """The text of a file in this directory."""
    return resources.files(__package__).joinpath(name).read_text("utf-8")


def texts(name: str) -> Mapping[str, str]:
    """The templates in a file of this directory. The name of each is in the line before it, in brackets."""
    _, *parts = re.split(r"^\[([\w-]+)\]\n", packaged(name), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@cache
def script(tool: str) -> str:
    return packaged(f"{tool}.sh").replace("\n# The functions field and help_fields.\n", _fields())


def _fields() -> str:
    """nvidia-fields.txt as two shell functions: one finds a field, the other lists the fields of a switch."""
    cases, helps = "", ""
    for switch, table in texts("nvidia-fields.txt").items():
        listed = [f'List of valid properties to query for the switch "--query-{switch}=":', ""]
        for line in filter(None, table.splitlines()):
            joined, rest = line.split(" |", 1)
            names = joined.split()
            unit, value, meaning = (part.strip() for part in rest.split("|", 2))
            plain = " Plain=yes" if value.startswith("=") else ""
            known = " | ".join(f"{switch}:{name}" for name in names)
            sets = f'Head={names[0]} Unit={unit} Value="{value.removeprefix("=").strip()}"{plain}'
            cases += f"        {known}) {sets} ;;\n"
            listed += [" or ".join(f'"{name}"' for name in names), meaning, ""]
        text = "\n".join(listed).replace("'", "'\\''")
        helps += f"        {switch}) say '{text}' ;;\n"
    return (
        f"\nfield() {{\n    case $1 in\n{cases}        *) return 1 ;;\n    esac\n}}\n"
        f'\nhelp_fields() {{\n    case $1 in\n{helps}        *) unknown "$Option" ;;\n    esac\n}}\n'
    )


# --- data files -------------------------------------------------------------------------------------------------------


def assignments(values: Mapping[str, object]) -> str:
    """The values as shell assignments, one per line."""
    return "".join(f"{key}={quoted(str(value))}\n" for key, value in values.items())


def quoted(text: str) -> str:
    """The text as one word of a shell. Control characters, which would break the line, become blanks."""
    plain = text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
    return "'" + plain.replace("'", "'\\''") + "'"


_MARK = re.compile(r"@(index|part|program|short)(?::([-.0-9]+))?@")


def shell_format(text: str, arguments: Sequence[str]) -> str:
    """The text as a format of the shell's `printf`, which gets these arguments in this order.

    `@index@` in the text stands for an argument, and `@index:3@` for one with a width. `%.0s` skips an argument: if one
    was left, `printf` would print the format again.
    """
    skip, result, end = "%.0s", "", 0
    left = [*arguments] if text else []
    for mark in _MARK.finditer(text):
        if mark[1] in left:  # if not, the mark is part of a device's name
            skipped = left.index(mark[1])
            result += _literal(text[end : mark.start()]) + skip * skipped + f"%{mark[2] or ''}s"
            left = left[skipped + 1 :]
            end = mark.end()
    return result + _literal(text[end:]) + skip * len(left)


def _literal(text: str) -> str:
    """The text as a part of a format of `printf`, on one line."""
    return text.replace("\\", "\\\\").replace("%", "%%").replace("\n", "\\n").replace("\t", "\\t")
