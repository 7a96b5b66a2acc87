"""Every scenario file, played with `vdev run` on the embedded kubelet."""

import asyncio

import pytest

from tests.kit.scenarios import scenarios
from vdev.sim.scenarios.embedded_driver import SimDriver
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario import Capability
from vdev.sim.scenarios.scenario_file import load


@pytest.mark.parametrize("path", scenarios())
async def test_scenario(path):
    """What the file expects comes true; only what needs real device nodes may be skipped."""
    async with SimDriver() as driver:
        scenario = await asyncio.to_thread(load, path)
        skipped = await play(scenario, driver, patience=30)
    if Capability.HOST_NODES in scenario.requires - driver.capabilities:
        pytest.skip(skipped[0])
    assert [] == skipped
