"""The driver of scenarios for the embedded kubelet. The plugin is usually a separate process."""

import asyncio
import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, assert_never

from ...aio.clock import LeapClock
from ...hostfs import write_atomic
from ..api.api_objects import ApiObjects
from ..device_manager.device_table import Capacity
from ..journal import Entry
from ..kubelet import kubelet_directory
from ..kubelet.kubelet import Kubelet
from ..lint import Severity
from ..objects.pods import PodStatus
from .driver import RESOURCE, Action, Capability, ScenarioError
from .plugin_process import CommandPlugin, PluginPlaces, VdevRun

_POLL_SECONDS = 0.1
_START_SECONDS = 30.0
_HOST_NODES = ("null", "zero")


class SimDriver:
    """A node in a temporary directory, as an async context manager.

    Args:
        plugin: creates the plugin under test
        node_name: the name of the node
        objects: the API server's objects; None for objects in memory
        kubeconfig: how the plugin reaches the API server of `objects`
        strict: the kubelet calls DRA drivers twice
        kubelet_dir: the kubelet's directory; None for one in the temporary directory
        host_nodes: the host has device nodes, which scenarios can create and remove
        cdi: CDI names are resolved, so a container with an unknown name does not start
        kubelet_options: more options of `Kubelet`
    """

    def __init__(
        self,
        plugin: Callable[[PluginPlaces], CommandPlugin] = VdevRun,
        *,
        node_name: str = "sim-node",
        objects: ApiObjects | None = None,
        kubeconfig: Path | None = None,
        strict: bool = False,
        kubelet_dir: Path | None = None,
        host_nodes: bool = True,
        cdi: bool = True,
        **kubelet_options: Any,
    ) -> None:
        self._objects = objects or ApiObjects()
        self._kubeconfig = kubeconfig
        self._strict = strict
        self._kubelet_dir = kubelet_dir
        self._host_nodes = host_nodes
        self._cdi = cdi
        self._kubelet_options = kubelet_options
        self._make_plugin = plugin
        self._node_name = node_name
        self._clock = LeapClock()
        self.capabilities = frozenset(Capability) - {Capability.HOOK}

    async def __aenter__(self) -> Self:
        self._root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="scenario-"))
        host = self._root / "host"
        if not self._host_nodes or not await asyncio.to_thread(_make_host, host):
            self.capabilities -= {Capability.HOST_NODES}
            host = Path("/")
        self._places = PluginPlaces(
            configuration=self._root / "config.yaml",
            kubelet_dir=self._kubelet_dir or self._root / "k",
            cdi_dir=self._root / "cdi",
            host_root=host,
            run_dir=self._root / "run",
            state_dir=self._root / "state",
            log=self._root / "plugin.log",
            node_name=self._node_name,
            kubeconfig=self._kubeconfig,
        )
        self._plugin = self._make_plugin(self._places)
        self._configured = False
        self.kubelet = Kubelet(
            self._places.kubelet_dir,
            node_name=self._node_name,
            clock=self._clock,
            host_root=self._places.host_root if self._host_nodes or self._strict else None,
            objects=self._objects,
            cdi_dir=self._places.cdi_dir if self._cdi else None,
            strict=self._strict,
            **self._kubelet_options,
        )
        await self.kubelet.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._plugin.stop()
        finally:
            await self.kubelet.stop()
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    async def configure(self, text: str) -> None:
        """Replace the configuration by a rename, as editors do; the first call starts the plugin."""
        await asyncio.to_thread(write_atomic, self._places.configuration, text.encode())
        if not self._configured:
            self._configured = True
            await self._plugin.start()

    async def act(self, action: Action) -> None:
        match action:
            case Action.RESTART_KUBELET:
                await self.kubelet.restart(wait=False)
            case Action.CRASH_KUBELET:
                await self.kubelet.crash()
            case Action.START_KUBELET:
                await self.kubelet.start(wait=False)
            case Action.RESTART_PLUGIN:
                await self._plugin.stop()
                await self._plugin.start()
            case Action.STOP_PLUGIN:
                await self._plugin.stop()
            case Action.START_PLUGIN:
                await self._plugin.start()
            case Action.KILL_PLUGIN:
                await self._plugin.kill()
            case Action.REBOOT_PLUGIN_FIRST:
                await self._power_off()
                await self._plugin.start()
                await self._plugin_serves()
                await self.kubelet.start(readmit=False)
                await self._plugin_is_listed()
                await self.kubelet.readmit()
            case Action.REBOOT_KUBELET_FIRST:
                await self._power_off()
                await self.kubelet.start()
                await self._plugin.start()
            case Action.ROLL_PLUGIN:
                old, self._plugin = self._plugin, self._make_plugin(self._places)
                await self._plugin.start()
                await old.stop()
            case _:
                assert_never(action)

    async def _power_off(self) -> None:
        """Shut the node down: containers, processes and files in memory are gone."""
        await self.kubelet.power_off()
        await self._plugin.stop()
        await asyncio.to_thread(shutil.rmtree, self._places.cdi_dir, ignore_errors=True)
        await asyncio.to_thread(kubelet_directory.remove_sockets, self.kubelet.device_plugin_dir)

    async def _plugin_serves(self) -> None:
        """Wait until the plugin has a socket. Raises ScenarioError."""
        directory = self.kubelet.device_plugin_dir
        try:
            async with asyncio.timeout(_START_SECONDS):
                while not await asyncio.to_thread(kubelet_directory.sockets, directory):
                    await self.change()
        except TimeoutError:
            raise ScenarioError(f"the plugin opened no socket within {_START_SECONDS:g} s of its start") from None

    async def _plugin_is_listed(self) -> None:
        """Wait, with a limit, until the kubelet has lists of all resources that its pods had.

        On a real node, a running plugin has sent its lists long before the kubelet learns of its pods. A busy machine
        must not change that order.
        """
        had = {resource for pod in self.kubelet.pods() for each in pod.containers for resource in each.devices}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                while not had <= self.kubelet.listed().keys():
                    await self.change()

    async def advance_clock(self, seconds: float) -> None:
        """Advance the kubelet's clock, and let everything that is due run."""
        self._clock.advance(seconds)
        await self.change()

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        await self.kubelet.run_pod(manifest)

    async def delete_pod(self, name: str, *, force: bool = False) -> None:
        self._must_exist(name)
        await self.kubelet.delete_pod(name, force=force)

    async def create_object(self, document: Mapping[str, Any]) -> None:
        await self._objects.create(document["kind"], document)

    async def delete_object(self, kind: str, name: str, namespace: str) -> None:
        await self._objects.delete(kind, name, namespace)

    async def slices(self, driver: str) -> Sequence[str] | None:
        found = [
            each["spec"]
            for each in await self._objects.list("ResourceSlice")
            if (each["spec"]["driver"], each["spec"].get("nodeName")) == (driver, self._node_name)
        ]
        if not found:
            return None
        newest = max(spec["pool"].get("generation", 0) for spec in found)
        current = [spec for spec in found if spec["pool"].get("generation", 0) == newest]
        return [device["name"] for spec in current for device in spec.get("devices") or []]

    async def claim(self, name: str) -> Sequence[str] | None:
        claim = await self._objects.get("ResourceClaim", name, "default")
        if claim is None:
            return None
        allocation = (claim.get("status") or {}).get("allocation") or {}
        return [each["device"] for each in allocation.get("devices", {}).get("results") or []]

    async def drivers(self, driver: str) -> int:
        return sum(each.connected for each in self.kubelet.drivers().get(driver, []))

    async def events(self, pod: str) -> Sequence[str]:
        """The Warning events on a pod."""
        return [f"{each.reason}: {each.message}" for each in self.kubelet.events if each.pod == f"default/{pod}"]

    async def restart_container(self, pod: str) -> None:
        self._must_exist(pod)
        await self.kubelet.restart_container(pod)

    def _must_exist(self, name: str) -> None:
        if not any(pod.name == name for pod in self.kubelet.pods()):
            raise ScenarioError(f"there is no pod {name!r} now; `createPod: {name}` creates it")

    async def device_node(self, path: str, *, make: bool) -> None:
        """Create or remove a character device below the host root."""
        await asyncio.to_thread(_device_node, self._places.host_root / path.lstrip("/"), make=make)

    async def node(self) -> Capacity:
        return self.kubelet.node()

    async def pod(self, name: str) -> PodStatus | None:
        return next((pod for pod in self.kubelet.pods() if pod.name == name), None)

    async def registrations(self, resource: str) -> int:
        """The kubelet's counter, plus registrations through plugins_registry, which the kubelet does not count."""
        return self.kubelet.metrics.registrations[resource] + self.kubelet.metrics.watched[resource]

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        return await self._plugin.reasons()

    async def hook(self, name: str) -> None:
        """This driver has no hooks."""
        raise ScenarioError(f"no command for the hook {name!r}")

    async def names(self, placeholder: str) -> Sequence[str]:
        """The resources, or the DRA drivers, that have registered so far."""
        event, field = ("registered", "resource") if placeholder == RESOURCE else ("driverRegistered", "driver")
        return sorted({each.fields[field] for each in self.kubelet.journal.of(event)})

    async def errors(self, also: frozenset[str] = frozenset()) -> list[str]:
        """The error findings, and warnings with one of these codes."""
        found = self.kubelet.findings
        return [str(each) for each in found if each.severity is Severity.ERROR or each.code in also]

    async def causes(self) -> list[str]:
        """Why registrations are missing."""
        return _missing_registrations(self.kubelet.journal.entries)

    async def change(self) -> None:
        """Return at the kubelet's next change, but soon. Raises ScenarioError if the plugin ended by itself."""
        await self._plugin.check()
        await self.kubelet.journal.next_change(at_most=_POLL_SECONDS)


