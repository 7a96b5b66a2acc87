"""The makers' command-line tools for containers: a shell script each, and what they are made of.

A tool is one POSIX-sh script, mounted where the maker's own would be. It picks from the data files of the container's
devices, in which vdev has rendered what can be known outside of the container (`telemetry.nvidia_tool`,
`telemetry.amd_tool`).
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
    """The templates of the log: its beginning, its driver, a GPU, a MIG device, and the rest of a GPU."""
    return _part("nvidia-log.xml").split("%%\n")


@cache
def amd_sections() -> dict[str, dict[str, Any]]:
    """The sections of amd-smi, by command: trees of texts with values for `$name`."""
    sections: dict[str, dict[str, Any]] = json.loads(_part("amd-sections.json"))
    return sections


def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _fields() -> str:
    """What --query-... knows, as shell: a function that finds a field, and one that lists those of a switch."""
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
