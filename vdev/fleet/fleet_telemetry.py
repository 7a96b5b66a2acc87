"""What the devices of all nodes measure: sensors for each node, told of every plan in the moment that it is made.

They are those of an agent, so a device on a node without a kubelet shows what it would show on one with: the seed, the
node's name and the device say how its load runs, and whether a pod holds it.
"""

import asyncio
import threading
from collections.abc import Iterable, Mapping

import structlog

from ..agent.outputs.telemetry_told import load_of, replay_of, same
from ..aio.clock import Clock
from ..core.decide import Plan
from ..core.exposition.family import text
from ..core.exposition.nodes import Exposition
from ..core.model.telemetry import LoadPattern, Range
from ..core.spec import Spec
from ..core.telemetry.replay import Series
from ..core.telemetry.sensors import MeasuredDevice, Sensors

log = structlog.get_logger(__name__)

Wishes = Mapping[str, Range]
"""The load that pods ask for, by `namespace/name`."""


class FleetTelemetry:
    """The sensors of all nodes that measure anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sensors: dict[str, Sensors] = {}
        self._plans: dict[str, Plan] = {}
        self._wishes: dict[str, Wishes] = {}
        self._replays: Mapping[str, Series] = {}
        self._reading = threading.Lock()  # pages are made in a thread
        self._hostname_label = ""

    async def read(self, spec: Spec) -> None:
        """Read the files that entries replay, once for all nodes."""
        loads = [entry.telemetry.load for entry in spec.entries if entry.telemetry]
        files = {each.file for each in loads if each.pattern is LoadPattern.REPLAY}
        found = {name: known for name, known in self._replays.items() if name in files}
        for name in sorted(files - found.keys()):
            rows = await asyncio.to_thread(replay_of, name)
            if isinstance(rows, Series):
                found[name] = rows
            else:
                log.error("a file cannot be replayed", reason=str(rows))
        self._replays = found

    def note(self, node: str, plan: Plan, wishes: Wishes) -> None:
        """From now on this is so on the node; `wishes` are what pods say of their load."""
        if not plan.telemetry.on:
            self.forget(node)
            return
        self._hostname_label = plan.telemetry.hostname_label
        wishes = wishes if plan.telemetry.annotations else {}
        if same(plan, self._plans.get(node)) and wishes == self._wishes.get(node, {}):
            return
        situation, users = load_of(plan, node, wishes, self._replays)
        now = self._clock.now()
        with self._reading:
            sensors = self._sensors.setdefault(node, Sensors({}))
            sensors.settle(situation, plan.base, users, now, since=now)
            self._plans[node] = plan
            if wishes:
                self._wishes[node] = wishes
            else:
                self._wishes.pop(node, None)

    def forget(self, node: str) -> None:
        """It is gone, or measures nothing."""
        with self._reading:
            self._sensors.pop(node, None)
            self._plans.pop(node, None)
            self._wishes.pop(node, None)

    @property
    def nodes(self) -> list[str]:
        """The nodes that measure anything, by name."""
        return sorted(self._sensors)

    def page(self, node: str = "") -> str:
        """The metrics of a node, as an exporter there would write them; or of all, with a label `node`. Blocks."""
        with self._reading:
            wanted = [node] if node in self._sensors else [] if node else self.nodes
            exposition = Exposition(self._hostname_label, node_label=not node)
            families = exposition.families((each, self._measured(each)) for each in wanted)
            return text(families)

    def _measured(self, node: str) -> Iterable[MeasuredDevice]:
        return self._sensors[node].measured(self._clock.now())
