"""The makers' command-line tools for containers: shell scripts, put together from the parts beside this file.

A tool is one POSIX-sh script, mounted where the maker's own would be. It shows what data files say of the container's
devices; `telemetry.tool_data` makes these, and says what is in them.
"""

from functools import cache
from pathlib import Path

_HERE = Path(__file__).parent


@cache
def nvidia_smi() -> str:
    names = ("data", "list", "table", "csv", "xml", "topology")
    parts = [_part(f"nvidia/{name}.sh") for name in names]
    return "".join((*parts, _fields(), _part("nvidia/main.sh")))


@cache
def amd_smi() -> str:
    return "".join(_part(f"amd/{name}.sh") for name in ("data", "tree", "amd-sections", "amd-smi"))


def script(tool: str) -> str:
    return {"nvidia-smi": nvidia_smi, "amd-smi": amd_smi}[tool]()


def _part(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _fields() -> str:
    """What --query-gpu knows, as shell: a function that finds a field, and one that lists them all."""
    cases, help_lines = [], []
    for line in _part("nvidia/fields.txt").splitlines():
        if line.startswith("#"):
            continue
        names, rest = line.split(" |", 1)
        unit, value, meaning = (part.strip() for part in rest.split("|", 2))
        plain = value.startswith("=")
        head = names.split()[0]
        sets = [f"Head={head}", f"Unit={unit}", f'Value="{value.removeprefix("=").strip()}"', *(["Plain=yes"] * plain)]
        cases.append(f"        {' | '.join(names.split())}) {' '.join(sets)} ;;\n")
        help_lines += [" or ".join(f'"{name}"' for name in names.split()), meaning, ""]
    listed = "\n".join(help_lines).replace("'", "'\\''")
    return (
        "\ngpu_field() {\n    case $1 in\n" + "".join(cases) + "        *) return 1 ;;\n    esac\n}\n"
        "\nhelp_gpu() {\n"
        '    echo \'List of valid properties to query for the switch "--query-gpu=":\n\n' + listed + "'\n}\n"
    )
