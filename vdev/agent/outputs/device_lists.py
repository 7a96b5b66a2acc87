"""The services of all resources: started, updated and retired as the inventory changes, each in a task of its own."""

import asyncio
import functools
from collections.abc import Callable, Sequence

import structlog

from ...aio.timing import Timing
from ...core.decide import Plan
from ...core.inventory.difference import Added, Change, ChangedResource, RemovedResource, diff
from ...core.inventory.resources import Inventory, Resource
from ...core.model.faults.fault_effects import SocketFault, StreamFault
from ...plugin.encode import list_response
from ...plugin.kubelet_socket import KubeletSocket
from ...plugin.requests import Requests
from ...plugin.service import ResourceService, ServiceState
from ...plugin.servicer import FaultHooks
from ..steps import Steps
from .base import Beside, Output, Stage

log = structlog.get_logger(__name__)

_LISTED = 8  # ids named in a log line before the rest is counted

_Due = tuple[Change, bytes]
"""A change, and the list to send for it."""


class DeviceLists(Output):
    """The services of one node, from `start` on. Tasks live in the group given; each is named after its resource.

    What goes wrong with one resource is the problem of a step of its own, and the others are served all the same.
    """

    name = "telling the kubelet"
    stage = Stage.LIST

    def __init__(
        self,
        link: KubeletSocket,
        requests: Requests,
        *,
        on_state: Callable[[str, ServiceState], None],
        faults: FaultHooks,
        timing: Timing,
        steps: Steps,
    ) -> None:
        self.services: dict[str, ResourceService] = {}
        self._group: asyncio.TaskGroup | None = None
        self._link = link
        self._requests = requests
        self._on_state = on_state
        self._faults = faults
        self._timing = timing
        self._intervals, self._clock = timing
        self._steps = steps
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._settled: dict[str, Resource] = {}  # what the services were told last
        self._prepared: tuple[Plan | None, Sequence[_Due]] = (None, ())  # what there is to do for a plan
        self._untold: list[ChangedResource] = []  # what the log has not been told yet
        self._pressed_at: dict[str, float] = {}

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The lists, with what is done ahead of them and after them.

        Logged is what changed after the kubelet was told, since a line takes longer than a list.
        """
        return (
            Beside("encoding lists", Stage.PREPARE, self.prepare),
            self,
            Beside("logging what changed", Stage.FOLLOW, self.tell),
        )

    @property
    def running(self) -> bool:
        return self._group is not None

    @property
    def is_listened_to(self) -> bool:
        return any(service.streams for service in self.services.values())

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def settle(self, plan: Plan) -> None:
        """Serve what the plan lists; a resource that did not change is not touched, and one that fails is tried again.

        Lists of `unsettled` resources are sent once more: the kubelet then writes its checkpoint, which tells whether a
        pod that is not named still has the device.
        """
        (prepared, dues), self._prepared = self._prepared, (None, ())
        for due in dues if prepared is plan else self._compared(plan):
            self._steps.do(_update(_resource(due[0]).name), functools.partial(self._apply, *due))
        now = self._clock.now()
        for name in plan.unsettled & self.services.keys():
            if now - self._pressed_at.get(name, float("-inf")) >= self._intervals.retire_recheck:
                self._pressed_at[name] = now
                self.services[name].list_again()

    async def tell(self, _plan: Plan) -> None:
        untold, self._untold = self._untold, []
        for change in untold:
            _log_change(change)

    async def prepare(self, plan: Plan) -> None:
        """Compare and encode what `settle` will send, in a thread, so that `settle` has no long work to do."""
        self._prepared = plan, await asyncio.to_thread(self._compared, plan)

    def _compared(self, plan: Plan) -> Sequence[_Due]:
        return [
            (change, b"" if isinstance(change, RemovedResource) else list_response(_resource(change).slots))
            for change in diff(Inventory(self._settled), plan.served)
        ]

    def _apply(self, change: Change, encoded: bytes) -> None:
        resource = _resource(change)
        assert self._group is not None, "started before anything is settled"
        match change:
            case Added():
                if resource.draining:
                    log.info("resource kept for pods that may hold its devices", resource=resource.name)
                else:
                    log.info("resource added", resource=resource.name, devices=len(resource.slots))
                service = ResourceService(
                    resource,
                    encoded,
                    self._link,
                    self._requests,
                    on_state=self._on_state,
                    faults=self._faults,
                    timing=self._timing,
                )
                self._start(resource.name, service)
            case ChangedResource():
                self._untold.append(change)
                self.services[resource.name].update(resource, encoded)
            case RemovedResource():
                log.info("resource removed", resource=resource.name)
                service = self.services.pop(resource.name)
                self._group.create_task(self._retire(service), name=f"retire {resource.name}")
                del self._settled[resource.name]
                return
        self._settled[resource.name] = resource

    async def _retire(self, service: ResourceService) -> None:
        await self._steps.take(_update(service.name), service.retire)

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

        assert self._group is not None
        self._tasks[name] = self._group.create_task(run(), name=f"serve {name}")

    async def strike(self, fault: StreamFault | SocketFault, concerns: Callable[[str], bool]) -> None:
        """Let a momentary fault happen to these resources."""
        for name, service in list(self.services.items()):
            if concerns(name):
                await service.strike(fault)

    async def stop(self) -> None:
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
    return change.new if isinstance(change, ChangedResource) else change.resource


def _log_change(change: ChangedResource) -> None:
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
