"""The plugin under test, as a process of its own."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..objects.node_devices import UNHEALTHY
from . import program
from .scenario import ScenarioError

_LOG_TAIL = 2_000  # characters of the plugin's log that an error shows
_STOP_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class PluginPlaces:
    """Where a plugin finds what it works with. `host_root` is `/` where no device nodes can be made."""

    configuration: Path
    kubelet_dir: Path
    cdi_dir: Path
    host_root: Path
    run_dir: Path
    state_dir: Path
    log: Path
    node_name: str
    kubeconfig: Path | None = None

    def flags(self) -> tuple[str, ...]:
        """The same places, as options of `vdev run`."""
        return (
            *("--config-file", str(self.configuration)),
            *("--kubelet-dir", str(self.kubelet_dir)),
            *("--cdi-dir", str(self.cdi_dir)),
            *("--host-root", str(self.host_root)),
            *("--run-dir", str(self.run_dir)),
            *("--state-dir", str(self.state_dir)),
            *("--node-name", self.node_name),
            *(("--kubeconfig", str(self.kubeconfig)) if self.kubeconfig is not None else ()),
        )


class Plugin(Protocol):
    """A plugin that can be started and ended."""

    async def start(self) -> None:
        """Start it, without waiting until it is up."""

    async def stop(self) -> None:
        """Stop it as with SIGTERM, and wait for its end. No effect if it is not running."""

    async def kill(self) -> None:
        """End it as by kill -9, and wait for its end. No effect if it is not running."""

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """Why it calls devices Unhealthy, by resource and id; empty while it does not answer."""

    def check(self) -> None:
        """Raise ScenarioError if it ended by itself."""


class VdevRun:
    """`vdev run` in a process of its own."""

    def __init__(self, places: PluginPlaces) -> None:
        self._places = places
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start the process; its output is appended to the log."""
        places = self._places
        with await asyncio.to_thread(places.log.open, "ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "vdev", "run"),
                *places.flags(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def stop(self) -> None:
        """End the process with SIGTERM. Raises ScenarioError if it does not end, or not with exit code 0."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)  # `send_signal` may take the exit code from who waits for it
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                code = await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise ScenarioError(f"the plugin did not stop within {_STOP_SECONDS:g} s of SIGTERM") from None
        if code:
            raise ScenarioError(await asyncio.to_thread(self._last_words, code))

    async def kill(self) -> None:
        """End the process with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """What `vdev status` says of Unhealthy devices."""
        words = (sys.executable, "-m", "vdev", "status", "--output", "json", "--run-dir", str(self._places.run_dir))
        _, answer = await program.run(words, stderr=asyncio.subprocess.DEVNULL)
        return reasons_in(json.loads(answer)) if answer.strip() else {}

    def check(self) -> None:
        """Raise ScenarioError with the end of the log if the process ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise ScenarioError(self._last_words(self._process.returncode))

    def _last_words(self, code: int) -> str:
        tail = self._places.log.read_text(errors="replace")[-_LOG_TAIL:]
        return f"the plugin exited with code {code}:\n{tail}"


def reasons_in(status: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The reasons of Unhealthy devices in a status document of vdev."""
    return {
        (resource["name"], device["id"]): device["reason"]
        for resource in status["resources"]
        for device in resource["devices"]
        if device["health"] == UNHEALTHY
    }
