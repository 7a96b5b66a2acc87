"""Writing a file so that a reader sees all of it or nothing of it."""

import contextlib
import os
import tempfile
from pathlib import Path

from ..errors import HostError, reason_of


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, sync: bool = False) -> None:
    """Put `data` at `path` by renaming a finished file over it; blocks.

    The temporary file is made in the same directory, hidden, and is gone when anything fails. `sync` also outlives a
    power cut. Raises HostError.
    """
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with open(handle, "wb") as file:
            os.fchmod(handle, mode)
            file.write(data)
            if sync:
                file.flush()
                os.fsync(handle)
        os.replace(temporary, path)
        temporary = ""
    except OSError as cause:
        raise HostError(f"cannot write {path}: {reason_of(cause)}") from cause
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
