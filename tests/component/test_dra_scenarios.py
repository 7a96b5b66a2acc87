"""Every scenario file of DRA, played with the plugin on an embedded kubelet that asks everything twice."""

import asyncio
import itertools
import os

import pytest
import structlog

from tests.kit.agent_here import AgentHere
from tests.kit.api_server import ApiServer
from tests.kit.manifests import permissions_of
from tests.kit.scenarios import dra_scenarios
from tests.kit.vdev_node import VdevNode
from vdev.sim import Timings
from vdev.sim.api.api_objects import ApiObjects
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.plugin_process import VdevRun
from vdev.sim.scenarios.scenario import load

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

# Where the plugin ends and another one comes, a process tells more than an agent here; in CI all files are played so.
SOME = {"driver-restart", "rolling-update"}
BY_PROCESS = [each for each in dra_scenarios() if os.environ.get("CI") or each.id in SOME]


@pytest.fixture
async def api_server():
    """An API server with a node, where the plugin may do what its manifests let it do."""
    async with ApiServer() as server:
        await server.add("nodes", {"metadata": {"name": "sim-node"}}, manager="kubelet")
        server.permissions = permissions_of("dra")
        yield server


@pytest.fixture
def node(monkeypatch, api_server, kubeconfig):
    """A maker of nodes, by what makes their plugin; each plugin is in a pod of its own."""
    serial = itertools.count(1)

    def make(plugin):
        def in_a_pod(places):
            monkeypatch.setenv("POD_UID", f"0b3f7a1e-0000-4000-8000-{next(serial):012}")
            return plugin(places)

        return VdevNode(
            in_a_pod,
            objects=ApiObjects(api_server.objects),
            kubeconfig=kubeconfig,
            timings=Timings(boot=0.01, lead=0.01, look=0.02, sources=0.05),
            strict=True,
        )

    return make


async def comes_true(path, node):
    """What the file expects comes true, and nothing is skipped."""
    scenario = await asyncio.to_thread(load, path)
    async with node:
        assert [] == await play(scenario, node, patience=30)


@pytest.mark.parametrize("path", dra_scenarios())
async def test_scenario(path, node):
    """It comes true with an agent in this process, whose pauses are shorter."""
    with structlog.testing.capture_logs():
        await comes_true(path, node(AgentHere.at))


@pytest.mark.long
@pytest.mark.parametrize("path", BY_PROCESS)
async def test_scenario_by_process(path, node, prepared_python):
    """It comes true with `vdev run` and its real pauses."""
    await comes_true(path, node(VdevRun))