def _missing_registrations(entries: Iterable[Entry]) -> list[str]:
    """Why resources are not registered with the current kubelet process."""
    known: dict[str, str] = {}  # by resource, the endpoint of its last registration
    late: dict[str, str] = {}
    refused: dict[str, str] = {}
    waits: dict[str, str] = {}
    for entry in entries:
        resource, endpoint = (entry.fields.get(name, "") for name in ("resource", "endpoint"))
        match entry.event:
            case "kubelet" if entry.fields["what"] == "started":
                text = "has not registered since the kubelet started again: watch kubelet.sock"
                late = {resource: text for resource, endpoint in known.items() if "/" not in endpoint}
                refused, waits = {}, {}
            case "registered":
                known[resource] = endpoint
                for each in (late, refused, waits):
                    each.pop(resource, None)
            case "registrationFailed":
                refused[resource] = f"called Register, and was refused: {entry.fields['error']}"
            case "registrationWaits":
                waits[resource] = f"called Register, but nothing answers at {endpoint}: " + (
                    "a kubelet that starts removes all sockets of the directory; serve again before you register"
                    if resource in known
                    else "serve before you register"
                )
    return [f"{resource} {text}" for resource, text in {**late, **refused, **waits}.items()]


def _make_host(root: Path) -> bool:
    """Create a host root with some device nodes; returns False without the permission to do so. Blocks."""
    try:
        for name in _HOST_NODES:
            (root / "dev").mkdir(parents=True, exist_ok=True)
            _device_node(root / "dev" / name, make=True)
        (root / "sys").mkdir()
    except OSError:
        return False
    return True


def _device_node(path: Path, *, make: bool) -> None:
    if make:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    else:
        path.unlink()
