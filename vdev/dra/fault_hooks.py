"""Where failures on demand reach a DRA driver: what it asks before it answers."""

from collections.abc import Iterable
from typing import Protocol

from ..core.model.faults.fault_answers import ClaimFault
from ..core.model.faults.fault_effects import ClaimCall, HealthStreamFault


class FaultHooks(Protocol):
    """The questions. Who implements them calls `DraDriver.poke` when an answer changes."""

    def on_claims(self, call: ClaimCall, driver: str) -> ClaimFault | None:
        """What happens to this call; asked once per call."""

    def has(self, rule: str) -> bool:
        """Whether the rule is still there; a call that it delays goes on at once when somebody cleared it."""

    def holds(self, rule: str) -> bool:
        """Whether a call that this rule hangs must go on hanging."""

    def on_health(self, driver: str) -> HealthStreamFault | None:
        """What happens to the driver's health streams now."""

    def allocated(self, driver: str, ids: Iterable[str], /) -> None:
        """Devices of these ids were prepared for a claim that had none before."""
