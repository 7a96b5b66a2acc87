"""The agent of the fixtures: `vdev run` in a process of its own, on a kubelet's directory."""

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
from ..sim.scenarios.driver import ScenarioError
from ..sim.scenarios.plugin_process import PluginPlaces, VdevRun
from .kubelet import BlockingKubelet
from .loop_thread import LoopThread, done

Configuration = str | Path | Mapping[str, Any]
"""A configuration: its text, its file, or its document."""

_READY_SECONDS = 30.0
_POLL_SECONDS = 0.02
_TAIL = 4_000  # characters of its log that are shown with a test that failed


class Agent:
    """`vdev run`; its methods are awaited."""

    def __init__(self, places: PluginPlaces, kubelet: BlockingKubelet) -> None:
        self._places = places
        self._kubelet = kubelet
        self._process = VdevRun(places)

    async def start(self) -> None:
        """Start it, and return when the kubelet has everything that it serves. Raises VdevError with its log."""
        await self._process.start()
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await self._serves():
                    self._process.check()
                    await self._kubelet.journal.next_change(at_most=_POLL_SECONDS)
        except ScenarioError as ended:
            words = self.errors() or self.log()[-_TAIL:]
            raise VdevError(f"{words}\n{str(ended).partition(';')[0]}".lstrip()) from None
        except TimeoutError:
            text = f"vdev run was not ready within {_READY_SECONDS:g} s; its log ends with\n{self.log()[-_TAIL:]}"
            raise VdevError(f"{self.errors()}\n{text}".lstrip()) from None

    async def stop(self) -> None:
        """End it with SIGTERM. Raises VdevError if it does not end well."""
        await self._process.stop()

    async def kill(self) -> None:
        """End it with SIGKILL."""
        await self._process.kill()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def edit(self, configuration: Configuration) -> None:
        """Replace its configuration, which it notices by itself; `kubelet.wait_until` waits for what it changes."""
        await asyncio.to_thread(_write, self._places.configuration, configuration)

    async def status(self) -> dict[str, Any]:
        """What `vdev status --output json` prints."""
        answer: dict[str, Any] = await command_socket.ask(self._places.run_dir, {"do": "status"})
        return answer

    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._places.log.read_text(errors="replace")
        return ""

    def errors(self) -> str:
        """The errors in its log, and lines that are no log: why it does not start is printed."""
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
    """An `Agent`: in a plain test its methods block, and where an event loop runs they are awaited."""

    def __init__(self, thread: LoopThread, agent: Agent, run_dir: Path, cdi_dir: Path) -> None:
        self._thread = thread
        self._inner = agent
        self.run_dir = run_dir
        self.cdi_dir = cdi_dir

    @classmethod
    @contextlib.contextmanager
    def running(cls, thread: LoopThread, kubelet: BlockingKubelet, configuration: Configuration) -> Iterator[Self]:
        """One that runs while the context lasts. Raises VdevError if it does not start, or does not end well."""
        directory = Path(tempfile.mkdtemp(prefix="vdev-"))  # short enough for sockets, wherever the test's is
        places = PluginPlaces(
            configuration=directory / "vdev.yaml",
            kubelet_dir=kubelet.root,
            cdi_dir=directory / "cdi",
            host_root=Path("/"),
            run_dir=directory / "run",
            state_dir=directory / "state",
            log=directory / "log",
            node_name=kubelet.node_name,
        )
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

    start = done(Agent.start)
    stop = done(Agent.stop)
    kill = done(Agent.kill)
    restart = done(Agent.restart)
    edit = done(Agent.edit)
    status = done(Agent.status)

    def log(self) -> str:
        return self._inner.log()

    def errors(self) -> str:
        return self._inner.errors()

    def last_words(self) -> str:
        return self.log()[-_TAIL:]


def _write(path: Path, configuration: Configuration) -> None:
    """Put a configuration in place by a rename, as editors do. Blocks."""
    match configuration:
        case Path():
            text = configuration.read_text()
        case str():
            text = configuration
        case _:
            text = yaml.safe_dump(dict(configuration))
    write_atomic(path, text.encode())
