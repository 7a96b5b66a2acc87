"""Fault rules in a fleet: those of its file, and those that commands inject. Each node has an engine of its own."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .. import config
from ..aio.clock import Clock
from ..errors import UsageError
from ..faults.commands import Command, FaultCommands, not_allowed, rule_document
from ..faults.engine import Engine
from ..faults.rule_store import RuleStore
from ..faults.rules import FaultRule
from ..model.device import Slot
from ..model.spec import Spec
from .member import Member
from .scope import without_effect

_SHOWN = 8  # devices of a rule in the status


class FleetFaults:
    """The rules of a fleet, and the answers to `vdev fault` and `vdev device`."""

    def __init__(self, members: Mapping[str, Member], clock: Clock, *, allowed: bool) -> None:
        self._allowed = allowed
        self.spec = Spec()
        self.store = RuleStore(self._engines, clock, self._parse)
        self._clock = clock
        self._members = members

    def adopt(self, spec: Spec) -> None:
        """Take the rules of a configuration. Each node loads them in its turn."""
        self.spec = spec
        self.store.configure(spec.faults.rules)

    def _engines(self) -> list[Engine]:
        """The engines of all nodes, with the labels that the Nodes have now."""
        for member in self._members.values():
            member.relabel()
        return [member.engine for member in self._members.values()]

    @property
    def commands(self) -> Mapping[str, Command]:
        refusal = "" if self._allowed else not_allowed("this controller")
        own = FaultCommands(self.store, nodes=self._slots, is_fleet=True, status=self.status, refusal=refusal)
        return {**own.by_name, "status": _elsewhere, "top": _elsewhere}

    def _parse(self, text: str, name: str) -> tuple[FaultRule, ...]:
        """Read rules. Raises ConfigError, and UsageError for a rule that has no effect in a fleet."""
        found = config.load_rules(text, name, self.spec)
        for rule in found:
            if why := without_effect(rule):
                raise UsageError(f"the fault rule {rule.name!r} does nothing in a fleet: {why}")
        return found

    def _slots(self) -> Mapping[str, Iterable[Slot]]:
        plans = {name: member.plan for name, member in self._members.items()}
        return {
            name: (slot for each in plan.observed.inventory.everything.values() for slot in each.slots) if plan else ()
            for name, plan in plans.items()
        }

    # --- the status ---------------------------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """The rules and their state on all nodes; the keys are those of an agent, and more."""
        rules = {name: run.rule for member in self._members.values() for name, run in member.engine.runs.items()}
        documents = [self._document(name, rule) for name, rule in rules.items()]
        return {
            "enabled": self._allowed,
            "active": sum(each["state"].startswith("active") for each in documents),
            "rules": documents,
        }

    def _document(self, name: str, rule: FaultRule) -> dict[str, Any]:
        runs = {node: run for node, each in self._members.items() if (run := each.engine.runs.get(name)) is not None}
        here = {node: run for node, run in runs.items() if run.live and not without_effect(rule)}
        active = {node: run for node, run in here.items() if run.active}
        changes = [run.changes_at for run in here.values() if run.changes_at is not None]
        injected = sum((run.injections for run in runs.values()), Counter[str]())
        devices = [f"{node}/{key[1]}" for node, run in active.items() for key in sorted(run.targets)]
        state = f"active on {len(active)} of {len(here)} nodes" if active else "waiting" if here else "for no node here"
        state = "does nothing in a fleet" if without_effect(rule) else state
        source = next(iter(runs.values())).source
        return {
            **rule_document(rule, source, state, min(changes, default=None), self._clock.now(), injected),
            "devices": devices[:_SHOWN],
            "nodes": len(active),
        }


async def _elsewhere(_request: Mapping[str, Any]) -> Any:
    raise UsageError("this process is the controller of a fleet; its page, /status and /metrics are at --http-address")
