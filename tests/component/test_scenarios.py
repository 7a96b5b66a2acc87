"""Every scenario file is played with vdev on the embedded kubelet, in this process and in its own process."""

import asyncio
import importlib.util
import itertools
import os

import pytest
import structlog

from tests.kit import quick
from tests.kit.agent_here import AgentHere
from tests.kit.api_server import ApiServer
from tests.kit.manifests import permissions_of
from tests.kit.scenarios import built_in_scenarios, dra_scenarios, scenarios
from tests.kit.vdev_node import VdevNode
from vdev.sim import Timings
from vdev.sim.api.store import ApiObjects
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.plugin_process import VdevRun
from vdev.sim.scenarios.scenario import load

ALL = [*scenarios(), *dra_scenarios(), *built_in_scenarios()]
HERE = [each for each in ALL if each.id != "built-in-plugin-crash"]  # only a process can be killed
# In CI, all are played with a process; otherwise some in which the plugin ends and another one starts.
SOME = {"hot-plug", "kubelet-crash", "reboot-plugin-first", "dra-driver-restart", "dra-rolling-update"}
SOME |= {"built-in-plugin-crash"}
BY_PROCESS = [each for each in ALL if os.environ.get("CI") or each.id in SOME]
# The configuration of vdev in scenarios for any plugin.
NPUS = """
version: v1
devices:
- {name: npu, resource: acme.dev/npu, virtual: {count: 2}}
"""


@pytest.fixture
async def api_server():
    """An API server with a Node, where the plugin has the permissions of its manifests."""
    async with ApiServer() as server:
        await server.add("nodes", {"metadata": {"name": "sim-node"}}, manager="kubelet")
        server.permissions = permissions_of("dra")
        yield server


@pytest.fixture
def comes_true(monkeypatch, api_server, kubeconfig):
    """A function that plays a file with a plugin. It may be skipped only if it needs real device nodes."""
    serial = itertools.count(1)

    async def comes_true(path, plugin):
        scenario = await asyncio.to_thread(load, path)
        is_dra = "dra" in scenario.requires
        if is_dra and importlib.util.find_spec("cel_expr_python") is None:
            pytest.skip("cel-expr-python, which evaluates selectors, is not installed")
        if not scenario.configuration:
            advertise = "[dra]" if is_dra else "[device-plugin]"
            text = NPUS.replace("virtual", f"advertise: {advertise}, virtual")
            scenario = scenario.model_copy(update={"configuration": text})
        options = {"timings": quick.KUBELET if is_dra or plugin is AgentHere.at else Timings()}
        if is_dra:  # with an API server, and a kubelet that asks everything twice
            options |= {"objects": ApiObjects(api_server.objects), "kubeconfig": kubeconfig, "strict": True}

        def in_a_pod(places):
            """Make a plugin in its own pod."""
            monkeypatch.setenv("POD_UID", f"0b3f7a1e-0000-4000-8000-{next(serial):012}")
            return plugin(places)

        async with VdevNode(in_a_pod, **options) as node:
            if not node.has_device_nodes and any(step.value == "plug" for step in scenario.steps):
                pytest.skip("needs the permission to create device nodes")
            await play(scenario, node, patience=30)

    return comes_true


@pytest.mark.parametrize("path", HERE)
async def test_scenario(path, comes_true):
    """It passes with an agent in this process, if agent and kubelet have shorter intervals."""
    with structlog.testing.capture_logs():
        await comes_true(path, AgentHere.at)


async def test_a_boot_with_the_plugin_first_has_no_race():
    """A slow plugin that starts before the kubelet loses no pod."""
    (path,) = (each.values[0] for each in scenarios() if each.id == "reboot-plugin-first")
    at_once = Timings(boot=0.01, lead=0.01, sources=0.0)
    with structlog.testing.capture_logs():
        async with VdevNode(AgentHere.at, timings=at_once) as node:
            await play(load(path), node, patience=30)


@pytest.mark.long
@pytest.mark.parametrize("path", BY_PROCESS)
async def test_scenario_by_process(path, comes_true, prepared_python):
    """It passes with `vdev run`, with real intervals."""
    await comes_true(path, VdevRun)
