"""Every scenario file, played with the plugin on the embedded kubelet."""

import asyncio
import os
from pathlib import Path

import pytest
import structlog

from tests.kit import quick
from tests.kit.agent_here import AgentHere
from tests.kit.scenarios import scenarios
from vdev.sim import Timings
from vdev.sim.scenarios.driver import Capability
from vdev.sim.scenarios.embedded_driver import SimDriver
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario import load

# A boot is played with a process, which starts as a real one does. Of the others one of each kind is played with a
# process as well, in CI all of them.
FIRST = Path(__file__).parent / "scenarios" / "reboot-plugin-first.yaml"
BOOTS = [each for each in scenarios() if each.id.startswith("reboot")]
OTHERS = [each for each in scenarios() if each not in BOOTS]
SOME = {"hot-plug", "kubelet-crash", "plugin-restart"}
BY_PROCESS = BOOTS + [each for each in OTHERS if os.environ.get("CI") or each.id in SOME]


async def comes_true(path, driver):
    """The scenario passes; it may be skipped only if it needs real device nodes."""
    scenario = await asyncio.to_thread(load, path)
    skipped = await play(scenario, driver, patience=30)
    if Capability.HOST_NODES in scenario.requires - driver.capabilities:
        pytest.skip(skipped[0])
    assert [] == skipped


@pytest.mark.parametrize("path", OTHERS)
async def test_scenario(path):
    """It passes with an agent in this process, with shorter intervals."""
    with structlog.testing.capture_logs():
        async with SimDriver(AgentHere.at, timings=quick.KUBELET) as driver:
            await comes_true(path, driver)


async def test_a_boot_with_the_plugin_first_is_no_race():
    """A slow plugin that starts before the kubelet loses no pod."""
    at_once = Timings(boot=0.01, lead=0.01, sources=0.0)
    with structlog.testing.capture_logs():
        async with SimDriver(AgentHere.at, timings=at_once) as driver:
            await comes_true(FIRST, driver)


@pytest.mark.long
@pytest.mark.parametrize("path", BY_PROCESS)
async def test_scenario_by_process(path, request):
    """It passes with `vdev run`, with real intervals."""
    if path not in BOOTS:
        request.getfixturevalue("prepared_python")
    async with SimDriver() as driver:
        await comes_true(path, driver)
