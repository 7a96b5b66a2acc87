"""The kernel log, or a file instead: lines about each Xid in the form of NVIDIA's driver, once when it begins.

After a restart, vdev writes the current Xids again.

Sources: open-gpu-kernel-modules (a line that names the GPU comes before its first Xid); logs of drivers 535 to 580.
Readers: node-problem-detector's rules for GPUs, NVSentinel (syslog-health-monitor), gpud.
"""

import asyncio
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import structlog

from ..aio.clock import Clock
from ..errors import HostError, reason_of
from ..faults.rules import KMSG
from ..faults.xids import TEXTS
from ..hostfs import HostRoot
from ..model.device import bus_id
from ..planning.plan import DesiredState
from ..planning.resources import numbers
from .applier import Applier

log = structlog.get_logger(__name__)

_ERROR = 3  # the level of the driver's messages


class _Occurrence(NamedTuple):
    """An Xid of a whole device now."""

    raw: str  # the device's id
    number: int
    rule: str
    address: str  # on the PCI bus


class KernelLog(Applier):
    """Writes Xids to the target that the configuration names as `faults.kernelLog`."""

    name = "writing Xids to the kernel log"

    def __init__(self, node: str, host: HostRoot, clock: Clock) -> None:
        self._node = node
        self._host = host
        self._clock = clock
        self._written: frozenset[_Occurrence] = frozenset()

    async def apply(self, plan: DesiredState) -> None:
        """Write new Xids. Raises HostError if one cannot be written; it is tried again."""
        target = plan.observed.spec.faults.kernel_log
        now = _occurrences(plan) if target else frozenset()
        self._written &= now
        for each in sorted(now - self._written):
            await asyncio.to_thread(self._write, target, each)
            log.info("Xid written to the kernel log", xid=each.number, device=each.raw, rule=each.rule)
            self._written |= {each}

    def _write(self, target: str, what: _Occurrence) -> None:
        path = self._host.path(target) if target == KMSG else Path(target)
        place, text = what.address.rpartition(".")[0], TEXTS.get(what.number, "unknown error")
        xid = f"NVRM: Xid (PCI:{place}): {what.number}, pid='<unknown>', name=<unknown>, {text}."
        try:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(path, flags & ~os.O_CREAT if target == KMSG else flags, 0o644)
            try:
                is_kernel = target == KMSG or stat.S_ISCHR(os.fstat(handle).st_mode)
                prefix = f"<{_ERROR}>" if is_kernel else self._syslog_prefix()
                for line in (f"NVRM: GPU at PCI:{place}: {what.raw}", xid):
                    os.write(handle, f"{prefix}{line}\n".encode())
            finally:
                os.close(handle)
        except OSError as failed:
            raise HostError(
                f"cannot write Xid {what.number} of {what.raw} to {path}: {reason_of(failed)}; "
                "give vdev the right to, or name another file as faults.kernelLog"
            ) from failed

    def _syslog_prefix(self) -> str:
        when = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%b %e %H:%M:%S")
        return f"{when} {self._node} kernel: [{self._clock.now():12.6f}] "


def _occurrences(plan: DesiredState) -> frozenset[_Occurrence]:
    """The Xids of all whole devices, each once."""
    count = numbers(plan.observed.inventory)
    found = set()
    for (name, device), errors in plan.xids.items():
        resource = plan.devices.everything.get(name)
        known = resource.by_device.get(device) if resource is not None else None
        if known is not None:
            address = bus_id(known.raw, count.get(known.raw.id, known.raw.index))
            found |= {_Occurrence(known.raw.id, error.number, error.rule, address) for error in errors}
    return frozenset(found)
