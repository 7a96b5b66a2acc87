"""A file of the state directory: one JSON document that tells the next process what this one knew.

It is bounded, versioned and checked, is replaced as a whole, and says whose it is. What cannot be used is refused in a
sentence: the directory may have been copied with a machine's image, or be that of an older or newer vdev.
"""

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import structlog

from ..aio.clock import PRODUCTION_TIMING, Timing
from ..errors import HostError
from ..hostfs import read_plain, write_atomic
from ..hostfs.files import Stamp, listed, stamp

log = structlog.get_logger(__name__)

_HINT = "is --state-dir right, and writable?"
MAX_BYTES = 64 * 1024 * 1024


class RecordError(ValueError):
    """A record that cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose record it is: the node's name, and the directory of the kubelet that was told.

    `boot` tells one boot of the machine from another; empty where that is unknown.
    """

    node: str
    plugin_dir: str
    boot: str = ""


def path_of(directory: Path, kind: str, owner: Owner, suffix: str = ".json") -> Path:
    """One file per kubelet: agents of two kubelets on one machine may share the directory."""
    return directory / f"{kind}-{hashlib.sha256(os.fsencode(owner.plugin_dir)).hexdigest()[:8]}{suffix}"


class StateFile:
    """The file of one kind of record in `directory`."""

    def __init__(
        self,
        directory: Path,
        kind: str,
        owner: Owner,
        *,
        version: int,
        timing: Timing = PRODUCTION_TIMING,
    ) -> None:
        self.owner = owner
        self.path = path_of(directory, kind, owner)
        self._version = version
        self._patience = timing.intervals.state_file
        self._pause = timing.intervals.sync_state_file
        self._syncs = False  # whether it will soon
        self._clock = timing.clock
        self._stamp: Stamp | None = None  # of the file as it was last read or written; None: there is none
        self._look = False  # whether to compare with the disk
        self._watched = frozenset({self.path.parent})

    @classmethod
    def within(cls, directory: Path | None, kind: str, owner: Owner, *, version: int, timing: Timing) -> Self | None:
        """The file in the state directory, or none where there is no such directory."""
        if directory is None:
            return None
        return cls(directory, kind, owner, version=version, timing=timing)

    @property
    def directories(self) -> frozenset[Path]:
        return self._watched if self._stamp else frozenset()

    def recheck(self, changed: frozenset[str]) -> bool:
        """Let the next `stands` look at the disk; False when changes of these names say nothing of this file."""
        if self._stamp is None or (changed and self.path.name not in changed):
            return False
        self._look = True
        return True

    @property
    def is_known(self) -> bool:
        """Whether `stands` would say so without a look at the disk."""
        return self._stamp is not None and not self._look

    async def stands(self) -> bool:
        """Whether the file is the one last read or written; looks at the disk only after a `recheck`.

        What is written while it looks stands.
        """
        look, self._look = self._look, False
        known = self._stamp
        if look and known is not None:
            found = await asyncio.to_thread(stamp, self.path)
            if found != known and self._stamp is known:
                self._stamp = None
                log.warning("deleted or changed by something else; writing it again", file=str(self.path))
        return self._stamp is not None

    async def read(self, *, alone: bool = False) -> dict[str, Any] | None:
        """The document, or None when there is none. Raises HostError and RecordError, after a second at the latest.

        `alone`: no other process of this owner writes in the directory, and this one does not yet. What killed ones
        left half-written there is removed, of every kind.
        """
        try:
            async with self._clock.timeout(self._patience):
                return await asyncio.to_thread(self._read_alone if alone else self.read_now)
        except TimeoutError:
            raise HostError(f"it could not be read within {self._patience:g} s") from None

    def _read_alone(self) -> dict[str, Any] | None:
        _remove_unfinished(self.path.parent, path_of(Path(), "", self.owner).name)
        return self.read_now()

    def read_now(self) -> dict[str, Any] | None:
        """As `read`; blocks for as long as it takes."""
        self._stamp = stamp(self.path)
        text = read_plain(self.path, limit=MAX_BYTES)
        return None if text is None else unsealed(text, self.owner, version=self._version)

    def write(self, fields: Mapping[str, str]) -> None:
        """Replace the document; each field is JSON already. Blocks. Raises HostError."""
        text = sealed(fields, self.owner, version=self._version)
        if len(text) > MAX_BYTES:
            raise HostError(f"cannot write {self.path}: it would have more than {MAX_BYTES} bytes")
        directory, self._stamp = self.path.parent, None
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o750)
            write_atomic(self.path, text, mode=0o600)
            self._stamp = stamp(self.path)
        except OSError as failed:
            raise HostError(f"cannot make {directory}: {failed.strerror}; {_HINT}") from failed
        except HostError as failed:
            raise HostError(f"{failed}; {_HINT}") from failed

    def sync_soon(self) -> None:
        """Bring the file to the disk itself a moment later, once for all writes until then: nobody waits for it."""
        if not self._syncs:
            self._syncs = True
            self._clock.call_later(self._pause, self._sync)

    def _sync(self) -> None:
        self._syncs = False
        asyncio.get_running_loop().run_in_executor(None, self._bring_to_disk)

    def _bring_to_disk(self) -> None:
        for each in (self.path, self.path.parent):
            with contextlib.suppress(OSError):
                handle = os.open(each, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # it may be another's pipe by now
                try:
                    os.fsync(handle)
                finally:
                    os.close(handle)


class StateKeeper:
    """Keeps what it knows in a file; None: there is none, and nothing is written."""

    def __init__(self, file: StateFile | None) -> None:
        self._file = file
        self.path = file and file.path

    @property
    def directories(self) -> frozenset[Path]:
        return self._file.directories if self._file else frozenset()

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """Compare with the disk before the next writing; only the file itself says anything."""
        return self._file is not None and self._file.recheck(changed)

    async def stands(self) -> bool:
        return self._file is not None and await self._file.stands()


def _remove_unfinished(directory: Path, ending: str) -> None:
    for path in listed(directory):
        if path.name.startswith(".") and path.name.endswith(".tmp") and f"{ending}." in path.name:
            with contextlib.suppress(OSError):
                path.unlink()


def sealed(fields: Mapping[str, str], owner: Owner, *, version: int) -> bytes:
    """The document as a line of text; the second line is the sum of the first."""
    whose = {"version": version, "node": owner.node, "pluginDir": owner.plugin_dir, "boot": owner.boot}
    members = (f"{json.dumps(name)}: {value}" for name, value in fields.items())
    body = f"{json.dumps(whose)[:-1]}, {', '.join(members)}}}".encode()
    return b"".join((body, b"\n", _sum(body), b"\n"))  # one copy of megabytes


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode()


def unsealed(text: bytes, owner: Owner, *, version: int) -> dict[str, Any]:
    """The document that `sealed` made. Raises RecordError where it is another one's, of another version, or damaged."""
    body, _, rest = text.partition(b"\n")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("version"), int):
        raise RecordError("the file is damaged")
    if found["version"] != version:
        raise RecordError(f"it has version {found['version']}, and this vdev knows version {version}")
    if _sum(body) != rest.strip():
        raise RecordError("the file is damaged: its checksum does not fit")
    if (found.get("node"), found.get("pluginDir")) != (owner.node, owner.plugin_dir):
        raise RecordError(f"it is of node {found.get('node')!r} and kubelet directory {found.get('pluginDir')!r}")
    return found
