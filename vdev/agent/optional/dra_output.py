"""Dynamic Resource Allocation, from the first plan on that has a pool; before that nothing of it is imported."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.decide import Plan
from ...core.model.problem import Problem
from ...observe.metrics import Metrics
from ..due import Due
from ..options import Options
from ..outputs.base import Output
from ..steps import Steps
from .node_api import NodeApi

if TYPE_CHECKING:
    from ...dra.driver import Watch
    from .dra_side import DraFaults, DraSide

_RECORD = "prepared-claims.json"  # of a DRA driver, as `dra.places` has it


class Dra(Output):
    """The drivers and slices of a plan's pools, from `start` on."""

    name = "serving DRA"

    def __init__(  # noqa: PLR0917 - the parts that it hands on
        self,
        options: Options,
        node_api: NodeApi,
        due: Due,
        steps: Steps,
        metrics: Metrics,
        faults: "DraFaults",
        watch: "Watch",
    ) -> None:
        self._options = options
        self._node_api = node_api
        self._due = due
        self._steps = steps
        self._metrics = metrics
        self._faults = faults
        self._watch = watch
        self._group: asyncio.TaskGroup | None = None
        self._side: DraSide | None = None
        self._begun = asyncio.Event()
        self._left: Mapping[str, Mapping[str, Any]] = {}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Serve in this group from now on."""
        self._group = group

    async def recall(self) -> None:
        """Read which devices claims have that an earlier process prepared, by driver, wanted now or not."""
        self._left = await asyncio.to_thread(_left, self._options.plugin_dir.parent)

    async def settle(self, plan: Plan) -> None:
        """Serve and publish the plan's pools."""
        if self._side is None:
            if not (plan.pools or self._left) or self._group is None:
                return
            make = await asyncio.to_thread(_imported)
            node = await self._node_api.begin()
            self._side = make(
                self._options,
                node,
                self._group,
                self._steps,
                self._metrics,
                wake=self._changed,
                faults=self._faults,
                watch=self._watch,
                left=self._left,
            )
            self._begun.set()
        await self._side.settle(plan)

    def _changed(self) -> None:
        self._due.mark()
        self._due.ask_holders_soon()  # which pods have claims only the kubelet tells

    async def work(self) -> None:
        """Write slices when that is due: a step to repeat. Raises ApiServerError."""
        await self._begun.wait()
        assert self._side is not None
        await self._side.slices.work()

    async def follow(self) -> None:
        """Follow the slices of the node."""
        await self._begun.wait()
        assert self._side is not None
        await self._side.following.run()

    async def stop(self, *, hands_over: bool = False) -> None:
        """End it, with the slices taken away; or left to another agent."""
        if self._side is not None:
            await self._side.stop(hands_over=hands_over)

    def poke(self) -> None:
        """Ask the fault hooks again."""
        if self._side is not None:
            self._side.poke()

    def wipe(self, concerns: Callable[[str], bool]) -> None:
        """Delete the slices of these drivers, as a fault."""
        if self._side is not None:
            self._side.slices.wipe(concerns)

    @property
    def claimed(self) -> Mapping[str, Collection[str]]:
        """The devices that prepared claims have, by driver and name; with what was written down of them."""
        return self._side.claimed if self._side else self._left

    def recheck(self, changed: frozenset[str] = frozenset()) -> bool:
        """Look at sockets and files; that is done beside the turns."""
        del changed
        if self._side is not None:
            self._side.recheck()
        return False

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with drivers and slices."""
        return self._side.problems if self._side else ()

    @property
    def directories(self) -> frozenset[Path]:
        """The directories of sockets and files."""
        return self._side.directories if self._side else frozenset()

    def document(self) -> list[dict[str, Any]]:
        """The part of the status about it; keys are stable and documented."""
        return self._side.document() if self._side else []


def _left(kubelet_dir: Path) -> Mapping[str, Mapping[str, Any]]:
    records = [*kubelet_dir.glob(f"plugins/*/{_RECORD}")]
    if not records:
        return {}
    from ...dra.checkpoint import devices_of  # not before there is something that it can read

    return {path.parent.name: devices for path in records if (devices := devices_of(path))}


def _imported() -> "type[DraSide]":
    """What makes it, imported: it brings the driver's side of gRPC, and the client of the API server."""
    from .dra_side import DraSide

    return DraSide
