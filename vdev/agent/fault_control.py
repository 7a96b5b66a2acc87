"""Fault injection in the agent: the rules in force, their files and commands, faults that happen once, and Xids.

`faults/engine.py` decides which rules are active. This module asks it in each reconciliation, wakes calls that wait for
a rule, and carries out faults that happen once. An applier writes the Xids of devices to the kernel log.
"""

import asyncio
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import structlog

from .. import config
from ..aio.clock import Clock
from ..errors import HostError, reason_of
from ..faults.engine import Engine
from ..faults.rule_store import RuleStore
from ..faults.rules import KMSG, words
from ..faults.xids import TEXTS
from ..hostfs import HostRoot
from ..model.device import bus_id
from ..model.spec import Spec
from ..planning import cdi
from ..planning.plan import DesiredState
from ..planning.resources import Inventory, numbers
from .applier import Applier

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)


class FaultControl:
    def __init__(self, agent: "Agent") -> None:
        options = agent.options
        self.engine = Engine(options.node_name, options.clock, agent.metrics, on_change=agent.pending.add)
        self._agent = agent
        self.store = RuleStore(
            lambda: {options.node_name: self.engine},
            options.clock,
            lambda text, name: config.load_rules(text, name, agent.reconciler.spec),
            allowed=options.fault_injection,
            directory=options.fault_dir,
        )

    def adopt(self, spec: Spec, base: Inventory) -> None:
        """Put the rules of a configuration in force, for the devices in `base`."""
        self.store.configure(spec.faults.rules)
        self.engine.load(self.store.rules)
        self.engine.meet(base)

    @property
    def directories(self) -> frozenset[Path]:
        found = {self.store.directory} if self.store.directory is not None else set()
        for run in self.engine.runs.values():
            if run.rule.on_file:
                found.add(Path(run.rule.on_file).parent)
        return frozenset(found)

    async def look_at_files(self) -> None:
        """Read the fault directory, and find out which files exist that rules wait for."""
        await self.store.scan()
        for run in [*self.engine.runs.values()]:
            if run.rule.on_file:
                self.engine.saw_file(run, exists=await asyncio.to_thread(os.path.exists, run.rule.on_file))

    def cdi_faults(self, inventory: Inventory) -> Mapping[str, str]:
        """Return the faults of CDI files, by file name."""
        found: dict[str, str] = {}
        for name, resource in inventory.resources.items():
            fault = self.engine.cdi(name)
            if fault is not None:
                found |= {cdi.file_name(cdi.kind(entry.resource)): fault for entry in resource.entries.values()}
        return found

    async def act(self) -> None:
        """Carry out the faults that are due, and wake calls that wait for a rule."""
        agent = self._agent
        for rule in self.engine.take_one_shots():
            if rule.process is not None:
                log.error("exiting because of a fault rule", rule=rule.name, code=rule.process.exit, injected=True)
                agent.options.exit(rule.process.exit)
            elif rule.api is not None:
                await (
                    agent.node_api.api.connection.aclose()
                )  # open watches end, and the rule applies to the next requests
            elif rule.slices is not None:
                agent.dra.slices.wipe(rule.concerns)
            elif rule.event is not None:
                agent.node_api.events.announce(rule.event)
            else:
                await agent.lists.inject(rule)
        if self.engine.answers_changed:
            for service in agent.lists.services.values():
                service.recheck_faults()
            agent.dra.recheck_faults()
            agent.holders.ask()  # a rule may have started or stopped hiding PodResources
            agent.retrier.retry_now()  # the API server may answer again

    # --- status -------------------------------------------------------------------------------------------------------

    @property
    def active_rules(self) -> Mapping[str, str]:
        """The rules in force now, each with its effect in a few words."""
        return {name: words(run.rule) for name, run in self.engine.runs.items() if run.live and run.active}


# --- the kernel log ---------------------------------------------------------------------------------------------------

_ERROR = 3  # the level of the driver's messages


class _Occurrence(NamedTuple):
    """An active Xid of a whole device."""

    raw: str  # the device's id
    number: int
    rule: str
    address: str  # on the PCI bus


class KernelLog(Applier):
    """Writes Xids to the target that the configuration names as `faults.kernelLog`: the kernel log, or a file instead.

    The lines about an Xid have the form of NVIDIA's driver, and are written once when it begins, and again after a
    restart.

    Sources: open-gpu-kernel-modules (a line that names the GPU comes before its first Xid); logs of drivers 535 to 580.
    Readers: node-problem-detector's rules for GPUs, NVSentinel (syslog-health-monitor), gpud.
    """

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
        is_kernel = target == KMSG
        path = self._host.path(target) if is_kernel else Path(target)
        prefix = f"<{_ERROR}>" if is_kernel else self._syslog_prefix()
        place, text = what.address.rpartition(".")[0], TEXTS.get(what.number, "unknown error")
        xid = f"NVRM: Xid (PCI:{place}): {what.number}, pid='<unknown>', name=<unknown>, {text}."
        flags = os.O_WRONLY | os.O_APPEND | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(path, flags if is_kernel else flags | os.O_CREAT, 0o644), "wb", buffering=0) as log_file:
                for line in (f"NVRM: GPU at PCI:{place}: {what.raw}", xid):
                    log_file.write(f"{prefix}{line}\n".encode())  # each write to the kernel log is a line
        except OSError as failed:
            raise HostError(
                f"cannot write Xid {what.number} of {what.raw} to {path}: {reason_of(failed)}; "
                "give vdev the permission, or name another file as faults.kernelLog"
            ) from failed

    def _syslog_prefix(self) -> str:
        when = datetime.fromtimestamp(self._clock.wall(), UTC).strftime("%b %e %H:%M:%S")
        return f"{when} {self._node} kernel: [{self._clock.now():12.6f}] "


def _occurrences(plan: DesiredState) -> frozenset[_Occurrence]:
    """Return the Xids of all whole devices, each once."""
    count = numbers(plan.observed.inventory)
    found = set()
    for (name, device), errors in plan.xids.items():
        resource = plan.devices.everything.get(name)
        known = resource.by_device.get(device) if resource is not None else None
        if known is not None:
            address = bus_id(known.raw, count.get(known.raw.id, known.raw.index))
            found |= {_Occurrence(known.raw.id, error.number, error.rule, address) for error in errors}
    return frozenset(found)
