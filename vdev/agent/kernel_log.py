"""The kernel log, or a file instead: a line for each Xid, once each time that it begins.

After a restart, vdev writes the current Xids again.
"""

import asyncio
import os
import stat
from pathlib import Path

import structlog

from ..aio.clock import Clock
from ..errors import HostError, reason_of
from ..faults.kernel_lines import Occurrence, logged, occurrences, record
from ..faults.rules import KMSG
from ..hostfs import HostRoot
from ..planning.plan import DesiredState
from .applier import Applier

log = structlog.get_logger(__name__)


class KernelLog(Applier):
    """Writes Xids to the target that the configuration names as `faults.kernelLog`."""

    name = "writing Xids to the kernel log"

    def __init__(self, node: str, host: HostRoot, clock: Clock) -> None:
        self._node = node
        self._host = host
        self._clock = clock
        self._written: frozenset[Occurrence] = frozenset()

    async def apply(self, plan: DesiredState) -> None:
        """Write new Xids. Raises HostError if one cannot be written; it is tried again."""
        if not plan.observed.spec.faults.kernel_log:
            self._written = frozenset()
            return
        now = occurrences(plan.xids, plan.devices, plan.observed.inventory)
        self._written &= now
        for each in sorted(now - self._written):
            await asyncio.to_thread(self._write, plan.observed.spec.faults.kernel_log, each)
            log.info("Xid written to the kernel log", xid=each.number, device=each.raw, rule=each.rule)
            self._written |= {each}

    def _write(self, target: str, what: Occurrence) -> None:
        path = self._host.path(target) if target == KMSG else Path(target)
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(path, flags & ~os.O_CREAT if target == KMSG else flags, 0o644)
            try:
                is_kernel = target == KMSG or stat.S_ISCHR(os.fstat(handle).st_mode)
                wall, uptime = self._clock.wall(), self._clock.now()
                for line in what.lines:
                    os.write(handle, record(line) if is_kernel else logged(line, self._node, wall, uptime))
            finally:
                os.close(handle)
        except OSError as failed:
            raise HostError(
                f"cannot write Xid {what.number} of {what.raw} to {path}: {reason_of(failed)}; "
                "give vdev the right to, or name another file as faults.kernelLog"
            ) from failed
