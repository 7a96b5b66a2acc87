"""What the plan comes to in numbers: metrics, and when each device changed last."""

from collections import Counter
from collections.abc import Iterable, Mapping

from ...aio.beside import beside
from ...aio.clock import Clock
from ...core.decide import Plan
from ...core.inventory.difference import Added, Change, ChangedResource, Differences, RemovedResource, size
from ...core.inventory.resources import EMPTY
from ...core.model.device import Key
from ...observe.metrics import Metrics
from .base import Output


class Measures(Output):
    """Counts what changes; `changed_at` has the times of changes, in seconds since the epoch.

    What is so at a moment is measured when somebody looks, by `measure`.
    """

    name = "measuring"

    def __init__(self, metrics: Metrics, clock: Clock, differences: Differences) -> None:
        self.changed_at: dict[Key, float] = {}
        self._metrics = metrics
        self._differences = differences
        self._clock = clock
        self._plan: Plan | None = None

    async def settle(self, plan: Plan) -> None:
        """Count what differs from the last plan."""
        before, self._plan = self._plan, plan
        changes = self._differences(before.inventory if before else EMPTY, plan.inventory)
        await beside(sum(map(size, changes)), self._stamp, changes)

    def _stamp(self, changes: Iterable[Change]) -> None:
        now = self._clock.wall()
        for change in changes:
            match change:
                case Added(resource):
                    self.changed_at |= {(resource.name, slot.id): now for slot in resource.slots}
                case ChangedResource(new=new):
                    self.changed_at |= {(new.name, each): now for each in change.added}
                    self.changed_at |= {(new.name, each): now for each, _ in change.health}
                    for each in change.removed:
                        self.changed_at.pop((new.name, each), None)
                    self._count_health(change)
                case RemovedResource(resource):
                    for slot in resource.slots:
                        self.changed_at.pop((resource.name, slot.id), None)

    def _count_health(self, change: ChangedResource) -> None:
        for each, health in change.health:
            if change.old.by_id[each].health.healthy != health.healthy:
                word = "Healthy" if health.healthy else "Unhealthy"
                self._metrics.health_changes.labels(change.new.name, word).inc()
                self._metrics.health_changed.labels(change.new.name).set(self._clock.wall())

    def measure(self) -> None:
        """Bring the metrics of devices up to date."""
        plan = self._plan
        if plan is None:
            return
        named: Mapping[Key, str] = plan.holdings.holders or {}
        held, retired = Counter(name for name, _ in named), Counter(name for name, _ in plan.retired)
        listed = plan.inventory.resources
        both = Counter(name for name, each in plan.retired if name in listed and listed[name].is_drilled(each))
        for name, resource in listed.items():
            self._metrics.devices.labels(name, "Healthy").set(resource.healthy)
            self._metrics.devices.labels(name, "Unhealthy").set(len(resource.slots) - resource.healthy)
            self._metrics.list_bytes.labels(name).set(resource.list_bytes)
            self._metrics.retired.labels(name).set(retired[name])
            self._metrics.drilled.labels(name).set(resource.drilled - both[name])
            self._metrics.held.labels(name).set(held[name])
