"""The sensors of the devices of all nodes.

The sensors are those of an agent, so a device shows the same values as on a node with a kubelet: its load depends on
the seed, the node's name, the device, and whether a pod holds it.
"""

import threading
from collections.abc import Mapping

from ..aio.clock import Clock
from ..model.telemetry import Range
from ..planning.plan import DesiredState
from ..telemetry.exporters import page
from ..telemetry.sensors import Sensors
from ..telemetry.simulation import MeasuredDevice


class FleetTelemetry:
    """The sensors of the nodes that have any."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sensors: dict[str, Sensors] = {}
        self._reading = threading.Lock()  # sensors are read in a thread
        self._hostname_label = ""

    def note(self, node: str, plan: DesiredState, pod_loads: Mapping[str, Range]) -> None:
        """Set the plan of a node, and the loads from annotations of pods, by `namespace/name`."""
        if plan.observed.spec.telemetry is None:
            self.forget(node)
            return
        self._hostname_label = plan.observed.spec.telemetry.hostname_label
        pod_loads = pod_loads if plan.observed.spec.telemetry.pod_annotations else {}
        with self._reading:
            self._sensors.setdefault(node, Sensors(node)).update(plan, pod_loads, self._clock.now())

    def forget(self, node: str) -> None:
        """Drop a node that was removed or has no sensors."""
        with self._reading:
            self._sensors.pop(node, None)

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes that have sensors."""
        return sorted(self._sensors)

    def page(self, node: str = "") -> str:
        """The metrics of a node in the format of its exporter, or those of all nodes with a label `node`. Blocks."""
        wanted = self.nodes if not node else [node] if node in self._sensors else []
        measured = ((each, self._measured(each)) for each in wanted)
        return page(measured, self._hostname_label, node_label=not node)

    def _measured(self, node: str) -> list[MeasuredDevice]:
        with self._reading:
            sensors = self._sensors.get(node)
            return list(sensors.measured(self._clock.now())) if sensors else []
