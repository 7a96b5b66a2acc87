"""The services of all resources: started, updated and retired as the inventory changes, each in a task of its own."""

import asyncio
import functools
from collections.abc import Callable, Iterable

import structlog

from ...core.intervals import PRODUCTION, Intervals
from ...core.inventory.resources import Added, Change, Changed, Inventory, Removed, Resource, diff
from ...plugin.fault_hooks import NO_FAULTS, FaultHooks
from ...plugin.kubelet_socket import KubeletSocket
from ...plugin.service import ResourceService, State
from ...plugin.servicer import Desk
from ..steps import Steps

log = structlog.get_logger(__name__)

_LISTED = 8  # ids named in a log line before the rest is counted


class Fleet:
    """The services of one node. Tasks live in the task group that is given; each is named after its resource.

    What goes wrong with one resource is the problem of a step of its own, and the others are served all the same.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        link: KubeletSocket,
        desk: Desk,
        *,
        on_state: Callable[[str, State], None],
        faults: FaultHooks = NO_FAULTS,
        intervals: Intervals = PRODUCTION,
        steps: Steps | None = None,
    ) -> None:
        self.services: dict[str, ResourceService] = {}
        self._group = group
        self._link = link
        self._desk = desk
        self._on_state = on_state
        self._faults = faults
        self._intervals = intervals
        self._steps = steps or Steps()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._settled: dict[str, Resource] = {}  # what the services were told last

    def settle(self, inventory: Inventory) -> None:
        """Serve this inventory; a resource that did not change is not touched, and one that fails is tried again."""
        for change in diff(Inventory(self._settled), inventory):
            self._steps.do(_update(_resource(change).name), functools.partial(self._apply, change))

    def _apply(self, change: Change) -> None:
        resource = _resource(change)
        match change:
            case Added():
                log.info("resource added", resource=resource.name, devices=len(resource.slots))
                service = ResourceService(
                    resource,
                    self._link,
                    self._desk,
                    on_state=self._on_state,
                    faults=self._faults,
                    intervals=self._intervals,
                )
                self._start(resource.name, service)
            case Changed():
                _log_change(change)
                self.services[resource.name].update(resource)
            case Removed():
                log.info("resource removed", resource=resource.name)
                service = self.services.pop(resource.name)
                self._group.create_task(self._retire(service), name=f"retire {resource.name}")
                del self._settled[resource.name]
                return
        self._settled[resource.name] = resource

    async def _retire(self, service: ResourceService) -> None:
        await self._steps.take(_update(service.name), service.retire)

    def list_again(self, resources: Iterable[str]) -> None:
        """Send these resources' lists once more, though nothing in them is new."""
        for name in resources:
            if name in self.services:
                self.services[name].list_again()

    def _start(self, name: str, service: ResourceService) -> None:
        previous = self._tasks.get(name)
        self.services[name] = service

        async def run() -> None:
            if previous is not None:
                await asyncio.wait(
                    [previous]
                )  # one service per resource at a time: the last one must be off the kubelet
            await self._steps.keep(_serve(name), service.run)
            for step in (_serve(name), _update(name)):
                self._steps.forget(step)

        self._tasks[name] = self._group.create_task(run(), name=f"serve {name}")

    async def stop(self) -> None:
        """Stop all services and wait for them."""
        for service in self.services.values():
            service.stop()
        running = [task for task in self._tasks.values() if not task.done()]
        if running:
            await asyncio.wait(running)


def _serve(resource: str) -> str:
    return f"serving {resource}"


def _update(resource: str) -> str:
    return f"telling the kubelet what {resource} has"


def _resource(change: Change) -> Resource:
    return change.new if isinstance(change, Changed) else change.resource


def _log_change(change: Changed) -> None:
    for event, ids in (("devices added", change.added), ("devices removed", change.removed)):
        if ids:
            log.info(event, resource=change.new.name, count=len(ids), devices=_short(ids))
    for slot, health in change.health[:_LISTED]:
        old = change.old.by_id[slot].health
        if old.healthy != health.healthy:
            write = log.info if health.healthy else log.warning
            write(
                "device healthy" if health.healthy else "device unhealthy",
                resource=change.new.name,
                device=slot,
                reason=health.reason,
                **({"injected": True, "rule": rule} if (rule := health.injected or old.injected) else {}),
            )
    if len(change.health) > _LISTED:
        log.info("more devices changed health", resource=change.new.name, count=len(change.health) - _LISTED)


def _short(ids: tuple[str, ...]) -> list[str]:
    return [*ids[:_LISTED], *(["…"] if len(ids) > _LISTED else [])]
