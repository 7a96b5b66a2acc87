"""The scenarios that come with vdev, for any plugin, and the files of others."""

from collections.abc import Iterator
from pathlib import Path

from ...errors import UsageError
from .scenario import Capability, Scenario
from .scenario_file import load

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
"""The scenarios that come with vdev, in the order in which they are played."""

_DIRECTORY = Path(__file__).parent / "files"


def find(name: str) -> tuple[str, Path, Scenario]:
    """A scenario's name, file and content, by its name in the library or by its path. Blocks. Raises UsageError."""
    if name in NAMES:
        path = _DIRECTORY / f"{name}.yaml"
        return name, path, load(path)
    path = Path(name)
    if not path.is_file():
        raise UsageError(
            f"scenario {name!r}: there is neither such a file nor such a name; names are {', '.join(NAMES)}"
        )
    return path.stem, path, load(path)


def hooks(scenario: Scenario) -> Iterator[str]:
    """The names of the hooks that a scenario uses, each once."""
    yield from dict.fromkeys(step.value for step in scenario.steps if step.name == "hook")


def is_dra(scenario: Scenario) -> bool:
    """Whether a scenario is one for DRA drivers."""
    return Capability.DRA in scenario.requires
