"""The file `dra_manager_state`: the claims that are prepared, their pods and devices. Only the kubelet reads it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from ...hostfs import write_atomic

FILE_NAME = "dra_manager_state"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """One device of a claim, as its driver answered."""

    pool: str
    device: str
    share: str
    requests: tuple[str, ...]
    cdi: tuple[str, ...]


@dataclass(slots=True)
class ClaimInfo:
    """A claim that the kubelet has prepared, or is preparing."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    """The UIDs of the pods that use it."""
    drivers: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    """The devices that each driver answered; none before it has answered."""
    prepared: bool = False
    """Whether all drivers have answered since this process started."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


_CLAIMS = TypeAdapter(list[ClaimInfo])


def encode(claims: Iterable[ClaimInfo]) -> bytes:
    """The file's content."""
    return _CLAIMS.dump_json(list(claims), exclude={"__all__": {"prepared"}})


def read(directory: Path) -> tuple[list[ClaimInfo], str]:
    """The claims of the file, and why it cannot be read (empty if it can, or if it does not exist). Blocks."""
    try:
        return _CLAIMS.validate_json((directory / FILE_NAME).read_bytes()), ""
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError) as error:
        return [], f"{directory / FILE_NAME}: {error}"


def write(directory: Path, content: bytes) -> None:
    """Replace the file atomically. Blocks. Raises HostError."""
    write_atomic(directory / FILE_NAME, content)
