"""Calls that failures on demand hold: they wait, hang or fail, until the rule ends or the server does."""

import asyncio
from typing import Protocol

from ..aio.clock import Clock
from ..aio.deadline import pause
from ..core.model.faults.fault_answers import CallFault
from ..errors import InjectedError


class RuleHooks(Protocol):
    """What is asked about a rule that hit a call."""

    def has(self, rule: str) -> bool:
        """Whether the rule is still there; a call that it delays goes on at once when somebody cleared it."""

    def holds(self, rule: str) -> bool:
        """Whether a call that this rule hangs must go on hanging."""


class HeldCalls:
    """The calls of one server."""

    def __init__(self, rules: RuleHooks, clock: Clock) -> None:
        self.closing = False
        self._rules = rules
        self._clock = clock
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Ask about the rules again."""
        self._poked.set()
        self._poked = asyncio.Event()

    def close(self) -> None:
        """Hold none any more, until `closing` is taken back."""
        self.closing = True
        self._poked.set()

    async def hold(self, fault: CallFault) -> bool:
        """Wait, hang or fail as the fault says. Whether its rule is still there, which may want a wrong answer.

        Raises InjectedError.
        """
        rule, effect = fault.rule, fault.effect
        if fault.delay:
            await pause(self._clock, fault.delay, goes_on=lambda: self._delays(rule), news=lambda: self._poked)
            if not self._rules.has(rule):
                return False
        if effect.hang:
            while self._rules.holds(rule) and not self.closing:
                await self._poked.wait()
            raise InjectedError("UNAVAILABLE", f"the call hung until the fault {rule!r} ended")
        if effect.fail is not None:
            raise InjectedError(effect.fail.code, effect.fail.message)
        return True

    def _delays(self, rule: str) -> bool:
        return self._rules.has(rule) and not self.closing
