"""Writing a file so that a reader sees all of it or nothing of it."""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import HostError, reason_of


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, sync: bool = False) -> None:
    """Put `data` at `path` by renaming a finished file over it; blocks.

    The temporary file is made in the same directory, hidden, and is gone when anything fails. `sync` also outlives a
    power cut. Raises HostError.
    """
    temporary = ""
    try:
        # Without tempfile, which is a quarter of a MiB with all that it imports; `x`: never over what is there.
        fresh = path.parent / f".{path.name}.{os.urandom(6).hex()}.tmp"
        with open(fresh, "xb", opener=_private) as file:
            temporary = str(fresh)
            os.fchmod(file.fileno(), mode)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
        temporary = ""
    except OSError as cause:
        raise HostError(f"cannot write {path}: {reason_of(cause)}") from cause
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _private(path: str, flags: int) -> int:
    """Open a file that nobody else can read as long as it is not finished."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def remove_unfinished(directory: Path, names: Iterable[str]) -> None:
    """Remove what processes that were killed left of writing files of these names; blocks. For their sole writer."""
    ours = tuple(f".{name}." for name in names)
    with contextlib.suppress(OSError), os.scandir(directory) as found:
        for each in found:
            if each.name.startswith(ours) and each.name.endswith(".tmp"):
                with contextlib.suppress(OSError):
                    os.unlink(each)
