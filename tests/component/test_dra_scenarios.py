"""Every scenario file of DRA, played with the plugin on an embedded kubelet that asks everything twice."""

import asyncio
import itertools

import pytest
import structlog

from tests.kit.agent_here import AgentHere
from tests.kit.api_kubelet import DRA_KINDS, ServerObjects
from tests.kit.api_server import ApiServer
from tests.kit.dra_scenarios import dra_scenarios
from tests.kit.manifests import permissions_of
from vdev.sim import Timings
from vdev.sim.scenarios.embedded_driver import SimDriver
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario_file import load

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")


@pytest.fixture
async def api_server():
    """An API server with a node, where the plugin may do what its manifests let it do."""
    async with ApiServer(kinds=DRA_KINDS) as server:
        await server.add("nodes", {"metadata": {"name": "sim-node"}}, manager="kubelet")
        server.permissions = permissions_of("dra")
        yield server


@pytest.fixture
def plugin(monkeypatch):
    """A maker of agents, each in a pod of its own."""
    serial = itertools.count(1)

    def make(places):
        monkeypatch.setenv("POD_UID", f"0b3f7a1e-0000-4000-8000-{next(serial):012}")
        return AgentHere.at(places)

    return make


@pytest.mark.parametrize("path", dra_scenarios())
async def test_scenario(path, plugin, api_server, kubeconfig):
    """It comes true, and nothing is skipped."""
    scenario = await asyncio.to_thread(load, path)
    node = SimDriver(
        plugin,
        objects=ServerObjects(api_server),
        kubeconfig=kubeconfig,
        timings=Timings(boot=0.01, lead=0.01, sources=0.05),
        strict=True,
    )
    with structlog.testing.capture_logs():
        async with node:
            assert [] == await play(scenario, node, patience=30)
