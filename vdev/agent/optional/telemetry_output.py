"""What devices measure, from the first plan on that asks for it; before that nothing of it is imported."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from ...core.decide import Plan
from ..node_api import NodeApi
from ..options import Options
from .late import Late

if TYPE_CHECKING:
    from ..outputs.tools.tool_files import SeenSensors
    from .telemetry_side import TelemetrySide


class Telemetry(Late["TelemetrySide"]):
    """The sensors of the node's devices, and the address at which they are told of."""

    name = "measuring devices"

    def __init__(self, options: Options, node_api: NodeApi, wake: Callable[[], None]) -> None:
        super().__init__()
        self._options = options
        self._node_api = node_api
        self._wake = wake

    async def settle(self, plan: Plan) -> None:
        """Note what drives the devices from now on."""
        if self.made is None:
            if not plan.telemetry.on:
                return
            make = await asyncio.to_thread(_imported)
            self._begin(make(self._options, self._node_api.api, on_change=self._wake))
        await (await self._there()).settle(plan)

    async def work(self) -> None:
        """Serve metrics where the configuration says, and keep up with plans that nobody reads."""
        await (await self._there()).work()

    def seen(self, ids: Collection[str]) -> "Mapping[str, SeenSensors]":
        """What these devices and partitions show now, by id. It takes a while: ask from a thread."""
        return self.made.seen(ids) if self.made else {}

    @property
    def _is_on(self) -> bool:
        """Whether the configuration in force asks for it."""
        return self.made is not None and self.made.is_on

    def in_short(self) -> dict[str, Any]:
        """The same in short, for the page. It takes a while: ask from a thread."""
        return {"on": self._is_on, "devices": self.made.in_short() if self.made else {}}

    async def top(self, _request: Mapping[str, Any]) -> dict[str, Any]:
        """What all devices show now, for `vdev top`; keys are stable and documented."""
        devices = await asyncio.to_thread(self.made.document) if self.made else []
        return {
            "on": self._is_on,
            "node": self._options.node,
            "at": self._options.clock.wall(),
            "devices": devices,
        }


def _imported() -> "type[TelemetrySide]":
    """What makes it, imported: it brings the sensors, and the web server where that is not there yet."""
    from .telemetry_side import TelemetrySide

    return TelemetrySide
