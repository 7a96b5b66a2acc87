"""The scenarios that come with vdev, for any plugin, and the files of others."""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Found:
    """A scenario with its name and its file."""

    name: str
    path: Path
    scenario: Scenario

    @property
    def hooks(self) -> list[str]:
        """The names of the hooks that it uses, each once."""
        return list(dict.fromkeys(step.value for step in self.scenario.steps if step.name == "hook"))

    @property
    def is_dra(self) -> bool:
        """Whether it is one for DRA drivers."""
        return Capability.DRA in self.scenario.requires


def find(name: str) -> Found:
    """A scenario by its name in the library or by its path. Blocks. Raises UsageError."""
    path = _DIRECTORY / f"{name}.yaml" if name in NAMES else Path(name)
    if not path.is_file():
        raise UsageError(
            f"scenario {name!r}: there is neither such a file nor such a name; names are {', '.join(NAMES)}"
        )
    return Found(path.stem, path, load(path))


def coming() -> list[Found]:
    """The scenarios that come with vdev. Blocks."""
    return [find(name) for name in NAMES]
