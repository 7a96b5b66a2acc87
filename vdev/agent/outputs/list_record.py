"""The file that tells the next process what this one listed; what stands in it is decided in `list_record_form`.

It is written before what it describes is listed. A process that is killed at any moment thus leaves a record that names
at least what the kubelet was told; that it also survives a power cut is seen to a moment later.
"""

import asyncio
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

import structlog

from ...aio.timing import Timing
from ...core.decide import Plan
from ...core.inventory.resources import EMPTY, Inventory, Resource
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
        self._encoded: dict[str, tuple[_Subject, str]] = {}  # by resource: what its rows are of, and they
        self.choices: Progresses = {}  # what had become of layouts that labels chose, once it was read
        self._recorded: _Recorded | None = None  # what is on disk

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
        subjects = {
            name: _Subject(plan.base.resources.get(name), resource.ids)
            for name, resource in plan.inventory.resources.items()
        }
        wanted = (subjects, list_record_form.told(plan.choices), list_record_form.cuts(plan.choices, _claimable(plan)))
        if self._file is None or (wanted == self._recorded and await self._file.stands()):
            return
        self._recorded = None
        await asyncio.to_thread(self._write, self._file, plan, subjects)
        self.problem, self._recorded = None, wanted
        self._file.sync_soon()  # so that it survives a power cut

    def _write(self, file: StateFile, plan: Plan, subjects: Mapping[str, "_Subject"]) -> None:
        resources = plan.inventory.resources
        self._encoded = {name: self._rows(resource, subjects[name]) for name, resource in resources.items()}
        file.write(
            list_record_form.document(
                {name: rows for name, (_, rows) in self._encoded.items()}, plan.choices, _claimable(plan)
            )
        )

    def _rows(self, resource: Resource, subject: "_Subject") -> tuple["_Subject", str]:
        known = self._encoded.get(resource.name)
        return known if known is not None and known[0] == subject else (subject, list_record_form.encode(resource))


class _Subject:
    """What the rows of a resource say: its ids, and the devices as discovery has them now (health aside).

    A device that is plugged in again may have other numbers under the same id. Discovery's object stays the same one as
    long as nothing is new, so that a change of health is told from that without a look at each device.
    """

    __slots__ = ("_base", "_ids")

    def __init__(self, base: Resource | None, ids: AbstractSet[str]) -> None:
        self._base = base
        self._ids = ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Subject) or self._base is not other._base:
            return False
        return self._ids is other._ids or self._ids == other._ids

    __hash__ = None  # type: ignore[assignment]  # compared, never a key


def _claimable(plan: Plan) -> frozenset[str]:
    """The entries whose devices claims get as layouts cut them."""
    entries = [entry for offered in plan.base.claimable.values() for entry in offered.entries.values()]
    return frozenset(each.name for each in entries if each.dra and each.dra.partitions is DraPartitions.STATIC)


_Recorded = tuple[Mapping[str, _Subject], Mapping[str, Sequence[str | None]], Mapping[str, object]]
