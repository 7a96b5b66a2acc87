"""A slow kubelet, which sees the end of a stream later than the plugin."""

from pathlib import Path

import pytest

from tests.kit import quick
from tests.worlds import grpc_channel
from tests.worlds.grpc_calls import Network
from tests.worlds.virtual_time import PROCESS, Process
from vdev.sim import Kubelet

NPU = "acme.dev/npu"
CONFIG = f"version: v1\ndevices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]\n"


@pytest.fixture
def late():
    """The delays of the next messages to the kubelet in seconds. Later messages have none."""
    return []


@pytest.fixture
async def kubelet(directory, late):
    """The kubelet, over gRPC in memory."""
    network = Network(lambda process: late.pop() if late and process == "kubelet" else 0.0)
    with grpc_channel.installed(network):
        async with Kubelet(directory / "kubelet", rate_limit=False, timings=quick.KUBELET) as running:
            yield running


@pytest.mark.parametrize("ends", ["the socket is gone", "the stream is closed"])
async def test_a_recheck_of_faults_does_not_hurry_a_registration(kubelet, late, start_agent, ends):
    """A resource is not registered before the kubelet has seen the end of the old stream."""
    PROCESS.set(Process("agent"))
    agent = await start_agent(CONFIG)
    service = agent.agent.lists.services[NPU]
    late.append(0.08)  # the end of the stream
    if ends == "the socket is gone":
        Path(service.socket).unlink()
    else:
        service.servicer.close_streams()
    service.recheck_faults()
    await kubelet.wait_until(lambda: service.registrations > 1 and service.ready, what="another registration")
    assert [] == kubelet.findings
