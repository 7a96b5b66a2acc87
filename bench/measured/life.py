"""A plugin, ours or a peer's, registered against the embedded kubelet, with the moments at which things happened."""

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from vdev.sim import Entry, Kubelet
from vdev.sim.journal import Listed, Registered

from ..table.row import Peer
from . import configs, process
from .process import Place, Process

_PATIENCE = 30.0  # seconds; no budget, but the end of a run that hangs


class Life:
    """A running plugin and the kubelet that it talks to."""

    def __init__(self, kubelet: Kubelet, child: Process, resources: Sequence[str]) -> None:
        self.kubelet = kubelet
        self.process = child
        self.resources = resources
        self._endpoints: dict[str, str] = {}
        self._listed: dict[str, float] = {}
        kubelet.journal.listen(self._note)

    def _note(self, entry: Entry) -> None:
        match entry:
            case Registered():
                self._endpoints[entry.resource] = entry.endpoint
            case Listed():
                self._listed.setdefault(entry.resource, time.perf_counter())
            case _:
                pass

    def socket(self, resource: str) -> Path:
        """The resource's socket."""
        return self.kubelet.device_plugin_dir / self._endpoints[resource]

    async def registered(self) -> float:
        """The moment at which the kubelet had the first list of the last resource, once that has come."""
        async with asyncio.timeout(_PATIENCE):
            while not self._listed.keys() >= set(self.resources):
                self.process.check()
                await self.kubelet.journal.next_change()
        return max(self._listed[each] for each in self.resources)

    async def restart_kubelet(self) -> float:
        """Restart the kubelet; returns the seconds from its start to the last resource's first list."""
        await self.kubelet.stop()
        await asyncio.sleep(1.0)  # as long as a service manager waits, so that the plugin knows of the end
        self._listed.clear()
        begun = time.perf_counter()
        await self.kubelet.start()
        return await self.registered() - begun


@asynccontextmanager
async def ours(here: Place, config: str, resources: Sequence[str], *extra: str) -> AsyncIterator[Life]:
    """Our plugin with a configuration; started, not necessarily registered."""
    here.write_config(config)
    async with running(here, process.agent_command(here, *extra), resources) as life:
        yield life


@asynccontextmanager
async def theirs(here: Place, peer: Peer) -> AsyncIterator[Life]:
    """A peer, likewise."""
    filled = peer.command.format(kubelet_dir=here.kubelet, plugin_dir=here.kubelet / "device-plugins", dir=here.root)
    async with running(here, shlex.split(filled), [peer.resource]) as life:
        yield life


@asynccontextmanager
async def running(here: Place, command: Sequence[str], resources: Sequence[str]) -> AsyncIterator[Life]:
    """Whatever that command runs, likewise."""
    async with Kubelet(here.kubelet) as kubelet:
        child = Process(command, log=here.root / "log")
        try:
            yield Life(kubelet, child, resources)
        finally:
            await asyncio.to_thread(child.end)


def eight() -> str:
    """The configuration that the budgets speak of: 8 resources, 8 devices each."""
    return configs.plain(8, 8)
