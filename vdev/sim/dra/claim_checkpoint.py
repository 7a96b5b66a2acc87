"""The file `dra_manager_state`: which claims are prepared, for which pods, with what. Nobody else reads it."""

import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

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
    """A claim that the kubelet works with. `drivers` has what each driver answered, no device before it did; `prepared`
    says that they all did since this process started.
    """

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    prepared: bool = False


_CLAIMS = TypeAdapter(list[ClaimInfo])


def take(claims: Iterable[ClaimInfo]) -> bytes:
    """The file's content."""
    return _CLAIMS.dump_json(list(claims), exclude={"__all__": {"prepared"}})


def read(directory: Path) -> tuple[list[ClaimInfo], str]:
    """The claims of a directory's file, and why it could not be read (empty if it could, or is not there). Blocks."""
    try:
        return _CLAIMS.validate_json((directory / FILE_NAME).read_bytes()), ""
    except FileNotFoundError:
        return [], ""
    except (OSError, ValueError) as error:
        return [], f"{directory / FILE_NAME}: {error}"


def write(directory: Path, content: bytes) -> None:
    """Replace the file atomically. Blocks."""
    with tempfile.NamedTemporaryFile("wb", prefix=".", dir=directory, delete=False) as file:
        file.write(content)
    Path(file.name).replace(directory / FILE_NAME)
