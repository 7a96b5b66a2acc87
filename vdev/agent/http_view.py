"""What others see of the agent: the five answers of `observe.http.Watched`, and what the service manager is told."""

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

from ..deviceplugin.service import ServiceState
from ..observe.metrics import Metrics
from ..telemetry.output import Telemetry
from .announcer import Boot, Outlook, absent
from .status import Running, not_ready, stand_by, status

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class MeasuredAgent(Running, Protocol):
    """What is looked at, with its metrics and the time of its last turn."""

    metrics: Metrics
    telemetry: Telemetry
    turned_at: float


class HttpView:
    """A view of the agent that changes nothing."""

    def __init__(self, agent: MeasuredAgent) -> None:
        self._agent = agent

    def status(self) -> dict[str, Any]:
        return status(self._agent)

    def telemetry(self) -> dict[str, Any]:
        """What devices measure now, in short: load, temperature, power, and used and all of the memory, by id."""
        return self._agent.telemetry.in_short()

    def registry(self) -> "CollectorRegistry":
        """The metrics; devices and streams are counted now."""
        self._agent.measures.measure()
        self._agent.dra.measure()
        for name, service in tuple(self._agent.lists.services.items()):
            self._agent.metrics.streams.labels(name).set(service.streams)
        return self._agent.metrics.registry

    def stalled(self) -> str:
        """Why nothing moves any more; empty while the reconciler takes its steps, or has not begun."""
        if not self._agent.lists.running:
            return ""
        options = self._agent.options
        silent = options.clock.now() - self._agent.turned_at
        return (
            f"the reconciler has not finished a step for {silent:.0f} s" if silent > options.intervals.stalled else ""
        )

    def not_ready(self) -> Sequence[str]:
        return not_ready(self._agent)

    def stand_by(self) -> str:
        return stand_by(self._agent)

    def outlook(self, look_for_absent: bool) -> Outlook:
        agent, state = self._agent, self._agent.reconciler
        services = agent.lists.services.values()
        missing: tuple[str, ...] = ()
        if look_for_absent and state.published:
            ailing = {raw for raw, health in state.current_verdicts().items() if not health.healthy}
            missing = absent(state.served, chain.from_iterable(state.scan.devices.values()), ailing)
        boot = Boot(
            served=state.published and not any(each.state is ServiceState.STARTING for each in services),
            kubelet=any(each.streams for each in services),
            absent=missing,
            waits_for=agent.waiting if agent.lock.waited else "",
        )
        return Outlook(boot=boot, stalled=self.stalled(), summary=self._summary())

    def _summary(self) -> str:
        if trouble := "; ".join(not_ready(self._agent)):
            return trouble
        resources = self._agent.reconciler.served.resources.values()
        healthy, listed = sum(each.healthy for each in resources), sum(len(each.slots) for each in resources)
        return f"{healthy} of {listed} devices are Healthy, in {len(resources)} resources"
