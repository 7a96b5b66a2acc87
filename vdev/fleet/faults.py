"""Fault rules in a fleet: those of its file, and those that commands inject.

Each node has an engine of its own. A rule of a command reaches all of them, also those of later nodes. The time of a
rule counts from the same moment on all nodes, no matter when the API server listed them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from .. import config
from ..aio.clock import Clock
from ..errors import UsageError
from ..faults.commands import Command, FaultCommands, not_allowed, rule_document
from ..faults.engine import Engine
from ..faults.rule_run import RuleRun, needs_seed
from ..faults.rule_store import RuleStore, Sources
from ..faults.rules import FaultRule
from ..model.device import Slot
from ..model.spec import Spec
from .member import Member
from .scope import without_effect

_SHOWN = 8  # devices of a rule in the status


class FleetRules:
    """The rules of all nodes, for `RuleStore` as if there were one node."""

    def __init__(self, members: Mapping[str, Member], clock: Clock) -> None:
        self.clock = clock
        self.sources: Sources = {}
        self.since: dict[str, float] = {}  # when the time of each rule began
        self._members = members
        self._rules: dict[str, FaultRule] = {}
        self._cleared: set[str] = set()

    def note(self, sources: Sources, now: float) -> None:
        """Take other rules. New and changed ones begin now; the others go on.

        Nodes load them in their turns.
        """
        before, self.sources = self._rules, sources
        self._rules = {rule.name: rule for rules in sources.values() for rule in rules}
        for name, rule in self._rules.items():
            old = before.get(name)
            if old is None or old != rule or (old.seed != rule.seed and needs_seed(rule)):
                self.since[name] = now
                self._cleared.discard(name)
        self.since = {name: self.since[name] for name in self._rules}

    def meet(self, engine: Engine) -> None:
        """Clear rules on a new node that were cleared on the others before."""
        for name in self._cleared & engine.runs.keys():
            engine.clear(name)

    @property
    def runs(self) -> Mapping[str, RuleRun]:
        """Each rule with its state on one node, if possible one that the rule concerns."""
        found: dict[str, RuleRun] = {}
        for each in self.engines:
            found |= {name: run for name, run in each.runs.items() if run.live or name not in found}
        return found

    def load(self, sources: Sources) -> None:
        """Replace all rules on all nodes."""
        self.note(sources, self.clock.now())
        minds_labels = any(rule.nodes.labels for rule in self._rules.values())
        for member in self._members.values():
            if minds_labels:
                member.relabel()
            member.engine.load(sources, since=self.since)

    def clear(self, name: str) -> None:
        for engine in self._with(name):
            engine.clear(name)
        self._cleared.add(name)

    def trigger(self, name: str) -> None:
        """Start a rule's fault now on every node that it concerns. Raises UsageError."""
        concerned = [engine for engine in self._with(name) if engine.runs[name].here]
        if not concerned:
            raise UsageError(f"no node of the fleet is concerned by the rule {name!r}")
        for engine in concerned:
            engine.trigger(name)
        self._cleared.discard(name)

    @property
    def engines(self) -> list[Engine]:
        return [member.engine for member in self._members.values()]

    def _with(self, name: str) -> list[Engine]:
        found = [engine for engine in self.engines if name in engine.runs]
        if not found:
            known = sorted(self.runs)
            raise UsageError(f"there is no fault rule {name!r}; the rules are: {', '.join(known) or 'none'}")
        return found


class FleetFaults:
    """The rules of a fleet, and the answers to `vdev fault` and `vdev device`."""

    def __init__(self, members: Mapping[str, Member], clock: Clock, *, allowed: bool) -> None:
        self._allowed = allowed
        self.spec = Spec()
        self.rules = FleetRules(members, clock)
        self._members = members
        self._store = RuleStore(self.rules, self._parse)

    def adopt(self, spec: Spec, now: float) -> None:
        self.spec = spec
        self._store.configure(spec.faults.rules)
        self.rules.note(self._store.sources, now)

    @property
    def commands(self) -> Mapping[str, Command]:
        refusal = "" if self._allowed else not_allowed("this controller")
        own = FaultCommands(self._store, nodes=self._slots, is_fleet=True, status=self.status, refusal=refusal)
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
        rules = {name: run.rule for engine in self.rules.engines for name, run in engine.runs.items()}
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
            **rule_document(rule, source, state, min(changes, default=None), self.rules.clock.now(), injected),
            "devices": devices[:_SHOWN],
            "nodes": len(active),
        }


async def _elsewhere(_request: Mapping[str, Any]) -> Any:
    raise UsageError("this process is the controller of a fleet; its page, /status and /metrics are at --http-address")
