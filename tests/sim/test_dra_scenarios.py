"""Every scenario file of DRA, with the tests' own driver on an embedded kubelet that makes each call twice."""

import asyncio

import pytest

from tests.kit.dra_scenarios import ScenarioDriver, dra_scenarios
from vdev.sim import ApiObjects, Timings
from vdev.sim.scenarios.embedded_driver import SimDriver
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario import load


class Node(SimDriver):
    """A node whose driver reads its configuration when it changes, as a plugin does."""

    def __init__(self):
        objects = ApiObjects()
        super().__init__(
            lambda places: ScenarioDriver(places, objects),
            objects=objects,
            timings=Timings(boot=0.01, lead=0.01, look=0.02, sources=0.05),
            strict=True,
        )

    async def configure(self, text):
        """Replace the configuration, and let the driver see it."""
        await super().configure(text)
        await self._plugin.follow()


@pytest.mark.parametrize("path", dra_scenarios())
async def test_scenario(path):
    """It comes true, and nothing is skipped."""
    scenario = await asyncio.to_thread(load, path)
    if "'cel'" in str(scenario.objects):
        pytest.importorskip(
            "cel_expr_python.cel", reason="cel-expr-python, which evaluates selectors, is not installed"
        )
    async with Node() as node:
        assert [] == await play(scenario, node, patience=30)
