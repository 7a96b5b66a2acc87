"""A PodResources API that is rate-limited, late, or lists no pods after a restart."""

import asyncio

import grpc
import pytest

from tests.kit.pod_lister import pod_lister
from vdev.sim import manifest

UART, NPU = "example.com/uart", "acme.dev/npu"


def virtual(count):
    return f"version: v1\ndevices:\n  - {{name: acme, resource: {NPU}, virtual: {{count: {count}}}}}\n"


@pytest.fixture
async def lister(directory):
    """A PodResources API of the test on its own socket."""
    async with pod_lister(directory / "pods.sock") as servicer:
        yield servicer


async def test_a_rate_limited_answer_releases_nothing(kubelet, start_agent, shows, lister):
    """Removed devices stay listed while the kubelet refuses, and free ones go as soon as it answers again."""
    lister.held = {NPU: ["acme-1"]}
    agent = await start_agent(virtual(3), pod_resources_socket=lister.socket)
    await kubelet.wait_until(lambda: agent.agent.holders.holders, what="a reading")
    lister.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    agent.edit(virtual(1))
    await shows(NPU, 3, 1)
    asked = lister.asked
    await kubelet.wait_until(lambda: lister.asked > asked + 5, what="more questions")
    await agent.settled(kubelet)
    assert {(NPU, "acme-1"), (NPU, "acme-2")} == set(agent.agent.reconciler.previous.retired)
    assert agent.agent.holders.readable
    assert not [line for line in agent.logs if "not readable" in line["event"]]
    lister.refusal = None
    await shows(NPU, 2, 1)
    lister.held = {}
    await shows(NPU, 1, 1)


async def test_the_pod_of_an_allocate_is_looked_up_again(kubelet, start_agent, lister):
    """A busy kubelet may name a pod long after its Allocate."""
    agent = await start_agent(
        virtual(1), pod_resources_socket=lister.socket, look_at_holders=3600.0, unnamed_allocate=60.0
    )
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    asked = lister.asked
    await kubelet.wait_until(lambda: lister.asked > asked, what="the first question")
    lister.held = {NPU: ["acme-0"]}
    await kubelet.wait_until(lambda: agent.agent.holders.named, what="the pod's name")
    asked = lister.asked
    await asyncio.sleep(1.5)
    assert asked == lister.asked


async def test_an_empty_answer_after_a_restart_releases_nothing(kubelet, start_agent, shows, lister):
    """The agent trusts it only after the grace period."""
    lister.held = {NPU: ["acme-1"]}
    agent = await start_agent(virtual(2), pod_resources_socket=lister.socket, kubelet_grace=600.0)
    await kubelet.wait_until(lambda: agent.agent.holders.holders, what="a reading")
    agent.edit(virtual(1))
    await shows(NPU, 2, 1)
    holders = agent.agent.holders
    lister.refusal = grpc.StatusCode.UNAVAILABLE
    agent.agent.holders.ask()
    await kubelet.wait_until(lambda: not holders.readable, what="the silence")
    await kubelet.restart()
    lister.held, lister.refusal = {}, None
    agent.agent.holders.ask()
    await kubelet.wait_until(lambda: (NPU, "acme-1") in holders.known.unlisted and holders.readable, what="the doubt")
    assert {(NPU, "acme-1"): "n/p"} == holders.holders
    agent.clock.advance(600)
    await shows(NPU, 1, 1)
