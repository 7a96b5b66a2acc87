"""The kernel log, or a file in its stead: a line for each Xid, once for each time that it begins.

What was said is written down, so that the next process does not say it again. After the machine's next boot it does:
then the log begins anew, too.
"""

import asyncio
import json
import os
import stat
from pathlib import Path

import structlog
from pydantic import TypeAdapter, ValidationError

from ...aio.timing import Timing
from ...core.decide import Plan
from ...core.faults.kernel_lines import KMSG, Occurrence, logged, occurrences, record
from ...core.model.problem import Problem, warning
from ...errors import HostError, reason_of
from ...hostfs import HostRoot
from ..state_file import Owner, RecordError, StateFile
from .base import Output

log = structlog.get_logger(__name__)

_VERSION = 1
_SAID: TypeAdapter[list[tuple[str, int, str, str]]] = TypeAdapter(list[tuple[str, int, str, str]])


class KernelLog(Output):
    """Writes where the configuration says, as `faults.kernelLog`. `directory` None: nothing outlives the process."""

    name = "writing Xids to the kernel log"

    def __init__(self, directory: Path | None, owner: Owner, host: HostRoot, timing: Timing) -> None:
        self._owner = owner
        self._host = host
        self._clock = timing.clock
        self._file = StateFile.within(directory, "kernel-log", owner, version=_VERSION, timing=timing)
        self._said: frozenset[Occurrence] = frozenset()
        self._recalled = False
        self._problem: Problem | None = None

    @property
    def problems(self) -> tuple[Problem, ...]:
        return (self._problem,) if self._problem else ()

    async def settle(self, plan: Plan) -> None:
        """Say what is new. Raises HostError where that cannot be written; then it is still to be said."""
        if not plan.kernel_log:
            self._said, self._recalled = frozenset(), True
            return
        now = occurrences(plan.xids, plan.devices, plan.base)
        if not self._recalled:
            self._said, self._recalled = await self._recall(), True
        before = self._said
        self._said &= now
        try:
            for each in sorted(now - self._said):
                await asyncio.to_thread(self._say, plan.kernel_log, each)
                log.info("Xid written to the kernel log", xid=each.number, device=each.raw, rule=each.rule)
                self._said |= {each}
        finally:
            if self._said != before:
                await asyncio.to_thread(self._keep)

    def _say(self, target: str, what: Occurrence) -> None:
        path = self._host.path(target) if target == KMSG else Path(target)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(path, flags & ~os.O_CREAT if target == KMSG else flags, 0o644)
            try:
                is_kernel = target == KMSG or stat.S_ISCHR(os.fstat(handle).st_mode)
                wall, uptime = self._clock.wall(), self._clock.now()
                for line in what.lines:
                    os.write(handle, record(line) if is_kernel else logged(line, self._owner.node, wall, uptime))
            finally:
                os.close(handle)
        except OSError as failed:
            raise HostError(
                f"cannot write Xid {what.number} of {what.raw} to {path}: {reason_of(failed)}; "
                "give vdev the right to, or name another file as faults.kernelLog"
            ) from failed

    async def _recall(self) -> frozenset[Occurrence]:
        """What an earlier process said since the machine's boot."""
        if self._file is None:
            return frozenset()
        try:
            found = await self._file.read()
            if found is None or found.get("boot") != self._owner.boot:
                return frozenset()
            return frozenset(Occurrence(*each) for each in _SAID.validate_python(found.get("said")))
        except (HostError, RecordError, ValidationError) as wrong:
            self._doubt(f"what was written to the kernel log before is not known: {wrong}")
            return frozenset()

    def _keep(self) -> None:
        if self._file is None:
            return
        said = [(each.raw, each.number, each.rule, each.address) for each in sorted(self._said)]
        try:
            self._file.write({"said": json.dumps(said)})
            self._problem = None
        except HostError as failed:
            self._doubt(f"what was written to the kernel log is not recorded: {failed}")

    def _doubt(self, what: str) -> None:
        assert self._file is not None
        hint = "as long as that is so, an Xid may be written again when vdev restarts"
        self._problem = warning(str(self._file.path), what, hint)
