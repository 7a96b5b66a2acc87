"""What the plan comes to in numbers: metrics, and when each device changed last."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping

from ...aio.clock import Clock
from ...core.decide import Plan
from ...core.inventory.difference import Added, ChangedResource, RemovedResource, diff
from ...core.inventory.resources import EMPTY, Inventory
from ...core.model.device import Key
from ...observe.metrics import Metrics
from .base import Output


class Measures(Output):
    """Counts what changes; `changed_at` has the times of changes, by resource and id, in seconds since the epoch.

    What is so at a moment is measured when somebody looks, by `measure`.
    """

    name = "measuring"

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self.changed_at: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._metrics = metrics
        self._clock = clock
        self._plan: Plan | None = None

    async def settle(self, plan: Plan) -> None:
        before, self._plan = self._plan, plan
        await asyncio.to_thread(self._stamp, before.inventory if before else EMPTY, plan.inventory)

    def _stamp(self, before: Inventory, after: Inventory) -> None:
        now = self._clock.wall()
        for change in diff(before, after):
            match change:
                case Added(resource):
                    self.changed_at[resource.name] = dict.fromkeys(resource.ids, now)
                case ChangedResource(new=new):
                    times = self.changed_at[new.name]
                    times |= dict.fromkeys((*change.added, *(each for each, _ in change.health)), now)
                    for each in change.removed:
                        times.pop(each, None)
                    self._count_health(change)
                case RemovedResource(resource):
                    self.changed_at.pop(resource.name, None)

    def _count_health(self, change: ChangedResource) -> None:
        for each, health in change.health:
            if change.old.by_id[each].health.healthy != health.healthy:
                word = "Healthy" if health.healthy else "Unhealthy"
                self._metrics.health_changes.labels(change.new.name, word).inc()
                self._metrics.health_changed.labels(change.new.name).set(self._clock.wall())

    def measure(self) -> None:
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
