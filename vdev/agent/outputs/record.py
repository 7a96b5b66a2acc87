"""The file that tells the next process what this one listed; what stands in it is decided in `record_form`.

It is written before what it describes is listed. A process that is killed at any moment thus leaves a record that names
at least what the kubelet was told; that it also survives a power cut is seen to a moment later.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from ...core.decide import Plan
from ...core.inventory.resources import EMPTY, Inventory, Resource
from ...core.model.problem import Problem, warning
from ...errors import HostError
from ..state_file import Owner, RecordError, StateFile
from . import record_form
from .base import Output, Stage

log = structlog.get_logger(__name__)


class Record(Output):
    """One node's record in a directory; None: there is none, and nothing is written."""

    name = "recording what is listed"
    stage = Stage.PREPARE

    def __init__(self, directory: Path | None, owner: Owner) -> None:
        file = None if directory is None else StateFile(directory, "listed", owner, version=record_form.VERSION)
        self.path = file and file.path
        self.problem: Problem | None = None
        self._file = file
        self._encoded: dict[str, tuple[frozenset[str], str]] = {}  # by resource: the ids, and their rows
        self._recorded: Mapping[str, frozenset[str]] | None = None  # the ids that are on disk

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why what an earlier process listed is not known."""
        return (self.problem,) if self.problem else ()

    async def read(self) -> Inventory:
        """What an earlier process listed; empty where that cannot be known."""
        if self._file is None:
            return EMPTY
        try:
            found = await self._file.read()
            return EMPTY if found is None else await asyncio.to_thread(record_form.read, found, self._file.owner.boot)
        except (HostError, RecordError) as wrong:
            self._doubt(str(wrong))
        return EMPTY

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
        if self._file is None or self._is_recorded(resources):
            return
        self._recorded = None
        await asyncio.to_thread(self._write, self._file, resources)
        self.problem, self._recorded = None, {name: each.ids for name, each in resources.items()}
        asyncio.get_running_loop().run_in_executor(None, self._file.sync)  # nobody waits for a power cut

    def _is_recorded(self, resources: Mapping[str, Resource]) -> bool:
        known = self._recorded
        return (
            known is not None
            and known.keys() == resources.keys()
            and all(known[name] is each.ids or known[name] == each.ids for name, each in resources.items())
        )

    def _write(self, file: StateFile, resources: Mapping[str, Resource]) -> None:
        self._encoded = {name: self._rows(resource) for name, resource in resources.items()}
        file.write(record_form.document({name: rows for name, (_, rows) in self._encoded.items()}))

    def _rows(self, resource: Resource) -> tuple[frozenset[str], str]:
        known = self._encoded.get(resource.name)
        return known if known is not None and known[0] == resource.ids else (resource.ids, record_form.encode(resource))
