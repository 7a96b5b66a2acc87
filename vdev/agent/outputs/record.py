"""The file that tells the next process what this one listed; what stands in it is decided in `record_form`.

It is written before what it describes is listed. A process that is killed at any moment thus leaves a record that names
at least what the kubelet was told. It survives a power cut a moment later: `sync` is not waited for.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from ...core.inventory.resources import EMPTY, Inventory, Resource
from ...core.model.problem import Problem, warning
from ...errors import HostError
from ...hostfs import read_plain, write_atomic
from . import record_form
from .record_form import Owner, RecordError

log = structlog.get_logger(__name__)

_PATIENCE = 1.0  # seconds that a start waits for the file: a device list must not wait for a dead file server


class Record:
    """One node's record in a directory; None: there is none, and nothing is written.

    `problem` says what is wrong with it at the moment. It never stops anything.
    """

    def __init__(self, directory: Path | None, owner: Owner) -> None:
        self.path = None if directory is None else directory / _file_name(owner)
        self.problem: Problem | None = None
        self._owner = owner
        self._encoded: dict[str, tuple[frozenset[str], str]] = {}  # by resource: the ids, and their rows
        self._written: bytes | None = None

    async def read(self) -> Inventory:
        """What an earlier process listed; empty where that cannot be known."""
        if self.path is None:
            return EMPTY
        try:
            async with asyncio.timeout(_PATIENCE):
                return await asyncio.to_thread(self._read, self.path)
        except TimeoutError:
            self._doubt(f"it could not be read within {_PATIENCE:g} s")
        except (HostError, RecordError) as wrong:
            self._doubt(str(wrong))
        return EMPTY

    def _read(self, path: Path) -> Inventory:
        text = read_plain(path, limit=record_form.MAX_BYTES)
        return EMPTY if text is None else record_form.read(text, self._owner)

    def _doubt(self, why: str) -> None:
        self.problem = warning(
            str(self.path),
            f"the record of what was listed is not used: {why}",
            "what pods hold is known from the kubelet and from device ids alone; the next list replaces the record",
        )
        log.warning("record not used", file=str(self.path), reason=why)

    async def write(self, wanted: Inventory) -> None:
        """Write down what is about to be listed, where that differs from the last time. Raises HostError."""
        if self.path is not None:
            await asyncio.to_thread(self._write, self.path, wanted.resources)

    def _write(self, path: Path, resources: Mapping[str, Resource]) -> None:
        self._encoded = {name: self._rows(resource) for name, resource in resources.items()}
        text = record_form.document(self._owner, {name: rows for name, (_, rows) in self._encoded.items()})
        if text == self._written:
            return
        self._written = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            write_atomic(path, text, mode=0o600)
        except OSError as failed:
            raise HostError(
                f"cannot make {path.parent}: {failed.strerror}; is --state-dir right, and writable?"
            ) from failed
        self.problem, self._written = None, text

    def _rows(self, resource: Resource) -> tuple[frozenset[str], str]:
        known = self._encoded.get(resource.name)
        return known if known is not None and known[0] == resource.ids else (resource.ids, record_form.encode(resource))

    async def sync(self) -> None:
        """Bring the file to the disk itself, so that it outlives a power cut."""
        if self.path is not None:
            await asyncio.to_thread(_sync, self.path)


def _sync(path: Path) -> None:
    for each in (path, path.parent):
        with contextlib.suppress(OSError):
            handle = os.open(each, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _file_name(owner: Owner) -> str:
    """One file per kubelet: agents of two kubelets on one machine may share the directory."""
    return f"listed-{hashlib.sha256(owner.plugin_dir.encode()).hexdigest()[:8]}.json"
