"""Telemetry of one agent: it tells the sensors what the plan says, and serves what they measure."""

import asyncio
import platform
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..agent.applier import Applier
from ..agent.options import Options
from ..aio.clock import Clock
from ..kube import Api
from ..model.device import Device, base_id
from ..model.problem import Problem, error
from ..model.telemetry import Range
from ..model.telemetry import Telemetry as Section
from ..planning.plan import DesiredState
from .page import page
from .pod_wishes import PodWishes
from .sensors import LoadSituation, MeasuredDevice, Sensors, User
from .simulation import Throttle

if TYPE_CHECKING:
    from ..observe.http import Side


def by_device(faults: "Mapping[tuple[str, str], Sequence[Any]]") -> dict[str, list[Any]]:
    """What faults do, by the id of a device or partition alone."""
    found: dict[str, list[Any]] = {}
    for (_, device), each in faults.items():
        found.setdefault(device, []).extend(each)
    return found


def users_of(plan: DesiredState, node: str) -> tuple[dict[str, list[User]], dict[str, list[Device]]]:
    """Who has each device, by its id, and which partitions claims have cut, by raw device."""
    found: dict[str, dict[User, None]] = {}
    claimed: dict[str, dict[str, Device]] = {}
    for key, pod in sorted((plan.holdings.holders or {}).items()):
        namespace, _, name = pod.partition("/")
        user = User(namespace, name, plan.holdings.containers.get(key, ""))
        found.setdefault(base_id(key[1]), {})[user] = None
    for use in plan.holdings.claimed:
        pool = plan.pools.get(use.driver)
        published = pool.by_name.get(use.device) if pool and use.pool == node else None
        if published is not None:
            namespace, _, name = use.pod.partition("/")
            user = User(namespace, name, use.container, use.claim, use.driver, use.pool, use.device)
            found.setdefault(published.device.id, {})[user] = None
            if published.device.is_partition:
                claimed.setdefault(published.group, {})[published.device.id] = published.device
    return {device: list(users) for device, users in found.items()}, {
        raw: list(devices.values()) for raw, devices in claimed.items()
    }


def load_of(plan: DesiredState, node: str, wishes: Mapping[str, Range]) -> LoadSituation:
    """What loads the devices of the node by this plan, and who has each device."""
    users, claimed = users_of(plan, node)
    return LoadSituation(
        devices=plan.devices,
        base=plan.base,
        loads=plan.loads,
        users=users,
        claimed=claimed,
        xids=by_device({key: [error.number for error in errors] for key, errors in plan.xids.items()}),
        sensors=by_device(plan.sensors),
        wishes=wishes,
        seed=plan.seed,
        node=node,
    )


def in_short(measured: MeasuredDevice) -> list[float | None]:
    """Load, temperature, power, and used and all of the memory; None for each of one that is lost."""
    own, whole = measured.own, measured.whole
    if whole.lost:
        return [None] * 5
    numbers = (own.gpu_percent, whole.temperature_c, whole.power_w, own.memory_used_mib, own.memory_total_mib)
    return [round(each) for each in numbers]


def document(measured: MeasuredDevice) -> dict[str, Any]:
    """All of it, for `vdev top`; keys are stable and documented."""
    fixture, own, whole = measured.fixture, measured.own, measured.whole
    part = f":{fixture.device.part}" if fixture.is_cut else ""
    return {
        "id": fixture.device.id,
        "entry": fixture.device.raw.entry,
        "resource": fixture.resource,
        "parent": fixture.device.raw.id if fixture.device.is_partition else "",
        "index": fixture.device.ordinal,
        "deviceIndex": f"{fixture.device.raw.index}{part}",
        "profile": fixture.device.profile,
        "health": "Healthy" if fixture.health.healthy else "Unhealthy",
        "reason": fixture.health.reason,
        "injected": fixture.health.injected,
        "lost": whole.lost,
        "xid": whole.xid,
        "load": round(own.gpu_percent, 1),
        "memoryUsedMiB": own.memory_used_mib,
        "memoryTotalMiB": own.memory_total_mib,
        "temperature": round(whole.temperature_c, 1),
        "power": round(whole.power_w, 1),
        "powerLimit": fixture.physics.peak_power,
        "energy": whole.energy_mj // 1000,
        "clock": whole.sm_clock_mhz,
        "throttled": bool(whole.throttle & ~Throttle.IDLE),
        "eccCorrected": whole.ecc_corrected,
        "eccUncorrected": whole.ecc_uncorrected,
        "holders": [
            {"namespace": each.namespace, "pod": each.pod, "container": each.container} for each in fixture.users
        ],
    }


