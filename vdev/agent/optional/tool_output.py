"""The makers' tools for containers, from the first plan on that has a device with one; before that nothing of it is
imported, and nothing runs.
"""

import asyncio
from typing import TYPE_CHECKING

from ...core.decide import Plan
from ..options import Options
from ..outputs.base import Stage
from .late import Late

if TYPE_CHECKING:
    from ..outputs.tools.tool_files import Sensors, ToolFiles


class Tools(Late["ToolFiles"]):
    """As `ToolFiles` is, from when something asks for it or an earlier process left something of it."""

    name = "giving containers their makers' tools"
    stage = Stage.PREPARE

    def __init__(self, options: Options, sensors: "Sensors") -> None:
        super().__init__()
        self._options = options
        self._sensors = sensors
        self._left: bool | None = None

    async def settle(self, plan: Plan) -> None:
        """As it does, once there is something for it."""
        if self.made is None:
            if self._left is None:
                self._left = await asyncio.to_thread(self._options.smi_dir.exists)
            if not (plan.loads or self._left):
                return
            make = await asyncio.to_thread(_imported)
            self._begin(make(self._options.smi_dir, self._sensors, self._options.timing))
        await (await self._there()).settle(plan)

    async def show(self, _plan: Plan) -> None:
        """Have what the tools show brought up to date, after whatever else says what is so."""
        if self.made is not None:
            self.made.show()

    async def run(self) -> None:
        """Keep what the tools show up to date."""
        await (await self._there()).run()


def _imported() -> "type[ToolFiles]":
    from ..outputs.tools.tool_files import ToolFiles

    return ToolFiles
