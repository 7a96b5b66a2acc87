"""The kubelet starts late, restarts or crashes, and the plugin serves and registers again."""

import asyncio
import shutil
import socket
from pathlib import Path

import grpc
import pytest

from vdev.agent import status
from vdev.cli.status import lines as status_lines
from vdev.deviceplugin.service import ServiceState
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from vdev.sim import Kubelet, manifest

NPU, OTHER = "acme.dev/npu", "example.com/other"
CONFIG = """
version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}
  - {name: other, resource: example.com/other, virtual: {count: 1}}
"""


def service(agent, name=NPU):
    return agent.agent.lists.services[name]


def is_in(agent, state):
    """Whether the resource is served, and in this state."""
    return NPU in agent.agent.lists.services and service(agent).state is state


async def test_a_kubelet_restart(kubelet, start_agent, shows):
    """The kubelet deletes all sockets. Every resource is served on a new one, and pods keep their devices."""
    agent = await start_agent(CONFIG)
    old = service(agent).socket
    pod = await kubelet.run_pod(manifest("a", {NPU: 2}))
    await kubelet.restart()
    await kubelet.wait_until(lambda: service(agent).registrations == 2, what="a second registration")
    await shows(NPU, 2, 2)
    assert old != service(agent).socket
    assert (
        0o600 == Path(service(agent).socket).stat().st_mode & 0o777
    )  # only root, as which the kubelet runs, may connect
    assert pod.container().devices == kubelet.pod("a").container().devices
    assert [] == kubelet.errors


async def test_many_kubelet_restarts(kubelet, start_agent, shows):
    """After ten restarts in a row everything is registered, and no socket is left."""
    agent = await start_agent(CONFIG)
    for _ in range(10):
        await kubelet.restart()
    await shows(NPU, 2, 2)
    await shows("example.com/other", 1, 1)
    await agent.stop()
    assert [] == list(kubelet.device_plugin_dir.glob("vdev-*"))
    assert [] == kubelet.errors


async def test_a_dead_kubelet_leaves_a_stale_socket(kubelet, start_agent, shows):
    """The plugin retries after ECONNREFUSED."""
    agent = await start_agent(CONFIG)
    await kubelet.crash()
    await kubelet.wait_until(lambda: service(agent).state is ServiceState.WAITING, what="waiting")
    assert "no kubelet answers" in service(agent).trouble
    await kubelet.start()
    await shows(NPU, 2, 2)


async def test_the_plugin_may_start_first(directory, start_agent, kubelet, shows):
    """Even the kubelet's directory may be missing."""
    await kubelet.stop()
    await asyncio.to_thread(shutil.rmtree, kubelet.root)
    agent = await start_agent(CONFIG, wait=False)
    await kubelet.wait_until(lambda: "no directory" in agent.agent.lock.trouble, what="waiting")
    lines = [*status_lines(status.status(agent.agent))]
    assert any("no directory" in each for each in lines)
    assert not [each for each in lines if "no devices" in each]  # discovery has not run
    await kubelet.start()
    await shows(NPU, 2, 2)


async def test_a_deleted_socket_is_replaced(kubelet, start_agent, shows):
    """The plugin ends its streams, serves on a new socket and registers again."""
    agent = await start_agent(CONFIG)
    Path(service(agent).socket).unlink()
    await kubelet.wait_until(lambda: service(agent).registrations == 2, what="a second registration")
    await shows(NPU, 2, 2)
    assert [] == kubelet.errors


@pytest.mark.parametrize("compat", ["1.36", "1.37"])
async def test_a_second_instance_takes_over(directory, start_agent, compat):
    """It reports that it waits, and serves when the first one has ended."""
    async with Kubelet(directory / "k2", compat=compat, rate_limit=False) as node:
        old = await start_agent(CONFIG, plugin_dir=node.device_plugin_dir, kubelet_socket=node.socket, wait=False)
        await node.wait_until(lambda: node.node().allocatable.get(NPU) == 2, what="the first instance")
        new = await start_agent(CONFIG, plugin_dir=node.device_plugin_dir, kubelet_socket=node.socket, wait=False)
        await node.wait_until(lambda: "another vdev" in new.agent.lock.trouble, what="the second instance")
        await old.stop()
        await node.wait_until(
            lambda: not status.not_ready(new.agent) and node.node().allocatable.get(NPU) == 2,
            what="the second instance alone",
        )
        pod = await node.run_pod(manifest("a", {NPU: 1}))
        assert "Running" == pod.phase.value


