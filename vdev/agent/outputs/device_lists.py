"""The services of all resources: started, updated and retired as the inventory changes, each in a task of its own."""

import asyncio
import functools
from collections.abc import Callable, Iterable
from itertools import chain, islice

import structlog

from ...aio.timing import Timing
from ...core.decide import Plan
from ...core.inventory.difference import Added, Change, ChangedResource, Differences, RemovedResource
from ...core.inventory.resources import Inventory, Resource
from ...core.model.faults.fault_effects import SocketFault, StreamFault
from ...plugin.encode import ListEncoder, make_ready
from ...plugin.fault_hooks import NO_FAULTS, FaultHooks
from ...plugin.kubelet_socket import KubeletSocket
from ...plugin.service import ResourceService, ServiceState
from ...plugin.servicer import RequestHandler
from ..steps import Steps
from .base import Beside, Output, Stage

log = structlog.get_logger(__name__)

_LISTED = 8  # ids named in a log line before the rest is counted
_ANSWERS = 4  # so many are worked out in half a millisecond


class DeviceLists(Output):
    """The services of one node, from `start` on. Tasks live in the group given; each is named after its resource.

    What goes wrong with one resource is the problem of a step of its own, and the others are served all the same.
    """

    name = "telling the kubelet"
    stage = Stage.LIST

    def __init__(
        self,
        link: KubeletSocket,
        requests: RequestHandler,
        *,
        on_state: Callable[[str, ServiceState], None],
        faults: FaultHooks = NO_FAULTS,
        timing: Timing,
        steps: Steps,
        differences: Differences,
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
        self._differences = differences
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._settled: dict[str, Resource] = {}  # what the services were told last
        self._encoders: dict[str, ListEncoder] = {}
        self._untold: list[ChangedResource] = []  # what the log has not been told yet
        self._fresh: dict[str, Resource] = {}  # for which answers are not worked out yet
        self._pressed_at: dict[str, float] = {}

    @property
    def outputs(self) -> tuple[Output, ...]:
        """The lists, with what is done ahead of them and after them.

        Logged is what changed after the kubelet was told, since a line takes longer than a list.
        """
        return (
            Beside("encoding lists", Stage.PREPARE, self.prepare),
            self,
            Beside("preparing answers", Stage.FOLLOW, self.prepare_answers),
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
        for change in self._differences(Inventory(self._settled), plan.served):
            self._steps.do(_update(_resource(change).name), functools.partial(self._apply, change))
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
        """Encode what `settle` will send, so that it has no long work to do."""
        changes = self._differences(Inventory(self._settled), plan.served)
        new = [_resource(each) for each in changes if not isinstance(each, RemovedResource)]
        if new:
            await asyncio.to_thread(self._encode, new)

    async def prepare_answers(self, _plan: Plan) -> None:
        """Work out what the kubelet may ask for now, so that it does not wait for it.

        A few at a time, because it may ask meanwhile; a thread would take turns with the loop and make it wait longer.
        """
        fresh, self._fresh = self._fresh, {}
        steps = chain.from_iterable(map(make_ready, fresh.values()))
        while list(islice(steps, _ANSWERS)):
            await self._clock.sleep(0)

    def _encode(self, resources: Iterable[Resource]) -> None:
        for each in resources:
            self._encoder(each.name).encode(each.slots)

    def _encoder(self, resource: str) -> ListEncoder:
        return self._encoders.setdefault(resource, ListEncoder())

    def _apply(self, change: Change) -> None:
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
                    self._link,
                    self._requests,
                    on_state=self._on_state,
                    faults=self._faults,
                    timing=self._timing,
                    encoder=self._encoder(resource.name),
                )
                self._start(resource.name, service)
            case ChangedResource():
                self._untold.append(change)
                self.services[resource.name].update(resource)
            case RemovedResource():
                log.info("resource removed", resource=resource.name)
                service = self.services.pop(resource.name)
                self._group.create_task(self._retire(service), name=f"retire {resource.name}")
                del self._settled[resource.name]
                self._encoders.pop(resource.name, None)
                self._fresh.pop(resource.name, None)
                return
        self._settled[resource.name] = self._fresh[resource.name] = resource

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
