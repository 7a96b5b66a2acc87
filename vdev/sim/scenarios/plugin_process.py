"""The plugin under test, as a process of its own."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..objects.node_devices import UNHEALTHY
from . import program
from .command_plugin import CommandPlugin


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
        """Raise ScenarioError if it ended by itself. Blocks."""


class VdevRun(CommandPlugin):
    """`vdev run`, which has to end well when it is told to."""

    def __init__(self, places: PluginPlaces) -> None:
        argv = (sys.executable, "-m", "vdev", "run", *places.flags())
        super().__init__(argv, log=places.log, environ=os.environ, strict=True)
        self._places = places

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """What `vdev status` says of Unhealthy devices."""
        words = (sys.executable, "-m", "vdev", "status", "--output", "json", "--run-dir", str(self._places.run_dir))
        _, answer = await program.run(words, stderr=asyncio.subprocess.DEVNULL)
        return reasons_in(json.loads(answer)) if answer.strip() else {}


def reasons_in(status: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The reasons of Unhealthy devices in a status document of vdev."""
    return {
        (resource["name"], device["id"]): device["reason"]
        for resource in status["resources"]
        for device in resource["devices"]
        if device["health"] == UNHEALTHY
    }
