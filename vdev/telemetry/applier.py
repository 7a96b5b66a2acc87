"""Telemetry of one agent: updates the sensors after each plan, and serves their values."""

import asyncio
import functools
import importlib
import platform
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..agent.applier import Applier
from ..agent.options import Options
from ..agent.retry import Retrier
from ..aio.program import shown
from ..kube.api import Api
from ..kube.informer import Informer
from ..kube.objects import PODS, key_of
from ..model.problem import Problem, warning
from ..model.telemetry import Range
from ..model.telemetry import Telemetry as Section
from ..planning.in_use import Use
from ..planning.plan import DesiredState
from .exporters import page
from .sensors import Sensors
from .simulation import MeasuredDevice, Throttle, parse_load
from .tool_files import ToolFiles

_OFF = Section()
_SERVING = "serving metrics of devices"
_ANNOTATIONS = ("vdev.dev/load", "run.ai/simulated-gpu-utilization")  # the first one that is present wins
_MOST_PROBLEMS = 10  # of annotations


def _short_document(measured: MeasuredDevice) -> list[float | None]:
    """Load, temperature, power, used memory and total memory; None for each if the device is lost."""
    own, whole = measured.own, measured.whole
    if whole.lost:
        return [None] * 5
    values = (own.gpu_percent, whole.temperature_c, whole.power_w, own.memory_used_mib, own.memory_total_mib)
    return [round(each) for each in values]


def _document(measured: MeasuredDevice) -> dict[str, Any]:
    """All values, for `vdev top`."""
    info, own, whole = measured.info, measured.own, measured.whole
    part = f":{info.device.part}" if info.device.is_partition else ""
    return {
        "id": info.device.id,
        "entry": info.device.raw.entry,
        "resource": info.resource,
        "parent": info.device.raw.id if info.device.is_partition else "",
        "index": info.device.ordinal,
        "deviceIndex": f"{info.device.raw.index}{part}",
        "profile": info.device.profile,
        "health": "Healthy" if info.health.healthy else "Unhealthy",
        "reason": info.health.reason,
        "injected": info.health.injected,
        "lost": whole.lost,
        "xid": whole.xid,
        "load": round(own.gpu_percent, 1),
        "memoryUsedMiB": own.memory_used_mib,
        "memoryTotalMiB": own.memory_total_mib,
        "temperature": round(whole.temperature_c, 1),
        "power": round(whole.power_w, 1),
        "powerLimit": info.physics.peak_power,
        "energy": whole.energy_mj // 1000,
        "clock": whole.sm_clock_mhz,
        "throttled": bool(whole.throttle & ~Throttle.IDLE),
        "eccCorrected": whole.ecc_corrected,
        "eccUncorrected": whole.ecc_uncorrected,
        "holders": [_holder(each) for each in info.users],
    }


def _holder(user: Use) -> dict[str, str]:
    namespace, _, pod = user.pod.partition("/")
    return {"namespace": namespace, "pod": pod, "container": user.container}


def annotated_load(pod: Mapping[str, Any]) -> Range | Problem | None:
    """The load in a pod's annotation, or the problem with it; None without an annotation."""
    annotations = pod["metadata"].get("annotations") or {}
    for name in _ANNOTATIONS:
        text = annotations.get(name)
        if text is not None:
            try:
                return parse_load(str(text))
            except ValueError as wrong:
                message = f"its annotation {name} is {shown(str(text))!r}: {wrong}; its devices keep their pattern"
                return warning(f"pod {key_of(pod)}", message, "write percent, such as 75 or 60-90")
    return None


class Telemetry(Applier):
    """The sensors of one node, and their interfaces: HTTP for Prometheus, `vdev top`, the status page.

    `on_change` asks for a reconciliation. `tools` shows the values in containers.
    """

    name = "measuring devices"

    def __init__(self, options: Options, api: Api, retrier: Retrier, *, on_change: Callable[[], None]) -> None:
        self.tools = ToolFiles(options.smi_dir, self.measured, options.timing)
        self._options = options
        self._retrier = retrier
        self._on_change = on_change
        self._api = api
        self._sensors = Sensors()
        self._section = _OFF
        self._section_changed = asyncio.Event()
        self._pods: Informer[Range | Problem] | None = None

    async def apply(self, plan: DesiredState) -> None:
        before, self._section = self._section, plan.observed.spec.telemetry or _OFF
        if before is not _OFF or self._section is not _OFF:
            known = self._pods.objects if self._pods else {}
            loads = {pod: each for pod, each in known.items() if isinstance(each, Range)}
            await asyncio.to_thread(self._sensors.update, plan, loads, self._options.clock.now())
        if before != self._section:
            self._section_changed.set()
        self.tools.show(plan)

    def measured(self, only: Collection[str] | None = None) -> list[MeasuredDevice]:
        """Read the sensors of all devices, or of those with the ids `only`. Blocks: call it in a thread."""
        return self._sensors.measured(self._options.clock.now(), only)

    # --- documents ----------------------------------------------------------------------------------------------------

    def page(self) -> str:
        """The metrics for Prometheus. Blocks."""
        return page([(self._options.node_name, self.measured())], self._section.hostname_label)

    def for_page(self) -> dict[str, Any]:
        """The values of each device that the status page shows, by id. Blocks."""
        devices = {each.info.device.id: _short_document(each) for each in self.measured()}
        return {"on": self._section is not _OFF, "devices": devices}

    async def top(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """The values of all devices, for `vdev top`. Keys are stable and documented."""
        found = await asyncio.to_thread(self.measured)
        return {
            "on": self._section is not _OFF,
            "node": self._options.node_name,
            "at": self._options.clock.wall(),
            "devices": [_document(each) for each in found],
        }

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Serve metrics and follow the pods' annotations as the configuration says, until that changes."""
        self._section_changed.clear()
        async with asyncio.TaskGroup() as group:
            tasks = []
            if self._section.address:
                tasks.append(group.create_task(self._serve(self._section.address), name="telemetry HTTP"))
            if self._section.pod_annotations:
                tasks.append(group.create_task(self._follow_pods(), name="annotations of pods"))
            await self._section_changed.wait()
            for task in tasks:
                task.cancel()

    async def _serve(self, address: str) -> None:
        http = await asyncio.to_thread(importlib.import_module, "vdev.observe.http")  # slow: it imports the web server
        app, hosts = http.exporter(self.page), (self._options.node_name, platform.node(), *self._options.http_hosts)
        serve = functools.partial(
            http.serve, address, app, what="metrics of devices", option="telemetry.address", hosts=hosts
        )
        await self._retrier.supervise(_SERVING, serve)

    async def _follow_pods(self) -> None:
        def see(old: Range | Problem | None, new: Range | Problem | None) -> None:
            if old != new:
                self._on_change()  # the next plan updates the sensors

        self._pods = Informer(
            self._api,
            PODS,
            fields={"spec.nodeName": self._options.node_name},
            keep=annotated_load,
            on_change=see,
            on_look=self._on_change,
        )
        try:
            await self._pods.run()
        finally:
            self._pods = None
            self._on_change()

    @property
    def problems(self) -> tuple[Problem, ...]:
        known = self._pods.objects.values() if self._pods else ()
        found = [each for each in known if isinstance(each, Problem)][:_MOST_PROBLEMS]
        if self._pods is not None and self._pods.trouble is not None:
            message = f"the annotations of pods are not known, so devices keep their patterns: {self._pods.trouble}"
            hint = "let vdev list and watch pods, or set telemetry.podAnnotations to false"
            found.append(warning("telemetry.podAnnotations", message, hint))
        return tuple(found)
