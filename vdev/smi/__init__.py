"""The makers' command-line tools for containers: scripts, and the templates of their output.

A tool is one POSIX shell script, mounted at the path of the maker's own tool. It prints from the data files of the
container's devices, which `telemetry.nvidia_tool` and `telemetry.amd_tool` render.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent


@cache
def script(tool: str) -> str:
    text = _part(f"{tool}.sh")
    if tool != "nvidia-smi":
        return text
    comment, blank, program = text.partition("\n\n")
    return f"{comment}\n{_fields()}{blank}{program}"


@cache
def nvidia_log() -> list[str]:
    """The templates of the XML log: its head, the driver, a GPU, a MIG device, and the rest of a GPU."""
    return _part("nvidia-log.xml").split("%%\n")


@cache
def amd_sections() -> dict[str, dict[str, Any]]:
    """The sections of amd-smi by command, as trees of texts in which `$name` is a value."""
    sections: dict[str, dict[str, Any]] = json.loads(_part("amd-sections.json"))
    return sections


def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _fields() -> str:
    """nvidia-fields.txt as two shell functions: one finds a field, the other lists the fields of a switch."""
    cases: list[str] = []
    listed: dict[str, list[str]] = {}
    switch = ""
    for line in _part("nvidia-fields.txt").splitlines():
        if line.startswith("["):
            switch = line.strip("[]")
            listed[switch] = [f'List of valid properties to query for the switch "--query-{switch}=":', ""]
        elif line and not line.startswith("#"):
            joined, rest = line.split(" |", 1)
            names = joined.split()
            unit, value, meaning = (part.strip() for part in rest.split("|", 2))
            plain = " Plain=yes" if value.startswith("=") else ""
            known = " | ".join(f"{switch}:{name}" for name in names)
            sets = f'Head={names[0]} Unit={unit} Value="{value.removeprefix("=").strip()}"{plain}'
            cases.append(f"        {known}) {sets} ;;\n")
            listed[switch] += [" or ".join(f'"{name}"' for name in names), meaning, ""]
    helps = []
    for switch, lines in listed.items():
        text = "\n".join(lines).replace("'", "'\\''")
        helps.append(f"        {switch}) say '{text}' ;;\n")
    return (
        "\nfield() {\n    case $1 in\n" + "".join(cases) + "        *) return 1 ;;\n    esac\n}\n"
        "\nhelp_fields() {\n    case $1 in\n" + "".join(helps) + '        *) unknown "$Option" ;;\n    esac\n}\n'
    )
