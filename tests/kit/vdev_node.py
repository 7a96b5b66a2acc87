"""A node for vdev's scenarios, with device nodes on its host, and with the reasons of Unhealthy devices."""

import asyncio
import os
import shutil
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

from vdev.agent import command_socket
from vdev.errors import SocketError
from vdev.sim.scenarios.node import EmbeddedNode, NodeOptions
from vdev.sim.scenarios.plugin_process import VdevRun


class VdevNode(EmbeddedNode):
    """A node whose plugin is `vdev run` in a process, or the result of `plugin(places)`.

    `kubeconfig` is the plugin's kubeconfig for the API server of the option `objects`.
    """

    def __init__(self, plugin=VdevRun, *, kubeconfig=None, **kubelet_options):
        def on_this_host(places):
            self._run_dir = places.run_dir
            return plugin(replace(places, host_root=self._host, kubeconfig=kubeconfig))

        options = NodeOptions(command="vdev run --cdi-dir {cdi_dir}")  # so that CDI names are resolved
        super().__init__(options, plugin=on_this_host, **kubelet_options)
        self.sees_slices = True

    async def __aenter__(self):
        self._host = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="host-"))
        self.has_device_nodes = await asyncio.to_thread(_make_host, self._host)
        if not self.has_device_nodes:
            self._host = Path("/")
        self._kubelet_options["host_root"] = self._host
        return await super().__aenter__()

    async def __aexit__(self, *error):
        await super().__aexit__(*error)
        if self._host != Path("/"):
            await asyncio.to_thread(shutil.rmtree, self._host)

    async def hook(self, name):
        """Add or remove a device node of the host, or make the device npu/0 fail or recover."""
        if name in ("plug", "unplug"):
            await asyncio.to_thread(_device_node, self._host / "dev" / "scenario0", make=name == "plug")
            return
        healthy = self._places.configuration.read_text().partition("faults:")[0]
        sick = "faults: {rules: [{name: sick, devices: [npu/0], health: Unhealthy}]}\n"
        await self.edit_configuration(healthy + {"fail": sick, "heal": ""}[name])

    async def reasons(self):
        """Return the reasons in `vdev status`; empty while no agent answers."""
        try:
            return reasons_in(await command_socket.ask(self._run_dir, {"do": "status"}))
        except SocketError:
            return {}


def reasons_in(status):
    """Return the reasons of Unhealthy devices in a status document, by resource and id."""
    return {
        (resource["name"], device["id"]): device["reason"]
        for resource in status["resources"]
        for device in resource["devices"]
        if device["health"] == "Unhealthy"
    }


def _make_host(root):
    """Create a host root with some device nodes. Returns False without the permission to do so."""
    try:
        (root / "dev").mkdir()
        for name in ("null", "zero"):
            _device_node(root / "dev" / name, make=True)
        (root / "sys").mkdir()
    except OSError:
        return False
    return True


def _device_node(path, *, make):
    if make:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        path.unlink()
