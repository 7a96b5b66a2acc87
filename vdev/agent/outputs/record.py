"""The file that tells the next process what this one listed; what stands in it is decided in `record_form`.

It is written before what it describes is listed. A process that is killed at any moment thus leaves a record that names
at least what the kubelet was told; that it also survives a power cut is seen to a moment later.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import structlog

from ...core.decide import Plan
from ...core.inventory.resources import EMPTY, Inventory, Resource
from ...core.model.problem import Problem, warning
from ...errors import HostError
from ...hostfs import read_plain, write_atomic
from . import record_form
from .base import Output, Stage
from .record_form import Owner, RecordError

log = structlog.get_logger(__name__)

_PATIENCE = 1.0  # seconds that a start waits for the file: a device list must not wait for a dead file server


class Record(Output):
    """One node's record in a directory; None: there is none, and nothing is written."""

    name = "recording what is listed"
    stage = Stage.PREPARE

    def __init__(self, directory: Path | None, owner: Owner) -> None:
        self.path = None if directory is None else directory / _file_name(owner)
        self.problem: Problem | None = None
        self._owner = owner
        self._encoded: dict[str, tuple[frozenset[str], str]] = {}  # by resource: the ids, and their rows
        self._recorded: Mapping[str, frozenset[str]] | None = None  # the ids that are on disk

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why what an earlier process listed is not known."""
        return (self.problem,) if self.problem else ()

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

    async def settle(self, plan: Plan) -> None:
        """Write down what is about to be listed, where other ids are than the last time. Raises HostError."""
        resources = plan.inventory.resources
        if self.path is None or self._is_recorded(resources):
            return
        self._recorded = None
        await asyncio.to_thread(self._write, self.path, resources)
        self.problem, self._recorded = None, {name: each.ids for name, each in resources.items()}
        asyncio.get_running_loop().run_in_executor(None, _sync, self.path)  # nobody waits for a power cut

    def _is_recorded(self, resources: Mapping[str, Resource]) -> bool:
        known = self._recorded
        return (
            known is not None
            and known.keys() == resources.keys()
            and all(known[name] is each.ids or known[name] == each.ids for name, each in resources.items())
        )

    def _write(self, path: Path, resources: Mapping[str, Resource]) -> None:
        self._encoded = {name: self._rows(resource) for name, resource in resources.items()}
        text = record_form.document(self._owner, {name: rows for name, (_, rows) in self._encoded.items()})
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
        except OSError as failed:
            why = f"cannot make {path.parent}: {failed.strerror}; is --state-dir right, and writable?"
            raise HostError(why) from failed
        write_atomic(path, text, mode=0o600)

    def _rows(self, resource: Resource) -> tuple[frozenset[str], str]:
        known = self._encoded.get(resource.name)
        return known if known is not None and known[0] == resource.ids else (resource.ids, record_form.encode(resource))


def _sync(path: Path) -> None:
    """Bring the file to the disk itself."""
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
