"""Reads scenario files: the built-in scenarios for any plugin, and those of users."""

import difflib
from dataclasses import dataclass
from pathlib import Path

import yaml

from ...errors import UsageError, reason_of
from ..objects import yaml_text
from .scenario import Capability, Scenario, ScenarioFormatError, parse

NAMES = (
    "registration",
    "pod",
    "kubelet-restart",
    "kubelet-crash",
    "plugin-restart",
    "plugin-crash",
    "stale-socket",
    "health",
    "dra-registration",
)
"""The built-in scenarios, in the order in which they are played."""

_DIRECTORY = Path(__file__).parent / "files"
_LONGEST_STEP = 160  # characters of a step's text in a report


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """A scenario with its name and its file."""

    name: str
    path: Path
    scenario: Scenario
    lines: list[tuple[int, str]]  # of each step: its line in the file, and its text

    @property
    def hooks(self) -> list[str]:
        """The names of its hooks, without repetition."""
        return list(dict.fromkeys(step.value for step in self.scenario.steps if step.name == "hook"))

    @property
    def is_dra(self) -> bool:
        """Whether it tests a DRA driver."""
        return Capability.DRA in self.scenario.requires


def find(name: str) -> ScenarioFile:
    """A built-in scenario by its name, or a file by its path. Blocks. Raises UsageError."""
    path = _DIRECTORY / f"{name}.yaml" if name in NAMES else Path(name)
    if not path.is_file():
        near = difflib.get_close_matches(name, NAMES, n=1)
        known = f"did you mean {near[0]!r}? " * bool(near) + f"built-in scenarios: {', '.join(NAMES)}"
        raise UsageError(f"scenario {name!r}: no such file, and no built-in scenario; {known}")
    return ScenarioFile(path.stem, path, load(path), _step_lines(path.read_text()))


def built_in() -> list[ScenarioFile]:
    """The built-in scenarios. Blocks."""
    return [find(name) for name in NAMES]


def load(path: Path) -> Scenario:
    """Read a scenario's file. Blocks. Raises ScenarioFormatError."""
    try:
        return parse(yaml_text.document(path.read_text()))
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFormatError(f"{path}: cannot read the scenario: {reason_of(error)}") from error
    except (ScenarioFormatError, yaml.YAMLError) as error:
        hint = '; write a placeholder in quotes: "{resource}"' if "unhashable" in str(error) else ""
        raise ScenarioFormatError(f"{path.name}: {error}{hint}") from error


def _step_lines(text: str) -> list[tuple[int, str]]:
    """The line of each step in a valid file, and its text as one line."""
    tree = yaml.compose(text, yaml.SafeLoader)
    assert tree is not None  # the file is valid
    (steps,) = (value for key, value in tree.value if key.value == "steps")
    found = []
    for node in steps.value:
        rows = text[node.start_mark.index : node.end_mark.index].splitlines()
        line = " ".join(" ".join(row for row in rows if not row.lstrip().startswith("#")).split())
        short = line if len(line) <= _LONGEST_STEP else f"{line[: _LONGEST_STEP - 1]}…"
        found.append((node.start_mark.line + 1, short))
    return found
