"""The makers' tools for containers, from the first plan on that has a device with one; before that nothing of it is
imported, and nothing runs.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.decide import Plan
from ...core.model.problem import Problem
from ..options import Options
from ..outputs.base import Output, Stage

if TYPE_CHECKING:
    from ..outputs.tools.tool_files import Sensors, ToolFiles


class Tools(Output):
    """As `ToolFiles` is, from when something asks for it or an earlier process left something of it."""

    name = "giving containers their makers' tools"
    stage = Stage.PREPARE

    def __init__(self, options: Options, sensors: "Sensors") -> None:
        self._options = options
        self._sensors = sensors
        self._made: ToolFiles | None = None
        self._begun = asyncio.Event()
        self._left: bool | None = None

    async def settle(self, plan: Plan) -> None:
        """As it does, once there is something for it."""
        if self._made is None:
            if self._left is None:
                self._left = await asyncio.to_thread(self._options.smi_dir.exists)
            if not (plan.loads or self._left):
                return
            make = await asyncio.to_thread(_imported)
            options = self._options
            self._made = make(options.smi_dir, self._sensors, options.intervals, options.clock)
            self._begun.set()
        await self._made.settle(plan)

    def show(self) -> None:
        """Bring what the tools show up to date now."""
        if self._made is not None:
            self._made.show()

    async def run(self) -> None:
        """Keep what the tools show up to date."""
        await self._begun.wait()
        assert self._made is not None
        await self._made.run()

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """As it does."""
        return self._made is not None and self._made.recheck(changed)

    @property
    def toolless(self) -> frozenset[str]:
        """The devices, by raw id, whose containers get no tools."""
        return self._made.toolless if self._made else frozenset()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Those of the files."""
        return self._made.problems if self._made else ()

    @property
    def directories(self) -> frozenset[Path]:
        """Those that others may empty."""
        return self._made.directories if self._made else frozenset()

    @property
    def again_at(self) -> float | None:
        """When it wants to be settled again."""
        return self._made.again_at if self._made else None


class ToolViews(Output):
    """What the tools show, brought up to date after whatever else says what is so."""

    name = "showing devices in containers"

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def settle(self, plan: Plan) -> None:
        """Have it written beside the turns."""
        del plan
        self._tools.show()


def _imported() -> "Callable[..., ToolFiles]":
    from ..outputs.tools.tool_files import ToolFiles

    return ToolFiles