class Telemetry(Applier):
    """The sensors of one node. `api` None: there is no API server; `on_change` is called when problems are others."""

    name = "measuring devices"

    def __init__(self, options: Options, api: Api | None, *, on_change: Callable[[], None]) -> None:
        self._options = options
        self._clock: Clock = options.clock
        self._on_change = on_change
        self._api = api
        self._sensors = Sensors()
        self._reading = threading.Lock()  # held while the sensors are brought up to date or read
        self._plan: DesiredState | None = None
        self._stale = False  # whether the sensors do not know of the plan and the wishes yet
        self._is_on = False
        self._section = Section()
        self._due = asyncio.Event()
        self._side: Side | None = None
        self._serving: asyncio.Task[None] | None = None
        self._pods: PodWishes | None = None
        self._following: asyncio.Task[None] | None = None
        self._wishes: Mapping[str, Range] = {}

    # --- what is so ---------------------------------------------------------------------------------------------------

    async def apply(self, plan: DesiredState) -> None:
        self._is_on, self._section = plan.telemetry is not None, plan.telemetry or Section()
        self._plan = plan
        self._stale = True
        self._due.set()

    @property
    def is_on(self) -> bool:
        """Whether the last plan asks for it."""
        return self._is_on

    def catch_up(self) -> None:
        """Let the sensors know of the last plan. Blocks for a moment where there are many devices."""
        with self._reading:
            self._catch_up()

    def _catch_up(self) -> None:
        if self._stale and self._plan is not None:
            self._stale = False
            self._sensors.settle(load_of(self._plan, self._options.node, self._wishes), self._clock.now())

    def measured(self, only: Collection[str] | None = None) -> list[MeasuredDevice]:
        """What all devices show now, or only those of these ids. Blocks: call it from a thread."""
        with self._reading:
            self._catch_up()
            return list(self._sensors.measured(self._clock.now(), only))

    def page(self) -> str:
        """The same as Prometheus reads it."""
        return page([(self._options.node, self.measured())], self._section.hostname_label)

    # --- who is told --------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Serve metrics where that is asked for, forever."""
        address = ""
        async with asyncio.TaskGroup() as group:
            try:
                while True:
                    await self._due.wait()
                    self._due.clear()
                    if (self._section.address or "") != address:
                        address = self._section.address or ""
                        await self._serve(group, address)
                    self._follow_pods(group)
                    await asyncio.to_thread(self.catch_up)
            finally:
                await self._end()

    async def _serve(self, group: asyncio.TaskGroup, address: str) -> None:
        await self._end()
        self._side = self._serving = None
        if address:
            self._side = await asyncio.to_thread(self._make_side, address)
            await self._side.bind()
            self._serving = group.create_task(self._side.run(), name="telemetry HTTP")

    def _follow_pods(self, group: asyncio.TaskGroup) -> None:
        if self._section.pod_annotations and self._following is None:
            options, told = self._options, self._pods_changed
            self._pods = PodWishes(options.node, self._api, on_change=told)
            self._following = group.create_task(self._pods.run(), name="annotations of pods")
        elif not self._section.pod_annotations and self._following is not None:
            self._following.cancel()
            self._following = self._pods = None
            self._pods_changed()

    def _pods_changed(self) -> None:
        self._wishes = self._pods.wishes if self._pods else {}
        self._stale = True
        self._due.set()
        self._on_change()

    def _make_side(self, address: str) -> "Side":
        from ..observe import device_metrics, http  # they import the web server

        hosts = (self._options.node, platform.node(), *self._options.http_hosts)
        app = device_metrics.application(self.page)
        return http.Side(address, app, what="metrics of devices", hosts=hosts, on_change=self._on_change)

    async def _end(self) -> None:
        if self._side is not None:
            self._side.stop()
        if self._serving is not None:
            await asyncio.wait([self._serving])

    @property
    def problems(self) -> tuple[Problem, ...]:
        found = [*self._pods.problems] if self._pods else []
        if self._side is not None and self._side.trouble:
            message = f"metrics of devices cannot be served at {self._section.address}: {self._side.trouble}"
            found.append(error("telemetry.address", message, "choose another address, or end what uses this one"))
        return tuple(found)

    def in_short(self) -> dict[str, Any]:
        """What the page shows of each device, by id. Call it from a thread."""
        return {"on": self._is_on, "devices": {each.fixture.device.id: in_short(each) for each in self.measured()}}

    async def top(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """What all devices show now, for `vdev top`; keys are stable and documented."""
        found = await asyncio.to_thread(self.measured)
        return {
            "on": self._is_on,
            "node": self._options.node,
            "at": self._clock.wall(),
            "devices": [document(each) for each in found],
        }
