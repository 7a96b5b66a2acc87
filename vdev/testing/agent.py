"""The fixture `vdev_agent`: `vdev run` in a separate process, on the kubelet of a test."""

import asyncio
import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import yaml

from ..agent import command_socket
from ..errors import SocketError, VdevError
from ..hostfs import write_atomic
from ..sim import Kubelet
from ..sim.scenarios.plugin_process import PluginPlaces, VdevRun
from ..sim.scenarios.scenario import ScenarioError
from .kubelet import BlockingKubelet
from .loop_thread import LoopThread, in_thread

Configuration = str | Path | Mapping[str, Any]
"""A configuration as text, as a file, or as a mapping."""

_READY_SECONDS = 30.0
_POLL_SECONDS = 0.02
_TAIL = 4_000  # characters of its log that are shown with a failed test


class Agent:
    """`vdev run`. Its methods are awaited."""

    def __init__(self, places: PluginPlaces, kubelet: BlockingKubelet | Kubelet) -> None:
        self._places = places
        self._kubelet = kubelet
        self._process = VdevRun(places)

    async def start(self) -> None:
        """Start it, and wait until the node shows its devices. Raises VdevError with its log."""
        await self._process.start()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await self._serves():
                    await self._process.check()
                    await self._kubelet.journal.next_change(at_most=_POLL_SECONDS)
        except ScenarioError as ended:
            words = self.errors() or self.log()[-_TAIL:]
            raise VdevError(f"{words}\n{str(ended).partition(';')[0]}".lstrip()) from None
        except TimeoutError:
            text = f"vdev run was not ready within {_READY_SECONDS:g} s; its log ends with\n{self.log()[-_TAIL:]}"
            raise VdevError(f"{self.errors()}\n{text}".lstrip()) from None

    async def stop(self) -> None:
        """Stop it with SIGTERM. Raises VdevError if it ends with an error."""
        await self._process.stop()

    async def kill(self) -> None:
        """Kill it with SIGKILL."""
        await self._process.kill()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def edit(self, configuration: Configuration) -> None:
        """Replace its configuration file. `kubelet.wait_until` waits for the effect."""
        await asyncio.to_thread(_write, self._places.configuration, configuration)

    async def status(self) -> dict[str, Any]:
        """The output of `vdev status --output json`."""
        answer: dict[str, Any] = await command_socket.ask(self._places.run_dir, {"do": "status"})
        return answer

    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._places.log.read_text(errors="replace")
        return ""

    def errors(self) -> str:
        """The errors in its log, and lines that are not log entries, such as an error at its start."""
        found = []
        for line in self.log().splitlines():
            try:
                entry = json.loads(line)
                if entry["level"] == "error":
                    found += [f"{entry['event']}: {each}" for each in entry.get("problems") or [entry.get("error")]]
            except (ValueError, LookupError, TypeError):
                found.append(line)
        return "\n".join(found)[-_TAIL:]

    async def _serves(self) -> bool:
        try:
            status = await self.status()
        except SocketError:
            return False
        node, resources = self._kubelet.node(), status["resources"]
        shown = {name: (count, node.allocatable.get(name)) for name, count in node.capacity.items()}
        return bool(status["ready"]) and all(
            shown.get(each["name"]) == (each["capacity"], each["allocatable"]) for each in resources
        )


class BlockingAgent:
    """An `Agent` whose methods block in a plain test, and are awaited if an event loop runs."""

    def __init__(self, thread: LoopThread, agent: Agent, run_dir: Path, cdi_dir: Path) -> None:
        self._thread = thread
        self._inner = agent
        self.run_dir = run_dir
        self.cdi_dir = cdi_dir

    @classmethod
    @contextlib.contextmanager
    def running(cls, thread: LoopThread, kubelet: BlockingKubelet, configuration: Configuration) -> Iterator[Self]:
        """Run an agent in a context. Raises VdevError if it does not start, or if it ends with an error."""
        directory = Path(tempfile.mkdtemp(prefix="vdev-"))  # short enough for sockets, unlike the test's directory
        places = PluginPlaces.below(directory, kubelet_dir=kubelet.root, node_name=kubelet.node_name)
        agent = Agent(places, kubelet)
        try:
            _write(places.configuration, configuration)
            try:
                thread.wait(agent.start())
                yield cls(thread, agent, places.run_dir, places.cdi_dir)
            finally:
                thread.wait(agent.stop())
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    start = in_thread(Agent.start)
    stop = in_thread(Agent.stop)
    kill = in_thread(Agent.kill)
    restart = in_thread(Agent.restart)
    edit = in_thread(Agent.edit)
    status = in_thread(Agent.status)

    def log(self) -> str:
        return self._inner.log()

    def errors(self) -> str:
        return self._inner.errors()

    def last_words(self) -> str:
        return self.log()[-_TAIL:]


def _write(path: Path, configuration: Configuration) -> None:
    """Replace a configuration by a rename, as editors do. Blocks."""
    match configuration:
        case Path():
            text = configuration.read_text()
        case str():
            text = configuration
        case _:
            text = yaml.safe_dump(dict(configuration))
    write_atomic(path, text.encode())
