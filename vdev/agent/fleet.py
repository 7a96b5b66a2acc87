"""The services of all resources: started, updated and retired as the inventory changes, each in a task of its own."""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from ..core.intervals import PRODUCTION, Intervals
from ..core.inventory import Added, Change, Changed, Removed
from ..plugin.hooks import NO_FAULTS, Hooks
from ..plugin.link import KubeletLink
from ..plugin.server import Desk
from ..plugin.service import ResourceService, State

log = structlog.get_logger(__name__)

_LISTED = 8  # ids named in a log line before the rest is counted


class Fleet:
    """Applies changes to services. Tasks live in the task group that is given; each is named after its resource."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        link: KubeletLink,
        desk: Desk,
        *,
        on_state: Callable[[str, State], None],
        faults: Hooks = NO_FAULTS,
        intervals: Intervals = PRODUCTION,
    ) -> None:
        self.services: dict[str, ResourceService] = {}
        self._group = group
        self._link = link
        self._desk = desk
        self._on_state = on_state
        self._faults = faults
        self._intervals = intervals
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def apply(self, changes: Iterable[Change]) -> None:
        """Do what the changes say; what they do not name is not touched."""
        for change in changes:
            match change:
                case Added(resource):
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
                case Changed(new=new):
                    _log_change(change)
                    self.services[new.name].update(new)
                case Removed(resource):
                    log.info("resource removed", resource=resource.name)
                    service = self.services.pop(resource.name)
                    self._group.create_task(service.retire(), name=f"retire {resource.name}")

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
            await service.run()

        self._tasks[name] = self._group.create_task(run(), name=f"serve {name}")

    async def stop(self) -> None:
        """Stop all services and wait for them."""
        for service in self.services.values():
            service.stop()
        running = [task for task in self._tasks.values() if not task.done()]
        if running:
            await asyncio.wait(running)


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