async def test_only_dead_sockets_of_vdev_are_removed(kubelet, start_agent):
    """Sockets of running processes and of other plugins stay."""
    directory = kubelet.device_plugin_dir

    def bind(name, *, listen):
        made = socket.socket(socket.AF_UNIX)
        made.bind(str(directory / name))
        if listen:
            made.listen()
        return made

    dead, alive = bind("vdev-gpu-00000000-dead.sock", listen=False), bind("vdev-gpu-00000000-live.sock", listen=True)
    other = bind("nvidia-gpu.sock", listen=False)
    dead.close(), other.close()
    (directory / "vdev-notes.sock").write_text("a file")
    agent = await start_agent(CONFIG)
    await agent.stop()
    names = {path.name for path in directory.iterdir()}
    alive.close()
    assert {"vdev-gpu-00000000-live.sock", "nvidia-gpu.sock", "vdev-notes.sock"} <= names
    assert "vdev-gpu-00000000-dead.sock" not in names


async def test_a_socket_path_that_is_too_long(kubelet, start_agent):
    """The error has the limit. The process waits, and ends cleanly."""
    deep = kubelet.root / ("d" * 100)
    await asyncio.to_thread(deep.mkdir)
    agent = await start_agent(CONFIG, plugin_dir=deep, wait=False)
    await kubelet.wait_until(lambda: is_in(agent, ServiceState.WAITING), what="waiting")
    assert "the system allows 107" in service(agent).trouble
    assert 0 == await agent.stop()


async def test_without_a_kubelet_socket_the_plugin_only_serves(kubelet, start_agent):
    """An empty --kubelet-socket serves without registering, as with NVIDIA's plugin."""
    agent = await start_agent(CONFIG, kubelet_socket=None, wait=False)
    await kubelet.wait_until(lambda: is_in(agent, ServiceState.SERVING), what="serving")
    assert {} == dict(kubelet.metrics.registrations)
    assert 0 == await agent.stop()


async def test_a_removed_resource_stays_removed_over_a_kubelet_restart(kubelet, start_agent, shows):
    """A kubelet that restarts while a resource is being removed does not get the old list again."""
    agent = await start_agent(CONFIG)
    agent.edit(CONFIG.replace("example.com/other", "example.com/new"))
    await shows("example.com/other", 0, 0)
    await kubelet.restart()
    await shows(NPU, 2, 2)
    await shows("example.com/new", 1, 1)
    assert 0 == kubelet.node().capacity.get("example.com/other", 0)


async def test_a_hanging_pod_resources_socket_delays_nothing(kubelet, start_agent, directory):
    """A socket that accepts and never answers delays neither the start nor an edit for long."""
    silent = directory / "silent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(silent))
        server.listen()
        agent = await start_agent(CONFIG, pod_resources_socket=silent)
        agent.edit(CONFIG.replace("count: 2", "count: 3"))
        await kubelet.wait_until(lambda: kubelet.node().capacity.get(NPU) == 3, timeout=4, what="the edit, in time")
        await agent.stop()


async def test_a_stream_of_a_server_that_does_not_stop_ends(kubelet, start_agent):
    """A client that reads late gets no list from a socket that was replaced."""
    ids = ", ".join(f"{'x' * 40}-{number}" for number in range(9000))  # more than gRPC buffers
    text = f"version: v1\ndevices: [{{name: npu, resource: {NPU}, virtual: {{count: 9000, ids: [{ids}]}}}}]\n"
    agent = await start_agent(text, server=0.05, last_requests=60.0)
    served = service(agent)
    old = served.socket
    options = [("grpc.http2.bdp_probe", 0), ("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(f"unix:{old}", options=options) as channel:
        stream = rpc.DevicePluginStub(channel).ListAndWatch(pb.Empty())
        await kubelet.wait_until(lambda: served.servicer.streams == 2, what="the second stream")
        Path(old).unlink()
        await kubelet.wait_until(lambda: served.socket not in ("", old) and served.ready, what="another socket")
        assert 9000 == len((await stream.read()).devices)
        served.servicer.list_again()
        async with asyncio.timeout(10):
            assert await stream.read() is grpc.aio.EOF
        await kubelet.wait_until(lambda: served.servicer.streams == 1, what="the end of the old stream")
