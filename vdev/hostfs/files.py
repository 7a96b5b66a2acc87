"""Atomic writes, reads that never wait for a pipe or open a device, and documents with a version and a checksum."""

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ..errors import HostError, reason_of

_UNFINISHED = ".tmp"
Model = TypeVar("Model", bound=BaseModel)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Replace the file by a rename, so that readers see the old or the new content; blocks.

    The temporary file is hidden, in the same directory, and removed if anything fails. Raises HostError.
    """
    temporary = ""
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED, delete=False
        ) as file:
            temporary = file.name
            os.fchmod(file.fileno(), mode)
            file.write(data)
        os.replace(temporary, path)
        temporary = ""
    except OSError as cause:
        raise HostError(f"cannot write {path}: {reason_of(cause)}") from cause
    finally:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def write_if_changed(path: Path, data: bytes, *, mode: int = 0o644) -> bool:
    """Replace the file unless it is a plain one with this content; blocks. Returns whether it was replaced.

    Raises HostError.
    """
    with contextlib.suppress(HostError):  # a file that cannot be read is replaced
        if read_plain(path, limit=len(data), follow=False) == data:
            return False
    write_atomic(path, data, mode=mode)
    return True


def is_unfinished(name: str) -> bool:
    """Whether this is a temporary file of `write_atomic`, or of a program with the same naming."""
    return name.startswith(".") and name.endswith(_UNFINISHED)


def remove_unfinished(directory: Path, *beginnings: str) -> None:
    """Remove the temporary files of files whose names begin like this, left by killed writers; blocks.

    Not safe with a second writer.
    """
    ours = tuple(f".{each}" for each in beginnings)
    for path in listed(directory):
        if path.name.startswith(ours) and is_unfinished(path.name):
            with contextlib.suppress(OSError):
                path.unlink()


_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device node",
    stat.S_IFBLK: "a device node",
    stat.S_IFSOCK: "a socket",
    stat.S_IFIFO: "a pipe",
}


def read_plain(path: Path, *, limit: int, follow: bool = True) -> bytes | None:
    """Return the content of a plain file of at most `limit` bytes, or None if it does not exist; blocks.

    With `follow`, a link to a plain file counts as one. Raises HostError for any other kind of file, and if the file is
    too large or cannot be read.
    """
    try:
        _must_be_plain(path, os.stat(path, follow_symlinks=follow).st_mode)  # opening a device may have side effects
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        with open(os.open(path, flags), "rb") as file:
            _must_be_plain(path, os.fstat(file.fileno()).st_mode)  # the file may have been replaced
            data = file.read(limit + 1)
    except FileNotFoundError:
        if follow and os.path.islink(path):
            raise HostError(f"cannot read {path}: it is a symbolic link to nothing") from None
        return None
    except OSError as cause:
        raise HostError(f"cannot read {path}: {reason_of(cause)}") from cause
    if len(data) > limit:
        raise HostError(f"cannot read {path}: it has more than {limit} bytes")
    return data


def _must_be_plain(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise HostError(f"cannot read {path}: it is {_KINDS.get(stat.S_IFMT(mode), 'not a plain file')}")


class _Version(BaseModel):
    version: int


def sealed(document: BaseModel) -> bytes:
    """Return a line with the document as JSON, and a line with its checksum. Read it with `unsealed`."""
    body = document.model_dump_json(exclude_defaults=True).encode()
    return b"%b\n%b\n" % (body, hashlib.sha256(body).hexdigest().encode())


def unsealed(text: bytes, model: type[Model], version: int) -> Model:
    """Return the document in this text. Raises ValueError if it is damaged or of another version."""
    body, _, checksum = text.partition(b"\n")
    try:
        found = _Version.model_validate_json(body).version
        if found != version:
            raise ValueError(f"it has version {found}, and this vdev knows version {version}")
        if hashlib.sha256(body).hexdigest().encode() != checksum.strip():
            raise ValueError("the file is damaged: its checksum does not fit")
        return model.model_validate_json(body)
    except ValidationError as wrong:
        raise ValueError("the file is damaged") from wrong


Stamp = tuple[int, int, int]


def listed(directory: Path) -> list[Path]:
    """Return the paths in a directory; none if it cannot be read."""
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def stamp(path: Path) -> Stamp | None:
    """Return a value that changes if the file is replaced or written; None if there is no file.

    The inode number alone is not enough, because file systems reuse it.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
