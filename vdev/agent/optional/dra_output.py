"""Dynamic Resource Allocation, from the first plan on that has a pool; before that nothing of it is imported."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.decide import Plan
from ...observe.metrics import Metrics
from ..due import Due
from ..node_api import NodeApi
from ..options import Options
from ..steps import Steps
from .late import Late

if TYPE_CHECKING:
    from ...dra.driver import Watch
    from .dra_side import DraFaults, DraSide

_RECORD = "prepared-claims.json"  # of a DRA driver, as `dra.places` has it


class Dra(Late["DraSide"]):
    """The drivers and slices of a plan's pools, from `start` on."""

    name = "serving DRA"

    def __init__(
        self,
        options: Options,
        node_api: NodeApi,
        due: Due,
        steps: Steps,
        metrics: Metrics,
        faults: "DraFaults",
        watch: "Watch",
        renew: Callable[[str], None],
    ) -> None:
        super().__init__()
        self._options = options
        self._node_api = node_api
        self._due = due
        self._steps = steps
        self._metrics = metrics
        self._faults = faults
        self._watch = watch
        self._renew = renew
        self._group: asyncio.TaskGroup | None = None
        self._left: Mapping[str, Mapping[str, Any]] = {}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Serve in this group from now on."""
        self._group = group

    async def recall(self) -> None:
        """Read which devices claims have that an earlier process prepared, by driver, wanted now or not."""
        self._left = await asyncio.to_thread(_left, self._options.plugin_dir.parent)

    async def settle(self, plan: Plan) -> None:
        """Serve and publish the plan's pools."""
        if self.made is None:
            if not (plan.pools or self._left) or self._group is None:
                return
            make = await asyncio.to_thread(_imported)
            side = make(
                self._options,
                self._node_api,
                self._group,
                self._steps,
                self._metrics,
                wake=self._changed,
                renew=self._renew,
                faults=self._faults,
                watch=self._watch,
                left=self._left,
            )
            self._begin(side)
        await (await self._there()).settle(plan)

    def _changed(self) -> None:
        self._due.mark()
        self._due.ask_holders_soon()  # which pods have claims only the kubelet tells

    async def work(self) -> None:
        """Write slices when that is due: a step to repeat. Raises ApiServerError."""
        await (await self._there()).slices.work()

    async def follow(self) -> None:
        """Follow the slices of the node."""
        await (await self._there()).following.run()

    async def stop(self, *, hands_over: bool = False) -> None:
        """End it, with the slices taken away; or left to another agent."""
        if self.made is not None:
            await self.made.stop(hands_over=hands_over)

    def poke(self) -> None:
        """Ask the fault hooks again."""
        if self.made is not None:
            self.made.poke()

    def wipe(self, concerns: Callable[[str], bool]) -> None:
        """Delete the slices of these drivers, as a fault."""
        if self.made is not None:
            self.made.slices.wipe(concerns)

    @property
    def claimed(self) -> Mapping[str, Collection[str]]:
        """The devices that prepared claims have, by driver and name; with what was written down of them."""
        return self.made.claimed if self.made else self._left

    @property
    def published(self) -> Collection[str]:
        """The drivers whose slices are there."""
        return self.made.slices.published if self.made else ()

    def measure(self) -> None:
        """Bring its metrics up to date."""
        if self.made is not None:
            self.made.measure()

    def document(self) -> list[dict[str, Any]]:
        """The part of the status about it; keys are stable and documented."""
        return self.made.document() if self.made else []


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
