"""Where failures on demand reach the plugin: what the servicer and the service ask before they act.

The hooks decide nothing themselves; without rules each costs one call that returns None. `faults.engine` answers them.
"""

from collections.abc import Iterable
from typing import Protocol

from ..core.model.faults.fault_answers import CallFault
from ..core.model.faults.fault_effects import Register, Rpc, Stream
from ..sockets.held_calls import RuleHooks


class FaultHooks(RuleHooks, Protocol):
    """The questions. Who implements them calls `ResourceService.poke` when an answer changes."""

    def on_call(self, rpc: Rpc, resource: str, /) -> CallFault | None:
        """What happens to this call; asked once per call."""

    def on_register(self, resource: str) -> tuple[str, Register] | None:
        """What happens to the registration that is due, and by which rule; asked again after `ResourceService.poke`."""

    def on_stream(self, resource: str) -> Stream | None:
        """What happens to the resource's streams now."""

    def allocated(self, resource: str, ids: Iterable[str]) -> None:
        """These devices were given to a pod."""


class NoFaults:
    """The answers without any rules."""

    def on_call(self, rpc: Rpc, resource: str) -> CallFault | None:
        """None."""

    def has(self, rule: str) -> bool:
        """Never."""
        return False

    def holds(self, rule: str) -> bool:
        """Never."""
        return False

    def on_register(self, resource: str) -> tuple[str, Register] | None:
        """None."""

    def on_stream(self, resource: str) -> Stream | None:
        """None."""

    def allocated(self, resource: str, ids: Iterable[str]) -> None:
        """Nothing."""


NO_FAULTS: FaultHooks = NoFaults()
