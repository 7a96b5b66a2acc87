"""The device lists: one gRPC service per resource, started, updated and stopped as the plan says.

`Measures` is the applier that logs and counts changes of devices.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from ..aio.clock import Clock
from ..aio.tasks import cancel_and_wait
from ..deviceplugin.service import ResourceService
from ..faults.rules import FaultRule
from ..model.device import Key
from ..observe.metrics import Metrics
from ..planning.plan import DesiredState
from ..planning.resources import EMPTY, Change, Inventory, Resource, diff
from .applier import Applier

if TYPE_CHECKING:
    from .agent import Agent

log = structlog.get_logger(__name__)

_LISTED = 8  # ids named in a log line before the rest is counted


class DeviceLists:
    """The services of one node, each in its own task, from `start` on. A failure of one does not affect the others."""

    def __init__(self, agent: "Agent") -> None:
        self.services: dict[str, ResourceService] = {}
        self.running = False
        self._group: asyncio.TaskGroup | None = None
        self._agent = agent
        self._intervals, self._clock = agent.options.timing
        self._retrier = agent.retrier
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._sent_again_at: dict[str, float] = {}  # by resource: a plan for another reason must not send more lists

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group, self.running = group, True

    def send(self, plan: DesiredState) -> None:
        """Send the lists of this plan that changed. A resource that fails is tried again.

        The list of a resource that waits for a device is sent again: the kubelet then writes its checkpoint, which
        shows whether a pod that PodResources does not name still has the device. This is not a coroutine, so no
        Allocate comes between the plan and the lists.
        """
        wanted = plan.served.resources
        removed = [name for name in self.services if name not in wanted]
        for name in (*removed, *wanted):
            resource, service = wanted.get(name), self.services.get(name)
            if service is not None and service.servicer.resource == resource:
                continue
            step = _update(name)
            if not self._retrier.pause(step):
                with self._retrier.attempt(step):
                    self._apply(name, resource, service)
        now = self._clock.now()
        for name in plan.to_list_again & self.services.keys():
            if now - self._sent_again_at.get(name, float("-inf")) >= self._intervals.retire_recheck:
                self._sent_again_at[name] = now
                self.services[name].servicer.list_again()

    def _apply(self, name: str, resource: Resource | None, service: ResourceService | None) -> None:
        """Serve this state of the resource (None: no longer), by its service if it has one."""
        assert self._group is not None, "started before anything is applied"
        if resource is None:
            log.info("resource removed", resource=name)
            retiring = self._retire(self.services.pop(name), self._tasks[name])
            task = self._group.create_task(retiring, name=f"retire {name}")
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        elif service is not None:
            service.update(resource)
        else:
            if resource.draining:
                log.info("resource kept for pods that may hold its devices", resource=name)
            else:
                log.info("resource added", resource=name, devices=len(resource.slots))
            service = self.services[name] = ResourceService(resource, self._agent)
            # The kubelet must have dropped the last service of this resource.
            serving = self._retrier.supervise(f"serving {name}", service.run, after=self._tasks.get(name))
            self._tasks[name] = self._group.create_task(serving, name=f"serve {name}")

    async def _retire(self, service: ResourceService, serving: asyncio.Task[None]) -> None:
        step = _update(service.name)
        try:
            await self._retrier.run(step, service.retire)
        finally:
            self._retrier.forget(step)
            await cancel_and_wait([serving])

    async def inject(self, rule: FaultRule) -> None:
        """Close the streams of the rule's resources once, or delete or replace their sockets."""
        for name, service in list(self.services.items()):
            if not rule.concerns(name):
                continue
            if rule.socket is not None:
                await service.spoil_socket(replace=rule.socket.replace)
            else:
                service.servicer.close_streams()

    async def stop(self) -> None:
        await cancel_and_wait([*self._retiring, *self._tasks.values()])


def _update(resource: str) -> str:
    return f"telling the kubelet what {resource} has"


def _log_change(change: Change) -> None:
    for event, ids in (("devices added", change.added), ("devices removed", change.removed)):
        if ids:
            log.info(event, resource=change.name, count=len(ids), devices=ids[:_LISTED])
    changed = change.health
    for slot, old, health in changed[:_LISTED]:
        if old.healthy != health.healthy:
            write = log.info if health.healthy else log.warning
            write(
                "device healthy" if health.healthy else "device unhealthy",
                resource=change.name,
                device=slot,
                reason=health.reason,
                **({"injected": True, "rule": rule} if (rule := health.injected or old.injected) else {}),
            )
    if len(changed) > _LISTED:
        log.info("more devices changed health", resource=change.name, count=len(changed) - _LISTED)


class Measures(Applier):
    """Logs and counts changes of devices. Gauges are set when the metrics are read, by `measure`."""

    name = "measuring"

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        # When a device was added or changed its health, by resource and id, in seconds since the epoch.
        self.changed_at: defaultdict[str, dict[str, float]] = defaultdict(dict)
        self._metrics = metrics
        self._clock = clock
        self._plan: DesiredState | None = None

    async def apply(self, plan: DesiredState) -> None:
        before, self._plan = self._plan, plan
        await asyncio.to_thread(self._stamp, before.advertised if before else EMPTY, plan.advertised)

    def _stamp(self, before: Inventory, after: Inventory) -> None:
        now = self._clock.wall()
        for change in diff(before, after):
            if change.new is None:
                self.changed_at.pop(change.name, None)
                continue
            if change.old is not None:
                _log_change(change)
            times = self.changed_at[change.name]
            times |= dict.fromkeys(change.added, now)
            for each in change.removed:
                times.pop(each, None)
            for each, old, health in change.health:
                times[each] = now
                if old.healthy != health.healthy:
                    word = "Healthy" if health.healthy else "Unhealthy"
                    self._metrics.health_changes.labels(change.name, word).inc()
                    self._metrics.health_changed.labels(change.name).set(now)

    def measure(self) -> None:
        plan = self._plan
        if plan is None:
            return
        named: Mapping[Key, str] = plan.observed.in_use.pods
        held, retired = Counter(name for name, _ in named), Counter(name for name, _ in plan.retired)
        for name, resource in plan.advertised.resources.items():
            self._metrics.devices.labels(name, "Healthy").set(resource.healthy)
            self._metrics.devices.labels(name, "Unhealthy").set(len(resource.slots) - resource.healthy)
            self._metrics.list_bytes.labels(name).set(resource.list_bytes)
            self._metrics.retired.labels(name).set(retired[name])
            self._metrics.drilled.labels(name).set(resource.injected)
            self._metrics.held.labels(name).set(held[name])
