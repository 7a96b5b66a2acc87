"""The file that tells the next process what this one listed; what stands in it is decided in `list_record_form`.

It is written before what it describes is listed. A process that is killed at any moment thus leaves a record that names
at least what the kubelet was told; that it also survives a power cut is seen to a moment later.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import structlog

from ...aio.timing import Timing
from ...core.decide import Plan
from ...core.inventory.resources import EMPTY, Inventory
from ...core.model.dra import DraPartitions
from ...core.model.problem import Problem, warning
from ...core.repartition import Progresses
from ...errors import HostError
from ..state_file import Owner, RecordError, StateFile, StateKeeper
from . import list_record_form
from .base import Output, Stage

log = structlog.get_logger(__name__)


class ListRecord(StateKeeper, Output):
    """One node's record in a directory; None: there is none, and nothing is written."""

    name = "recording what is listed"
    stage = Stage.PREPARE

    def __init__(self, directory: Path | None, owner: Owner, timing: Timing) -> None:
        super().__init__(StateFile.within(directory, "listed", owner, version=list_record_form.VERSION, timing=timing))
        self.problem: Problem | None = None
        self.choices: Progresses = {}  # what had become of layouts that labels chose, once it was read
        self._recorded: Mapping[str, str] | None = None  # what is on disk

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why what an earlier process listed is not known."""
        return (self.problem,) if self.problem else ()

    async def read(self) -> Inventory:
        """What an earlier process listed; empty where that cannot be known. For the process that serves the node."""
        if self._file is None:
            return EMPTY
        try:
            found = await self._file.read(alone=True)
            if found is not None:
                inventory = await asyncio.to_thread(list_record_form.read, found, self._file.owner.boot)
                self.choices = list_record_form.read_choices(found)
                return inventory
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
        """Write down what is about to be listed, where it is new or the file is gone. Raises HostError."""
        if self._file is None:
            return
        wanted = await asyncio.to_thread(list_record_form.document, plan.inventory, plan.choices, _claimable(plan))
        if wanted == self._recorded and await self._file.stands():
            return
        self._recorded = None
        await asyncio.to_thread(self._file.write, wanted)
        self.problem, self._recorded = None, wanted
        self._file.sync_soon()  # so that it survives a power cut


def _claimable(plan: Plan) -> frozenset[str]:
    """The entries whose devices claims get as layouts cut them."""
    entries = [entry for offered in plan.base.claimable.values() for entry in offered.entries.values()]
    return frozenset(each.name for each in entries if each.dra and each.dra.partitions is DraPartitions.STATIC)
