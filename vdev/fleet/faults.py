"""Fault rules in a fleet: those of its file, and those that commands inject. Each node has an engine of its own."""

from collections.abc import Mapping
from typing import Any

from .. import config
from ..aio.clock import Clock
from ..errors import UsageError
from ..faults.rule_store import Command, RuleStore
from ..faults.rules import FaultRule
from ..model.spec import Spec
from .member import Member
from .scope import without_effect


class FleetFaults:
    """The rules of a fleet, and the answers to `vdev fault` and `vdev device`."""

    def __init__(self, members: Mapping[str, Member], clock: Clock, *, allowed: bool) -> None:
        self.spec = Spec()
        self.store = RuleStore(
            lambda: {name: member.engine for name, member in members.items()},
            clock,
            self._parse,
            owner="this controller",
            allowed=allowed,
            void=without_effect,
        )

    def adopt(self, spec: Spec) -> None:
        """Take the rules of a configuration. Each node loads them when it is synced."""
        self.spec = spec
        self.store.configure(spec.faults.rules)

    @property
    def commands(self) -> Mapping[str, Command]:
        return {**self.store.commands, "status": _elsewhere, "top": _elsewhere}

    def _parse(self, text: str, name: str) -> tuple[FaultRule, ...]:
        """Read rules. Raises ConfigError, and UsageError for a rule that has no effect in a fleet."""
        found = config.load_rules(text, name, self.spec)
        for rule in found:
            if why := without_effect(rule):
                raise UsageError(f"the fault rule {rule.name!r} does nothing in a fleet: {why}")
        return found


async def _elsewhere(_request: Mapping[str, Any]) -> Any:
    raise UsageError("this process is the controller of a fleet; its page, /status and /metrics are at --http-address")
