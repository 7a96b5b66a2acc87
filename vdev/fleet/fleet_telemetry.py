"""What the devices of all nodes measure: sensors for each node, told of every plan in the moment that it is made.

They are those of an agent, so a device on a node without a kubelet shows what it would show on one with: the seed, the
node's name and the device say how its load runs, and whether a pod holds it.
"""

import threading
from collections.abc import Mapping

from ..aio.clock import Clock
from ..model.telemetry import Range
from ..planning.plan import DesiredState
from ..telemetry.applier import load_of
from ..telemetry.page import page
from ..telemetry.sensors import MeasuredDevice, Sensors

Wishes = Mapping[str, Range]
"""The load that pods ask for, by `namespace/name`."""


class FleetTelemetry:
    """The sensors of all nodes that measure anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sensors: dict[str, Sensors] = {}
        self._reading = threading.Lock()  # sensors are read in a thread
        self._hostname_label = ""

    def note(self, node: str, plan: DesiredState, wishes: Wishes) -> None:
        """From now on this is so on the node; `wishes` are what pods say of their load."""
        if plan.telemetry is None:
            self.forget(node)
            return
        self._hostname_label = plan.telemetry.hostname_label
        wishes = wishes if plan.telemetry.pod_annotations else {}
        with self._reading:
            self._sensors.setdefault(node, Sensors()).settle(load_of(plan, node, wishes), self._clock.now())

    def forget(self, node: str) -> None:
        """It is gone, or measures nothing."""
        with self._reading:
            self._sensors.pop(node, None)

    @property
    def nodes(self) -> list[str]:
        """The nodes that measure anything, by name."""
        return sorted(self._sensors)

    def page(self, node: str = "") -> str:
        """The metrics of a node, as an exporter there would write them; or of all, with a label `node`. Blocks."""
        wanted = self.nodes if not node else [node] if node in self._sensors else []
        measured = ((each, self._measured(each)) for each in wanted)
        return page(measured, self._hostname_label, node_label=not node)

    def _measured(self, node: str) -> list[MeasuredDevice]:
        with self._reading:
            sensors = self._sensors.get(node)
            return list(sensors.measured(self._clock.now())) if sensors else []
