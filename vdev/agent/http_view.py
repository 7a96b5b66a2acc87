"""What the HTTP side shows of the agent: the four answers of `observe.http.Watched`."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from .status import not_ready, status

if TYPE_CHECKING:
    from .agent import Agent

_STALLED = 120.0  # seconds; the reconciler takes a step at least every 30 s, and none of them should take a minute


class Window:
    """A view of the agent that changes nothing."""

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent

    def status(self) -> dict[str, Any]:
        """The same document as that of `vdev status`."""
        return status(self._agent)

    def registry(self) -> CollectorRegistry:
        """The metrics; the streams are counted now."""
        fleet = self._agent.fleet
        for name, service in tuple(fleet.services.items()) if fleet else ():
            self._agent.metrics.streams.labels(name).set(service.streams)
        return self._agent.metrics.registry

    def stalled(self) -> str:
        """Why nothing moves any more; empty while the reconciler takes its steps, or has not begun."""
        if self._agent.fleet is None:
            return ""
        silent = time.monotonic() - self._agent.turned_at
        return f"the reconciler has not finished a step for {silent:.0f} s" if silent > _STALLED else ""

    def not_ready(self) -> Sequence[str]:
        """Why the agent is not ready."""
        return not_ready(self._agent)
