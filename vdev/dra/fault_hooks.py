"""Where failures on demand reach a DRA driver: what it asks before it answers."""

from collections.abc import Iterable
from typing import Protocol

from ..core.model.faults.fault_answers import CallFault
from ..core.model.faults.fault_effects import ClaimCall, HealthStreamFault
from ..sockets.held_calls import RuleHooks


class FaultHooks(RuleHooks, Protocol):
    """The questions. Who implements them calls `DraDriver.poke` when an answer changes."""

    def on_call(self, call: ClaimCall, driver: str, /) -> CallFault | None:
        """What happens to this call; asked once per call."""

    def on_health(self, driver: str) -> HealthStreamFault | None:
        """What happens to the driver's health streams now."""

    def allocated(self, driver: str, ids: Iterable[str], /) -> None:
        """Devices of these ids were prepared for a claim that had none before."""
