"""The measured processes: started in directories of their own, asked through /proc, ended by their id."""

import asyncio
import itertools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_END = 10.0  # seconds until a process that was asked to end is killed
_UP = 60.0  # seconds for a start
_POLL = 0.002
_numbers = itertools.count()
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with everything that one agent touches."""

    root: Path

    @property
    def kubelet(self) -> Path:
        """`--kubelet-dir`."""
        return self.root / "k"

    @property
    def sockets(self) -> Path:
        """Where the plugin's own sockets appear."""
        return self.kubelet / "device-plugins"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "c" / "vdev.yaml"

    @property
    def host(self) -> Path:
        """`--host-root`."""
        return self.root / "h"

    def write_config(self, text: str) -> None:
        """Put a new configuration in place, as editors do: written beside and renamed over."""
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.config)


class Process:
    """A child process and what /proc says of it."""

    def __init__(self, arguments: Sequence[str], *, log: Path | None = None) -> None:
        self.started = time.perf_counter()
        self.arguments = list(arguments)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        environment.pop(
            "PYTHONDONTWRITEBYTECODE", None
        )  # an installed plugin has its bytecode; compiling is half a start
        with log.open("wb") if log else open(os.devnull, "wb") as out:
            self._child = subprocess.Popen(arguments, stdout=out, stderr=out, env=environment)
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def check(self) -> bool:
        """False; RuntimeError when it has ended by itself."""
        code = self._child.poll()
        if code is not None:
            tail = self._log.read_text(errors="replace")[-2000:] if self._log else ""
            raise RuntimeError(f"{shlex.join(self.arguments)} ended with {code}: {tail}")
        return False

    def resident(self) -> float:
        """Resident memory in MiB."""
        return self._status("VmRSS") / 1024

    def own(self) -> float:
        """Resident memory that is not backed by files (private to the process whatever else runs), in MiB."""
        return self._status("RssAnon") / 1024

    def threads(self) -> int:
        """Threads of the operating system."""
        return self._status("Threads")

    def _status(self, key: str) -> int:
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{key}:"):
                return int(line.split()[1])
        raise LookupError(key)

    def cpu(self) -> float:
        """CPU seconds used so far, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Ask it to end, and make it."""
        if self._child.poll() is None:
            self._child.terminate()
            try:
                self._child.wait(_END)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    """A place that goes away at the end. Its path is short, because a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vb-", dir="/tmp") as directory:
        here = Place(Path(directory))
        for each in (here.kubelet / "device-plugins", here.config.parent, here.host / "dev", here.root / "cdi"):
            each.mkdir(parents=True)
        yield here


def agent_command(here: Place, *extra: str) -> list[str]:
    """The command line of an agent in that place."""
    flags = {
        "--config-file": here.config,
        "--kubelet-dir": here.kubelet,
        "--cdi-dir": here.root / "cdi",
        "--run-dir": here.root / "run",
        "--state-dir": here.root / "state",
        "--node-name": "bench",
        "--log-format": "json",
    }
    return [sys.executable, "-m", "vdev", "run", *(str(part) for flag in flags.items() for part in flag), *extra]


@asynccontextmanager
async def agent(here: Place, config: str, *extra: str) -> AsyncIterator[Process]:
    """A running agent with that configuration. It may not be ready yet."""
    here.write_config(config)
    process = Process(agent_command(here, *extra), log=here.root / "log")
    try:
        yield process
    finally:
        await asyncio.to_thread(process.end)


@asynccontextmanager
async def floor(here: Place, kind: str = "aio", *, size: int = 0, directory: Path | None = None) -> AsyncIterator[Path]:
    """The socket of a running empty server."""
    async with floor_process(here, kind, size=size, directory=directory) as (socket, _):
        yield socket


@asynccontextmanager
async def floor_process(
    here: Place, kind: str = "aio", *, size: int = 0, directory: Path | None = None
) -> AsyncIterator[tuple[Path, Process]]:
    """As `floor`, with its process."""
    socket = here.root / f"f{next(_numbers)}"
    arguments = [kind, str(socket), str(size), *([str(directory)] if directory else [])]
    process = Process([sys.executable, "-m", "bench.measured.floor", *arguments], log=here.root / "floor")
    try:
        await until(lambda: process.check() or socket.exists(), "an empty server")
        yield socket, process
    finally:
        await asyncio.to_thread(process.end)


async def sockets(here: Place, resources: Sequence[str], process: Process) -> list[Path]:
    """The sockets of these resources of an agent, once it says in its log that all are served."""
    found: dict[str, Path] = {}

    def all_there() -> bool:
        process.check()
        for line in (here.root / "log").read_text().splitlines():
            if '"serving"' in line or '"registered"' in line:
                entry = json.loads(line)
                found[entry["resource"]] = Path(entry["socket"])
        return found.keys() >= set(resources)

    await until(all_there, "the plugin's sockets")
    return [found[each] for each in resources]


async def until(condition: Callable[[], object], what: str, *, timeout: float = _UP) -> None:
    """Wait until `condition()` holds. TimeoutError says for what."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:g} s for {what}") from None
