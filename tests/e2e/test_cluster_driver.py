"""The driver itself, without a cluster: its kubectl is replaced by one that speaks with the embedded API server.

What is tested here is that the driver asks for the right things and waits for the right answers; what a real cluster
answers is for `test_cluster`.
"""

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest
import structlog

from tests.e2e.cluster import ClusterDriver, Target
from tests.e2e.embedded_cluster import NODE, EmbeddedKubectl
from vdev.sim.scenarios.play import play
from vdev.sim.scenarios.scenario_file import load

SCENARIOS = Path(__file__).parents[1] / "sim" / "scenarios"


@contextlib.asynccontextmanager
async def deployed(**options):
    """The driver on an embedded cluster."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl, which renders the overlay, is not here")
    root = Path(tempfile.mkdtemp(prefix="vd-"))
    target = Target(kubelet_restart_command="restart {node}", kubelet_stop_command="stop {node}", namespace="e2e")
    try:
        with structlog.testing.capture_logs():
            async with EmbeddedKubectl(root, **options) as kubectl:
                made = ClusterDriver(target, pause=0.05)
                made.kubectl, made.sleep, made.on_node = kubectl, kubectl.pass_time, kubectl.on_node
                async with made:
                    await made.reset()
                    await made.begin()
                    yield made
                assert [] == kubectl.left()
    finally:
        await asyncio.to_thread(shutil.rmtree, root, ignore_errors=True)


@pytest.fixture
async def driver():
    """The driver on its embedded cluster."""
    async with deployed() as made:
        yield made


@pytest.mark.long
@pytest.mark.parametrize("name", ["pod", "bad-edit", "plugin-restart", "removal-while-held", "sidecar"])
async def test_scenarios_by_kubectl(driver, name):
    """The scenarios come true through kubectl's documents as they do without."""
    assert [] == await play(load(SCENARIOS / f"{name}.yaml"), driver, patience=60)


@pytest.mark.long
@pytest.mark.parametrize("name", ["bad-claim", "driver-restart", "force-deleted-pod", "template-claim", "unhealthy"])
async def test_scenarios_of_claims_by_kubectl(driver, name):
    """So do those of DRA, with no step left out."""
    pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")
    assert [] == await play(load(SCENARIOS / "dra" / f"{name}.yaml"), driver, patience=60)


async def test_what_a_cluster_does_not_let_be_seen():
    """Is said, and waited for by nobody: where the kubelet's metrics are forbidden no registrations are counted."""
    counting, other = (load(SCENARIOS / f"{name}.yaml") for name in ("capacity", "pod"))
    async with deployed(proxy=False) as driver:
        assert 'cannot get resource "nodes/proxy"' in driver.unplayable(counting)
        assert "" == driver.unplayable(other)
    async with deployed() as driver:
        assert "" == driver.unplayable(counting)


async def test_between_two_tests_the_node_is_empty(driver):
    """`reset` takes pods and devices away, so that tests do not see each other."""
    await play(load(SCENARIOS / "capacity.yaml"), driver, patience=60)
    await driver.reset()
    assert not any((await driver.node()).capacity.values())
    assert [] == (await driver.agent_status())["resources"]


async def test_diagnostics_never_fail(driver):
    """What cannot be had is said in the report, and the rest stands beside it."""
    text = await driver.diagnostics()
    assert f"$ kubectl get node {NODE}" in text
    assert "unknown here" in text
