"""Failures in a deployment: a hanging registration, no PodResources, and missing configuration files."""

import asyncio

import grpc
import grpc.aio
import pytest

from vdev.agent import status
from vdev.errors import ConfigError
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as api_grpc

NPU = "acme.dev/npu"
CONFIG = f"""\
version: v1
devices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]
"""
THREE = CONFIG.replace("count: 2", "count: 3")


def said(agent, level):
    """The log lines of a level."""
    return [each for each in agent.logs if each["log_level"] == level]


class Hanging(api_grpc.RegistrationServicer):
    """A kubelet that does not answer registrations."""

    def __init__(self):
        self.asked, self.given_up = asyncio.Event(), asyncio.Event()

    async def Register(self, _request, _context):
        """Wait until the plugin gives up."""
        self.asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up.set()
        return api.Empty()


@pytest.mark.timeout(60)
async def test_a_stop_during_the_registration(directory, start_agent):
    """The agent cancels the registration and ends with 0."""
    place = directory / "slow"
    place.mkdir()
    kubelet, server = Hanging(), grpc.aio.server()
    api_grpc.add_RegistrationServicer_to_server(kubelet, server)
    server.add_insecure_port(f"unix:{place / 'kubelet.sock'}")
    await server.start()
    try:
        agent = await start_agent(CONFIG, wait=False, plugin_dir=place, kubelet_socket=place / "kubelet.sock")
        await kubelet.asked.wait()
        assert status.not_ready(agent.agent)
        stopping = asyncio.ensure_future(agent.stop())
        await kubelet.given_up.wait()
        assert 0 == await stopping
        assert [] == list(place.glob("vdev-*"))
    finally:
        await server.stop(None)


async def test_without_pod_resources(directory, kubelet, start_agent, shows):
    """The agent is ready, and logs one warning."""
    agent = await start_agent(CONFIG, pod_resources_socket=directory / "none.sock")
    await kubelet.wait_until(lambda: said(agent, "warning"), what="the warning")
    assert ["pod resources are not readable"] == [each["event"].partition(";")[0] for each in said(agent, "warning")]
    assert not status.not_ready(agent.agent)


# --- a directory of files --------------------------------------------------------------------------------------------


@pytest.fixture
def files(directory):
    """A function that replaces the files of a ConfigMap's directory, as the kubelet does it."""
    mount = directory / "mount"
    mount.mkdir()
    serial = iter(range(100))

    def publish(**texts):
        data = mount / f"..{next(serial)}"
        data.mkdir()
        for name, text in texts.items():
            (data / f"{name}.yaml").write_text(text)
            link = mount / f"{name}.yaml"
            if not link.is_symlink():
                link.symlink_to(f"..data/{name}.yaml")
        (mount / "..new").symlink_to(data.name)
        (mount / "..new").rename(mount / "..data")
        for link in mount.glob("*.yaml"):
            if link.stem not in texts:
                link.unlink()

    publish.mount = mount
    return publish


async def test_a_file_for_the_node_comes_and_goes(files, kubelet, start_agent, shows):
    """A new or deleted key changes the chosen file. If none is left, the last good configuration stays in force."""
    files(default=CONFIG)
    agent = await start_agent(CONFIG, config_files=(files.mount,))
    await shows(NPU, 2, 2)
    files(**{"default": CONFIG, "node-1": THREE})
    await shows(NPU, 3, 3)
    files(other=CONFIG, another=CONFIG)
    await kubelet.wait_until(  # links are deleted one after the other, and each state may be read
        lambda: any("no file for node node-1" in each["problems"][0] for each in said(agent, "error")),
        what="the refusal",
    )
    assert not agent.agent.config.last_was_good
    assert not status.not_ready(agent.agent)
    await shows(NPU, 3, 3)


async def test_no_file_at_the_start(files, start_agent):
    """Without a file for this node and a stored configuration, the start fails. The error lists the files."""
    files(other=CONFIG, another=CONFIG)
    with pytest.raises(ConfigError, match=r"no file for node node-1: .*; there are another.yaml, other.yaml"):
        await start_agent(CONFIG, config_files=(files.mount,))
