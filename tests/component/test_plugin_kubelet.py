"""The kubelet comes late, restarts, dies, forgets, and the plugin is there again, with sockets of its own."""

import asyncio
import shutil
import socket
from pathlib import Path

import pytest

from vdev.agent import status
from vdev.cli.status import lines as status_lines
from vdev.deviceplugin.service import ServiceState
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
    """Whether the resource is served already, and in this state."""
    return NPU in agent.agent.lists.services and service(agent).state is state


async def test_a_kubelet_restart_is_survived(kubelet, start_agent, shows):
    """The kubelet forgets all and deletes all sockets; every resource is served on a new one, and pods keep theirs."""
    agent = await start_agent(CONFIG)
    old = service(agent).socket
    pod = await kubelet.run_pod(manifest("a", {NPU: 2}))
    await kubelet.restart()
    await kubelet.wait_until(lambda: service(agent).registrations == 2, what="a second registration")
    await shows(NPU, 2, 2)
    assert old != service(agent).socket
    assert 0o600 == Path(service(agent).socket).stat().st_mode & 0o777  # only the kubelet, which is root, may connect
    assert pod.container().devices == kubelet.pod("a").container().devices
    assert [] == kubelet.errors


async def test_a_storm_of_restarts_is_survived(kubelet, start_agent, shows):
    """Ten restarts in a row end with everything registered and no socket left over."""
    agent = await start_agent(CONFIG)
    for _ in range(10):
        await kubelet.restart()
    await shows(NPU, 2, 2)
    await shows("example.com/other", 1, 1)
    await agent.stop()
    assert [] == list(kubelet.device_plugin_dir.glob("vdev-*"))
    assert [] == kubelet.errors


async def test_a_dead_kubelet_leaves_a_stale_socket(kubelet, start_agent, shows):
    """ECONNREFUSED on a socket that exists is no reason to give up."""
    agent = await start_agent(CONFIG)
    await kubelet.crash()
    await kubelet.wait_until(lambda: service(agent).state is ServiceState.WAITING, what="waiting")
    assert "no kubelet answers" in service(agent).trouble
    await kubelet.start()
    await shows(NPU, 2, 2)


async def test_the_kubelet_may_come_later(directory, start_agent, kubelet, shows):
    """The plugin starts first; even the kubelet's directory may be missing."""
    await kubelet.stop()
    await asyncio.to_thread(shutil.rmtree, kubelet.root)
    agent = await start_agent(CONFIG, wait=False)
    await kubelet.wait_until(lambda: "no directory" in agent.agent.lock.trouble, what="waiting")
    lines = [*status_lines(status.status(agent.agent))]
    assert any("no directory" in each for each in lines)
    assert not [each for each in lines if "no devices" in each]  # nobody has looked for them
    await kubelet.start()
    await shows(NPU, 2, 2)


async def test_a_deleted_socket_is_made_anew(kubelet, start_agent, shows):
    """Somebody removes the plugin's socket: it serves on a new one and registers again, after ending its streams."""
    agent = await start_agent(CONFIG)
    Path(service(agent).socket).unlink()
    await kubelet.wait_until(lambda: service(agent).registrations == 2, what="a second registration")
    await shows(NPU, 2, 2)
    assert [] == kubelet.errors


@pytest.mark.parametrize("compat", ["1.36", "1.37"])
async def test_a_second_instance_takes_over_and_goes(directory, start_agent, compat):
    """A second instance says that it waits, and serves when the first one ends; no kubelet sees both at once."""
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


async def test_only_our_dead_sockets_are_removed(kubelet, start_agent):
    """A leftover of a dead process of ours goes; a live one's and everybody else's stay."""
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


async def test_a_path_too_long_for_a_socket_is_said(kubelet, start_agent):
    """A directory too deep for a socket is named with the limit, and the process waits and ends cleanly."""
    deep = kubelet.root / ("d" * 100)
    await asyncio.to_thread(deep.mkdir)
    agent = await start_agent(CONFIG, plugin_dir=deep, wait=False)
    await kubelet.wait_until(lambda: is_in(agent, ServiceState.WAITING), what="waiting")
    assert "the system allows 107" in service(agent).trouble
    assert 0 == await agent.stop()


async def test_without_a_kubelet_socket_it_only_serves(kubelet, start_agent):
    """An empty --kubelet-socket serves without registering, as with NVIDIA's plugin."""
    agent = await start_agent(CONFIG, kubelet_socket=None, wait=False)
    await kubelet.wait_until(lambda: is_in(agent, ServiceState.SERVING), what="serving")
    assert {} == dict(kubelet.metrics.registrations)
    assert 0 == await agent.stop()


async def test_a_resource_that_goes_stays_gone_over_a_restart(kubelet, start_agent, shows):
    """A kubelet that restarts while a resource says goodbye is not told the old list again."""
    agent = await start_agent(CONFIG)
    agent.edit(CONFIG.replace("example.com/other", "example.com/new"))
    await shows("example.com/other", 0, 0)
    await kubelet.restart()
    await shows(NPU, 2, 2)
    await shows("example.com/new", 1, 1)
    assert 0 == kubelet.node().capacity.get("example.com/other", 0)


async def test_a_silent_pod_resources_socket_holds_nothing_up(kubelet, start_agent, directory):
    """A socket that accepts and never answers delays neither the start for long nor an edit."""
    silent = directory / "silent.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(silent))
        server.listen()
        agent = await start_agent(CONFIG, pod_resources_socket=silent)
        agent.edit(CONFIG.replace("count: 2", "count: 3"))
        await kubelet.wait_until(lambda: kubelet.node().capacity.get(NPU) == 3, timeout=4, what="the edit, in time")
        await agent.stop()
