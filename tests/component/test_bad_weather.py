"""A PodResources API that is missing, stale, rate-limited or restarts; devices that flap; files that come in bursts."""

import asyncio
import os

import grpc
import pytest

from tests.kit.fakehost import FakeHost
from tests.kit.pod_lister import pod_lister
from vdev.sim import manifest

UART, NPU = "example.com/uart", "acme.dev/npu"
GLOB = f"version: v1\ndevices:\n  - {{name: uart, resource: {UART}, glob: '/dev/ttyUSB*'}}\n"


def virtual(count):
    return f"version: v1\ndevices:\n  - {{name: acme, resource: {NPU}, virtual: {{count: {count}}}}}\n"


@pytest.fixture
def host(directory):
    """A host with one port; real nodes where root is given."""
    host = FakeHost(directory / "host", real_nodes=os.geteuid() == 0)
    host.node("ttyUSB0")
    return host


@pytest.fixture
async def lister(directory):
    """An API of our own on a socket of its own."""
    async with pod_lister(directory / "pods.sock") as servicer:
        yield servicer


async def test_a_rate_limited_answer_drops_nothing(kubelet, start_agent, shows, lister):
    """While the kubelet refuses to answer, what pods may hold stays; when it answers again, the rest goes."""
    lister.held = {NPU: ["acme-1"]}
    agent = await start_agent(virtual(3), pod_resources_socket=lister.socket)
    await kubelet.wait_until(lambda: agent.agent.holders.holders, what="a reading")
    lister.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    agent.edit(virtual(1))
    await shows(NPU, 3, 1)
    asked = lister.asked
    await kubelet.wait_until(lambda: lister.asked > asked + 5, what="more questions")
    await agent.settled(kubelet)
    assert {(NPU, "acme-1"), (NPU, "acme-2")} == set(agent.agent.reconciler.retired)
    lister.refusal = None
    await shows(NPU, 2, 1)
    lister.held = {}
    await shows(NPU, 1, 1)


async def test_a_pod_that_is_named_late_is_asked_for_again(kubelet, start_agent, lister):
    """A kubelet with much to do may admit a pod long after its Allocate."""
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


async def test_a_stale_socket_is_no_answer(kubelet, start_agent, shows, directory):
    """A socket file on which nobody listens tells nothing, and so nothing is dropped."""
    stale = directory / "stale.sock"
    server = await asyncio.start_unix_server(lambda _reader, writer: writer.close(), path=stale)
    server.close()
    await server.wait_closed()
    if not stale.exists():
        stale.touch()
    agent = await start_agent(virtual(2), pod_resources_socket=stale)
    agent.edit(virtual(1))
    await shows(NPU, 2, 1)
    await kubelet.wait_until(lambda: agent.agent.holders.known.silent_since, what="a reading")
    await agent.settled(kubelet)
    assert {(NPU, "acme-1")} == set(agent.agent.reconciler.retired)


async def test_a_kubelet_that_forgot_its_pods_frees_nothing(kubelet, start_agent, shows, lister):
    """An empty answer just after a restart is not believed; the same answer later is."""
    lister.held = {NPU: ["acme-1"]}
    agent = await start_agent(virtual(2), pod_resources_socket=lister.socket, kubelet_grace=600.0)
    await kubelet.wait_until(lambda: agent.agent.holders.holders, what="a reading")
    agent.edit(virtual(1))
    await shows(NPU, 2, 1)
    holders = agent.agent.holders
    lister.refusal = grpc.StatusCode.UNAVAILABLE
    agent.agent.pending.ask_holders()
    await kubelet.wait_until(lambda: not holders.readable, what="the silence")
    await kubelet.restart()
    lister.held, lister.refusal = {}, None
    agent.agent.pending.ask_holders()
    await kubelet.wait_until(lambda: (NPU, "acme-1") in holders.known.unlisted and holders.readable, what="the doubt")
    assert {(NPU, "acme-1"): "n/p"} == holders.holders
    agent.clock.advance(600)
    await shows(NPU, 1, 1)


async def replug(agent, host, kubelet):
    """Let the port go and come back, each time seen."""
    host.remove("/dev/ttyUSB0")
    await kubelet.wait_until(lambda: not agent.agent.reconciler.scan.devices["uart"], what="the loss")
    host.node("ttyUSB0")
    await kubelet.wait_until(lambda: agent.agent.reconciler.scan.devices["uart"], what="the return")


async def test_a_flapping_device_is_counted(kubelet, start_agent, shows, host):
    """Each time that it goes, in the status and in the metric."""
    agent = await start_agent(GLOB, host=host.host)
    await shows(UART, 1, 1)
    for _ in range(5):
        await replug(agent, host, kubelet)
    await shows(UART, 1, 1)
    assert 5 == agent.agent.reconciler.verdicts.flaps("uart-ttyUSB0")
    sample = agent.agent.metrics.registry.get_sample_value("vdev_device_flaps_total", {"resource": UART})
    assert 5 == sample


async def test_a_probes_flaps_are_counted(kubelet, start_agent, shows, directory):
    """Each turn from success to failure counts, in the status and in the metric; a write into the file is enough."""
    state = directory / "state" / "x"
    state.parent.mkdir()
    state.write_text("ok")
    health = f"health: {{probe: file, path: {state}, content: ok, interval: 1h}}"
    text = virtual(1).replace("virtual: {count: 1}", f"virtual: {{count: 1}}, {health}")
    agent = await start_agent(text)
    await kubelet.wait_until(lambda: agent.agent.health.directories, what="the first probe")
    state.write_text("bad")
    await shows(NPU, 1, 0)
    assert 1 == agent.agent.reconciler.verdicts.flaps("acme-0")
    get = agent.agent.metrics.registry.get_sample_value
    assert 1 == get("vdev_device_flaps_total", {"resource": NPU})


async def test_a_vanished_devices_index_is_free_again(kubelet, start_agent, shows, host):
    """While a pod may hold it the index stays; then the next device gets it."""
    await asyncio.to_thread(host.node, "ttyUSB1")
    agent = await start_agent(GLOB, host=host.host)
    await kubelet.run_pod(manifest("a", {UART: 2}))
    await agent.has_named(kubelet, 2)
    host.remove("/dev/ttyUSB0")
    await shows(UART, 2, 1)
    host.node("ttyUSB2")
    await shows(UART, 3, 2)
    indices = {device.id: device.index for device in agent.agent.reconciler.scan.devices["uart"]}
    assert {"uart-ttyUSB1": 1, "uart-ttyUSB2": 2} == indices
    await kubelet.delete_pod("a")
    await shows(UART, 2, 2)
    host.node("ttyUSB3")
    await shows(UART, 3, 3)
    indices = {device.id: device.index for device in agent.agent.reconciler.scan.devices["uart"]}
    assert {"uart-ttyUSB1": 1, "uart-ttyUSB2": 2, "uart-ttyUSB3": 0} == indices
