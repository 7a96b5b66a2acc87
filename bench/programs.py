"""Starts the measured programs in their own directories, reads their usage from /proc, and stops them."""

import asyncio
import itertools
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

_END = 10.0  # seconds between SIGTERM and SIGKILL
_UP = 60.0  # timeout of a start in seconds
_POLL = 0.002
_ROOT = Path(__file__).resolve().parents[1]
_numbers = itertools.count()
SERVE_ONLY = ("--kubelet-socket", "")  # no kubelet: `bench.client` is the only client


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with all files and sockets of one plugin."""

    root: Path

    @property
    def kubelet(self) -> Path:
        """`--kubelet-dir`."""
        return self.root / "k"

    @property
    def sockets(self) -> Path:
        """The directory of the plugins' sockets."""
        return self.kubelet / "device-plugins"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig file of the API server."""
        return self.kubelet / "kubeconfig"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "c" / "vdev.yaml"

    def write_config(self, text: str) -> None:
        """Replace the configuration by a rename, as editors do."""
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.config)


class Process:
    """A child process and its usage from /proc."""

    def __init__(self, arguments: Sequence[str | Path], log: Path) -> None:
        self.arguments = [*map(str, arguments)]
        self.started = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed plugin has its bytecode
        with log.open("wb") as out:
            self._child = subprocess.Popen(self.arguments, stdout=out, stderr=out, env=environment)
        self._log = log

    def check(self) -> bool:
        """Raise RuntimeError if the process has exited. Otherwise returns False, for use in conditions."""
        code = self._child.poll()
        if code is not None:
            tail = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{shlex.join(self.arguments)} ended with {code}: {tail}")
        return False

    def resident(self) -> float:
        """Resident memory in MiB."""
        for line in Path(f"/proc/{self._child.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise LookupError("VmRSS")

    def cpu(self) -> float:
        """CPU seconds used so far, user and system."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """Stop the process with SIGTERM, or with SIGKILL if it does not exit in time."""
        self._child.terminate()
        try:
            self._child.wait(_END)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    """Yield a temporary place. Its path is short, because a socket's path may have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="vb-", dir="/tmp") as directory:
        here = Place(Path(directory))
        for each in (here.sockets, here.config.parent, here.root / "h" / "dev", here.root / "cdi"):
            each.mkdir(parents=True)
        yield here


@asynccontextmanager
async def running(arguments: Sequence[str | Path], log: Path) -> AsyncIterator[Process]:
    """Run a process until the block ends."""
    process = Process(arguments, log)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.end)


def vdev(*arguments: str | Path) -> list[str | Path]:
    """Return the command line of a vdev command."""
    return [sys.executable, "-m", "vdev", *arguments]


@asynccontextmanager
async def agent(here: Place, config: str, *extra: str | Path) -> AsyncIterator[Process]:
    """Run `vdev run` with this configuration. It may not be ready yet."""
    here.write_config(config)
    flags: dict[str, str | Path] = {
        "--config-file": here.config,
        "--kubelet-dir": here.kubelet,
        "--cdi-dir": here.root / "cdi",
        "--run-dir": here.root / "run",
        "--state-dir": here.root / "state",
        "--node-name": "bench",
    }
    command = vdev("run", *(part for flag in flags.items() for part in flag), *extra)
    async with running(command, here.root / "log") as process:
        yield process


@asynccontextmanager
async def peer(here: Place, command: str) -> AsyncIterator[Process]:
    """Run another device plugin by its command line, which may have `{kubelet_dir}`, `{plugin_dir}` and `{dir}`."""
    filled = command.format(kubelet_dir=here.kubelet, plugin_dir=here.sockets, dir=here.root)
    async with running(shlex.split(filled), here.root / "log") as process:
        yield process


@asynccontextmanager
async def empty_server(here: Place, size: int = 0, directory: Path | str = "") -> AsyncIterator[tuple[Path, Process]]:
    """Run the floor. Yields its socket and process. `size` and `directory` are described in `empty_server.py`."""
    path = here.root / f"f{next(_numbers)}"
    command: list[str | Path] = [sys.executable, "-m", "bench.empty_server", path, str(size), directory]
    async with running(command, here.root / "floor") as process:
        await until(lambda: process.check() or path.exists(), "an empty server")
        yield path, process


@asynccontextmanager
async def cluster(here: Place) -> AsyncIterator[Process]:
    """Run `vdev sim` with an API server, whose kubeconfig file is in the place."""
    command = vdev("sim", "--kubelet-dir", here.kubelet, "--node-name", "bench", "--api-server", free_address())
    async with running(command, here.root / "sim") as process:
        await until(lambda: process.check() or here.kubeconfig.exists(), "the API server")
        yield process


@asynccontextmanager
async def api_server(here: Place) -> AsyncIterator[Process]:
    """Run an API server alone, because the scheduler of `vdev sim` reads all slices whenever one changes."""
    async with running([sys.executable, "-m", "bench.api_server", here.kubeconfig], here.root / "api") as process:
        await until(lambda: process.check() or here.kubeconfig.exists(), "the API server")
        yield process


async def sockets(here: Place, count: int, process: Process) -> list[Path]:
    """Wait for the sockets of `count` resources. Returns them in the order of their names."""

    def found() -> list[Path]:
        process.check()
        return sorted(each for each in here.sockets.iterdir() if each.is_socket() and each.name != "kubelet.sock")

    await until(lambda: len(found()) >= count, f"{count} sockets")
    return found()


async def until(condition: Callable[[], object], what: str, *, timeout: float = _UP, every: float = _POLL) -> None:
    """Wait until `condition()` is true. Raises TimeoutError, whose message contains `what`."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(every)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:g} s for {what}") from None


def free_address() -> str:
    """Return an unused address on the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def page(address: str, path: str) -> str:
    """Get a page over HTTP; empty if there is no server or if it returns an error."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=_UP) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text
