"""Connects DRA with the agent: a driver for each pool of the plan, and the slices that publish it."""

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..agent.applier import Applier
from ..aio.tasks import cancel_and_wait
from ..errors import HostError
from ..kube.informer import Informer
from ..kube.objects import RESOURCE_SLICES
from ..model.device import Slot, device_document, grouped
from ..model.problem import Problem
from ..planning.plan import DesiredState
from .checkpoint import CHECKPOINT, Places, Prepared, read_checkpoint
from .claim import PreparedClaim
from .pools import Held
from .published_devices import DraDevice, Record, empty_pool
from .slice_applier import ResourceSlices

if TYPE_CHECKING:
    from ..agent.agent import Agent
    from .driver import DraDriver


class DraDrivers(Applier):
    """The drivers of one node.

    A driver with prepared claims is served until the last of them is unprepared, even if an earlier process prepared
    them, because their pods cannot end before that. No request is sent to the API server before the first driver.
    """

    name = "serving DRA"

    def __init__(self, agent: "Agent") -> None:
        self._agent = agent
        self._group: asyncio.TaskGroup | None = None
        self._begun = asyncio.Event()  # set when the first driver exists
        self._recorded: dict[str, Prepared] = {}  # the claims of drivers that do not run yet
        self._drivers: dict[str, DraDriver] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._following = Informer(
            agent.node_api.api,
            RESOURCE_SLICES,
            fields={"spec.nodeName": agent.options.node_name},
            keep=lambda document: document,
            on_change=lambda _old, _new: self.slices.look(),
        )
        self.slices: ResourceSlices = ResourceSlices(
            agent.node_api.access, self._following, self._present, agent.faults.engine
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def _present(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the node's slices after the first attempt to list them. Raises ApiServerError if none succeeded."""
        await self._following.looked.wait()
        if self._following.trouble is not None and not self._following.is_listed:
            raise self._following.trouble
        return self._following.objects

    async def recall(self) -> None:
        """Read the claims that an earlier process prepared, for all drivers."""
        self._recorded = await asyncio.to_thread(_recorded, self._agent.options.plugin_dir.parent)

    async def follow(self) -> None:
        await self._begun.wait()
        await self._following.run()

    async def apply(self, plan: DesiredState) -> None:
        """Serve a driver for each pool of the plan, and publish the pools."""
        wanted = plan.pools.keys() | self.claimed.keys()
        for name in self._drivers.keys() - wanted:
            del self._drivers[name]
            self._tasks[name].cancel()
            self._agent.metrics.forget(name)
        for name in wanted - self._drivers.keys():
            self._start(name)
        self.directories = frozenset().union(*(driver.directories for driver in self._drivers.values()))
        if wanted:
            self._begun.set()
        for name, driver in self._drivers.items():
            driver.update(plan.pools.get(name) or empty_pool(name))
        if self._begun.is_set():
            await self.slices.apply(plan)

    def _start(self, name: str) -> None:
        from .driver import DraDriver  # imported late: nodes without DRA do not need its gRPC messages

        options = self._agent.options
        places = Places(
            driver=name,
            kubelet_dir=options.plugin_dir.parent,
            cdi_dir=options.cdi_dir,
            pod_uid=os.environ.get("POD_UID", ""),
        )
        driver = self._drivers[name] = DraDriver(self._agent, places, self._recorded.pop(name, {}))
        assert self._group is not None
        serving = self._agent.retrier.supervise(
            f"serving the DRA driver {name}", driver.run, after=self._tasks.get(name)
        )
        self._tasks[name] = self._group.create_task(serving, name=f"DRA driver {name}")

    @property
    def claimed(self) -> Held:
        """The devices that claims use or are about to get."""
        # `preparing` is read before `prepared`, see `Claims.preparing`.
        soon = {name: dict.fromkeys(driver.claims.preparing) for name, driver in self._drivers.items()}
        prepared = self._recorded | {name: driver.claims.prepared for name, driver in self._drivers.items()}
        found: dict[str, dict[str, Record | None]] = {}
        for name, claims in prepared.items():
            given = {device.device: device.record for claim in claims.values() for device in claim.devices}
            if devices := {**soon.get(name, {}), **given}:
                found[name] = devices
        return found

    @property
    def problems(self) -> tuple[Problem, ...]:
        of_drivers = (each for driver in self._drivers.values() for each in driver.problems)
        return (*of_drivers, *self.slices.problems)

    def look(self) -> None:
        """Let the tasks of the drivers check their sockets and files soon."""
        for driver in self._drivers.values():
            driver.recheck()

    def recheck_faults(self) -> None:
        for driver in self._drivers.values():
            driver.servicer.calls.wake()
        self.slices.look()

    async def stop(self) -> None:
        """End the drivers. The slices stay for the next agent; without one, the kubelet deletes them in 30 seconds."""
        await cancel_and_wait(self._tasks.values())

    def measure(self) -> None:
        for name, driver in self._drivers.items():
            devices, metrics = driver.claims.pool.devices, self._agent.metrics
            bad = [each for each in devices if not each.health.healthy]
            metrics.devices.labels(name, "Healthy").set(len(devices) - len(bad))
            metrics.devices.labels(name, "Unhealthy").set(len(bad))
            metrics.retired.labels(name).set(sum(each.lost for each in bad))
            metrics.drilled.labels(name).set(sum(each.health.is_injected and not each.lost for each in bad))
            metrics.held.labels(name).set(len(_claims_by_device(driver)))
            metrics.claims.labels(name).set(len(driver.claims.prepared))

    def document(self) -> list[dict[str, Any]]:
        """The drivers in the status document; the keys are stable and documented."""
        return [self._driver_document(name, driver) for name, driver in sorted(self._drivers.items())]

    def _driver_document(self, name: str, driver: "DraDriver") -> dict[str, Any]:
        devices, claims = driver.claims.pool.devices, _claims_by_device(driver)
        return {
            "name": name,
            "state": str(driver.state),
            "devices": len(devices),
            "unhealthy": sum(not each.health.healthy for each in devices),
            "slices": self.slices.published.get(name, 0),
            "healthStreams": driver.servicer.health_streams,
            "claims": [
                {
                    "namespace": claim.namespace,
                    "name": claim.name,
                    "uid": claim.uid,
                    "devices": [device.device for device in claim.devices],
                }
                for claim in driver.claims.prepared.values()
            ],
            "deviceList": [_document(each, claims.get(each.name, ())) for each in devices],
        }


def _claims_by_device(driver: "DraDriver") -> Mapping[str, Sequence[PreparedClaim]]:
    prepared = driver.claims.prepared.values()
    return grouped((device, claim) for claim in prepared for device in {one.device for one in claim.devices})


def _document(device: DraDevice, claims: Sequence[PreparedClaim]) -> dict[str, Any]:
    core, health = device.device, device.health
    return {
        "name": device.name,
        **device_document(Slot(core.id, core, None, health)),
        "entry": device.entry,
        "selector": core.selector,
        "reason": health.reason,
        "injected": health.injected,
        "taints": [f"{each.key}{f'={each.value}' if each.value else ''}:{each.effect}" for each in device.taints],
        "claims": [f"{each.namespace}/{each.name}" for each in claims],
    }


def _recorded(kubelet_dir: Path) -> dict[str, Prepared]:
    found: dict[str, Prepared] = {}
    for path in kubelet_dir.glob(f"plugins/*/{CHECKPOINT}"):
        with contextlib.suppress(HostError, ValueError):  # the driver reports it
            if claims := read_checkpoint(path):
                found[path.parent.name] = claims
    return found
