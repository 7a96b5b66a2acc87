"""The built-in scenarios for any plugin, and scenario files of users."""

import difflib
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError
from .scenario import Capability, Scenario, load, step_lines

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
    return ScenarioFile(path.stem, path, load(path), step_lines(path.read_text()))


def built_in() -> list[ScenarioFile]:
    """The built-in scenarios. Blocks."""
    return [find(name) for name in NAMES]
