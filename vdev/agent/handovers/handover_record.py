"""The file that tells the next process who held what, and which releases are still to be done."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from pydantic import TypeAdapter, ValidationError

from ...aio.timing import Timing
from ...core.model.problem import Problem, warning
from ...core.retention import handovers
from ...core.retention.handovers import EMPTY, Handover, Ledger, Tenant
from ...errors import HostError
from ..state_file import Owner, RecordError, StateFile, StateKeeper

log = structlog.get_logger(__name__)

_VERSION = 1
_MISSED = "as long as that is so, a release may be missed when vdev restarts"
_TENANTS: TypeAdapter[list[tuple[str, str, int, str]]] = TypeAdapter(list[tuple[str, str, int, str]])
_GRANTED: TypeAdapter[list[tuple[str, str]]] = TypeAdapter(list[tuple[str, str]])
_LAST: TypeAdapter[int] = TypeAdapter(int)


class HandoverRecord(StateKeeper):
    """One node's ledger in a directory; None: there is none, and nothing is written."""

    def __init__(self, directory: Path | None, owner: Owner, timing: Timing) -> None:
        super().__init__(StateFile.within(directory, "handovers", owner, version=_VERSION, timing=timing))
        self.problem: Problem | None = None
        self._patience = timing.intervals.state_file
        self._clock = timing.clock
        self._written = EMPTY
        self._turn = asyncio.Lock()

    async def read(self) -> Ledger:
        """What an earlier process knew; empty where that cannot be known."""
        if self._file is None:
            return EMPTY
        try:
            found = await self._file.read()
            ledger = EMPTY if found is None else _ledger(found)
        except (HostError, RecordError) as wrong:
            self._doubt(f"the record of who held devices is not used: {wrong}", "who holds them now is taken as it is")
            return EMPTY
        self._written = ledger
        return handovers.recalled(ledger)

    async def write(self, ledger: Ledger) -> None:
        """Write it down where it is new or the file is gone. A failure is a problem, and stops nothing."""
        if self._file is None or ledger == self._written == EMPTY:
            return
        if ledger is self._written and self._file.is_known and not self._turn.locked():
            return
        try:
            async with self._clock.timeout(self._patience), self._turn:
                if ledger == self._written and await self._file.stands():
                    return
                await asyncio.to_thread(self._file.write, _fields(ledger))
                self.problem, self._written = None, ledger
        except TimeoutError:
            self._doubt(f"who holds devices is not recorded: it took longer than {self._patience:g} s", _MISSED)
        except HostError as failed:
            self._doubt(f"who holds devices is not recorded: {failed}", _MISSED)
        else:
            self._file.sync_soon()  # so that it survives a power cut

    def _doubt(self, what: str, hint: str) -> None:
        assert self._file is not None
        problem = warning(str(self._file.path), what, hint)
        if problem != self.problem:
            log.warning("record of holders not used", file=str(self._file.path), reason=what)
        self.problem = problem


def _fields(ledger: Ledger) -> Mapping[str, str]:
    tenants = [(*key, each.holder, each.pod) for key, each in sorted(ledger.tenants.items())]
    owed, arriving = ([each[:4] for each in due] for due in (ledger.owed, ledger.arriving))
    granted = sorted(ledger.granted)
    parts = {"tenants": tenants, "granted": granted, "owed": owed, "arriving": arriving, "last": ledger.last}
    return {name: json.dumps(part, separators=(",", ":")) for name, part in parts.items()}


def _ledger(found: Mapping[str, Any]) -> Ledger:
    try:
        tenants = _TENANTS.validate_python(found.get("tenants"))
        granted = _GRANTED.validate_python(found.get("granted"))
        owed = _TENANTS.validate_python(found.get("owed"))
        arriving = _TENANTS.validate_python(found.get("arriving"))
        last = _LAST.validate_python(found.get("last"))
    except ValidationError as wrong:
        raise RecordError("the file is damaged") from wrong
    return Ledger(
        tenants={(resource, slot): Tenant(holder, pod) for resource, slot, holder, pod in tenants},
        granted=frozenset(granted),
        owed=tuple(Handover(*each) for each in owed),
        arriving=tuple(Handover(*each) for each in arriving),
        last=last,
    )
