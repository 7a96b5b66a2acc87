"""Fault injection in the agent: the rules in force, their files and commands, and faults that happen once.

`faults/engine.py` decides. This asks it in each reconciliation, wakes calls that wait for a rule, and carries out
faults that happen at a moment.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from .. import config
from ..faults.engine import Engine
from ..faults.rule_store import RuleStore
from ..faults.rules import DEVICE, FaultRule, words
from ..model.problem import Problem, warning
from ..model.spec import Spec
from ..observe.metrics import Metrics
from ..planning import cdi
from ..planning.resources import Inventory
from .options import Options

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)


class FaultControl:
    """The faults of one agent; `wake` asks for a reconciliation."""

    def __init__(self, options: Options, metrics: Metrics, *, wake: Callable[[], None]) -> None:
        self.engine = Engine(options.node, options.clock, metrics, on_change=wake)
        self.spec = Spec()
        self._node = options.node
        self.store = RuleStore(
            lambda: {self._node: self.engine},
            options.clock,
            lambda text, name: config.load_rules(text, name, self.spec),
            allowed=options.fault_injection,
            directory=options.fault_dir if options.fault_injection else None,
        )
        self._exit = options.exit

    def adopt(self, spec: Spec, base: Inventory) -> None:
        """Put the rules of a configuration in force, for the devices that it gives the node."""
        self.spec = spec
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
        files = self.engine.files
        there = await asyncio.to_thread(lambda: {name: os.path.exists(file) for name, file in files.items()})
        for name, file in files.items():
            if self.engine.files.get(name) == file:  # else it was cleared in the meantime
                self.engine.saw_file(name, exists=there[name])

    def cdi_faults(self, inventory: Inventory) -> Mapping[str, str]:
        """Return the faults of CDI files, by file name."""
        found: dict[str, str] = {}
        for name, resource in inventory.resources.items():
            fault = self.engine.cdi(name)
            if fault is not None:
                found |= {cdi.file_name(cdi.kind(entry.resource)): fault for entry in resource.entries.values()}
        return found

    async def act(self, agent: "Agent") -> None:
        """Carry out the faults that are due, and wake calls that wait for a rule."""
        for rule in self.engine.take_one_shots():
            if rule.process is not None:
                log.error("ending as a fault rule says", rule=rule.name, code=rule.process.exit, injected=True)
                self._exit(rule.process.exit)
            elif rule.api is not None:
                if agent.node_api.api is not None:
                    agent.node_api.api.break_watches()
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
            agent.holders.ask()  # a rule may have begun or ceased to hide PodResources
            agent.retrier.retry_now()  # the API server may answer again

    # --- status -------------------------------------------------------------------------------------------------------

    @property
    def active_rules(self) -> Mapping[str, str]:
        """The rules in force now, each with its effect in a few words."""
        return {name: words(run.rule) for name, run in self.engine.runs.items() if run.live and run.active}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Errors of files in the fault directory, and rules that select no device of this node but should."""
        idle = (
            warning(run.rule.where, f"the fault rule {name!r} selects no device that this node has now")
            for name, run in self.engine.runs.items()
            if run.live and run.rule.kind == DEVICE and not run.targets
            if not _is_elsewhere(run.rule, self.spec, self._node)
        )
        return (*self.store.problems, *idle)


def _is_elsewhere(rule: FaultRule, spec: Spec, node: str) -> bool:
    """Whether all entries whose devices the rule may mean are for other nodes."""
    meant = [
        entry
        for want in rule.devices.alternatives([entry.name for entry in spec.entries])
        for entry in spec.entries
        if fnmatchcase(entry.name, want.entry or "*") and fnmatchcase(entry.resource, want.resource or rule.resource)
    ]
    here = spec.on_node(node)
    return bool(meant) and not any(entry in here for entry in meant)
