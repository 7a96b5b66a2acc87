"""Scenarios on the embedded kubelet: the kubelet in this process, the plugin in one of its own.

Owns the directories, the plugin's process and what is asked of both. Another driver can play the same files on a real
node; nothing of the files is decided here.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, assert_never

from ..clock import LeapClock
from ..device_manager.device_table import UNHEALTHY, Capacity
from ..kubelet import kubelet_directory
from ..kubelet.kubelet import Kubelet
from ..objects.pods import PodStatus
from .scenario import Action, Capability, ScenarioError

_LOG_TAIL = 2_000  # characters of the plugin's log that an error shows
_POLL_SECONDS = 0.1
_STOP_SECONDS = 30.0
_HOST_NODES = ("null", "zero")


@dataclass(frozen=True, slots=True)
class Places:
    """Where a plugin finds what it works with. `host_root` is `/` where no device nodes can be made."""

    configuration: Path
    kubelet_dir: Path
    cdi_dir: Path
    host_root: Path
    run_dir: Path
    state_dir: Path
    log: Path
    node_name: str


class Plugin(Protocol):
    """A plugin that can be started and ended."""

    async def start(self) -> None:
        """Start it; returns before it is up."""

    async def stop(self) -> None:
        """End it as by SIGTERM; returns when it is gone. Does nothing if it does not run."""

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """Why it calls devices Unhealthy, by resource and id; empty while it does not answer."""

    def check(self) -> None:
        """Raise ScenarioError if it ended by itself."""


class VdevRun:
    """`vdev run` in a process of its own."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; its output is appended to the log."""
        places = self._places
        with await asyncio.to_thread(places.log.open, "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "vdev", "run"),
                *("--config-file", str(places.configuration)),
                *("--kubelet-dir", str(places.kubelet_dir)),
                *("--cdi-dir", str(places.cdi_dir)),
                *("--host-root", str(places.host_root)),
                *("--run-dir", str(places.run_dir)),
                *("--state-dir", str(places.state_dir)),
                *("--node-name", places.node_name),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def stop(self) -> None:
        """End the process with SIGTERM. Raises ScenarioError if it does not end, or not with exit code 0."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ScenarioError(f"the plugin did not end within {_STOP_SECONDS:g} s of SIGTERM") from None
        if code:
            raise ScenarioError(await asyncio.to_thread(self._last_words, code))

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """What `vdev status` says of Unhealthy devices."""
        asking = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "vdev", "status", "--output", "json"),
            *("--run-dir", str(self._places.run_dir)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        answer, _ = await asking.communicate()
        return reasons_in(json.loads(answer)) if answer.strip() else {}

    def check(self) -> None:
        """Raise ScenarioError with the end of the log if the process ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise ScenarioError(self._last_words(self._process.returncode))

    def _last_words(self, code: int) -> str:
        tail = self._places.log.read_text(errors="replace")[-_LOG_TAIL:]
        return f"the plugin ended with exit code {code}:\n{tail}"


def reasons_in(status: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The reasons of Unhealthy devices in a status document of vdev."""
    return {
        (resource["name"], device["id"]): device["reason"]
        for resource in status["resources"]
        for device in resource["devices"]
        if device["health"] == UNHEALTHY
    }


class SimDriver:
    """A node in a temporary directory, as an async context manager. `plugin` makes what is to be tested."""

    def __init__(self, plugin: Callable[[Places], Plugin] = VdevRun, *, node_name: str = "sim-node") -> None:
        self._make_plugin = plugin
        self._node_name = node_name
        self._clock = LeapClock()
        self.capabilities = frozenset(Capability)

    async def __aenter__(self) -> Self:
        self._root = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="scenario-"))
        host = self._root / "host"
        if not await asyncio.to_thread(_make_host, host):
            self.capabilities -= {Capability.HOST_NODES}
            host = Path("/")
        self._places = Places(
            configuration=self._root / "config.yaml",
            kubelet_dir=self._root / "k",
            cdi_dir=self._root / "cdi",
            host_root=host,
            run_dir=self._root / "run",
            state_dir=self._root / "state",
            log=self._root / "plugin.log",
            node_name=self._node_name,
        )
        self._plugin = self._make_plugin(self._places)
        self._configured = False
        self.kubelet = Kubelet(
            self._places.kubelet_dir, node_name=self._node_name, clock=self._clock, host_root=self._places.host_root
        )
        await self.kubelet.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._plugin.stop()
        finally:
            await self.kubelet.stop()
            await asyncio.to_thread(shutil.rmtree, self._root, ignore_errors=True)

    async def configure(self, text: str) -> None:
        """Replace the configuration by a rename, as editors do; starts the plugin the first time."""
        await asyncio.to_thread(_replace, self._places.configuration, text)
        if not self._configured:
            self._configured = True
            await self._plugin.start()

    async def act(self, action: Action) -> None:
        """Do something to the kubelet or the plugin."""
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
            case Action.REBOOT_PLUGIN_FIRST:
                await self._reboot()
            case _:
                assert_never(action)

    async def _reboot(self) -> None:
        """What lives in memory goes; the plugin's part of the boot is over when the kubelet starts."""
        await self.kubelet.power_off()
        await self._plugin.stop()
        await asyncio.to_thread(shutil.rmtree, self._places.cdi_dir, ignore_errors=True)
        directory = self.kubelet.device_plugin_dir
        await asyncio.to_thread(kubelet_directory.remove_sockets, directory)
        await self._plugin.start()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                while not await asyncio.to_thread(kubelet_directory.sockets, directory):
                    await self.change()
        except TimeoutError:
            raise ScenarioError(f"the plugin did not serve within {_STOP_SECONDS:g} s of its start") from None
        await self.kubelet.start(wait=False)

    async def advance_clock(self, seconds: float) -> None:
        """Put the kubelet's clock forward."""
        self._clock.advance(seconds)

    async def create_pod(self, manifest: Mapping[str, Any]) -> None:
        """Create a pod on the kubelet."""
        await self.kubelet.run_pod(manifest)

    async def delete_pod(self, name: str) -> None:
        """Delete a pod."""
        await self.kubelet.delete_pod(name)

    async def restart_container(self, pod: str) -> None:
        """Restart the pod's first app container."""
        await self.kubelet.restart_container(pod)

    async def device_node(self, path: str, *, make: bool) -> None:
        """Make or remove a character device below the host root."""
        await asyncio.to_thread(_device_node, self._places.host_root / path.lstrip("/"), make=make)

    async def node(self) -> Capacity:
        """What the node status shows."""
        return self.kubelet.node()

    async def pod(self, name: str) -> PodStatus | None:
        """A pod as it is, None if there is none."""
        return next((pod for pod in self.kubelet.pods() if pod.name == name), None)

    async def registrations(self, resource: str) -> int:
        """The kubelet's count of registrations."""
        return self.kubelet.metrics.registrations[resource]

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """What the plugin says of itself."""
        return await self._plugin.reasons()

    async def errors(self) -> list[str]:
        """The error findings."""
        return [str(finding) for finding in self.kubelet.errors]

    async def change(self) -> None:
        """Return at the kubelet's next change, or soon."""
        await asyncio.to_thread(self._plugin.check)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await self.kubelet.journal.next_change()


def _make_host(root: Path) -> bool:
    """A host root with the device nodes that every Linux has; False where they cannot be made (no root). Blocks."""
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


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)
