"""The measured programs: started in directories of their own, asked through /proc, ended by their id."""

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

_END = 10.0  # seconds until a process that was asked to end is killed
_UP = 60.0  # seconds for a start
_POLL = 0.002
_ROOT = Path(__file__).resolve().parents[1]
_numbers = itertools.count()
SERVE_ONLY = ("--kubelet-socket", "")  # no kubelet: the client here is the only one, as the kubelet is in life


@dataclass(frozen=True, slots=True)
class Place:
    """A directory with everything that one plugin touches."""

    root: Path

    @property
    def kubelet(self) -> Path:
        """`--kubelet-dir`."""
        return self.root / "k"

    @property
    def sockets(self) -> Path:
        """Where plugins' sockets appear."""
        return self.kubelet / "device-plugins"

    @property
    def kubeconfig(self) -> Path:
        """Of the API server."""
        return self.kubelet / "kubeconfig"

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.root / "c" / "vdev.yaml"

    def write_config(self, text: str) -> None:
        """Put a new configuration in place, as editors do: written beside and renamed over."""
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self.config)


class Process:
    """A child process and what /proc says of it."""

    def __init__(self, arguments: Sequence[str | Path], log: Path) -> None:
        self.arguments = [*map(str, arguments)]
        self.started = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed plugin has its bytecode
        with log.open("wb") as out:
            self._child = subprocess.Popen(self.arguments, stdout=out, stderr=out, env=environment)
        self._log = log

    def check(self) -> bool:
        """Return False; raise RuntimeError if the process has ended by itself."""
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
        """Ask it to end, and kill it if it does not."""
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
        for each in (here.sockets, here.config.parent, here.root / "h" / "dev", here.root / "cdi"):
            each.mkdir(parents=True)
        yield here


@asynccontextmanager
async def running(arguments: Sequence[str | Path], log: Path) -> AsyncIterator[Process]:
    """A process that is ended with the block."""
    process = Process(arguments, log)
    try:
        yield process
    finally:
        await asyncio.to_thread(process.end)


def vdev(*arguments: str | Path) -> list[str | Path]:
    """The command line of a command of vdev."""
    return [sys.executable, "-m", "vdev", *arguments]


@asynccontextmanager
async def agent(here: Place, config: str, *extra: str | Path) -> AsyncIterator[Process]:
    """A running `vdev run` with that configuration. It may not be ready yet."""
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
    """Another device plugin, by its command line with `{kubelet_dir}`, `{plugin_dir}` and `{dir}` to fill in."""
    filled = command.format(kubelet_dir=here.kubelet, plugin_dir=here.sockets, dir=here.root)
    async with running(shlex.split(filled), here.root / "log") as process:
        yield process


@asynccontextmanager
async def empty_server(here: Place, size: int = 0, directory: Path | str = "") -> AsyncIterator[tuple[Path, Process]]:
    """The floor: its socket and its process. See `empty_server.py` for `size` and `directory`."""
    path = here.root / f"f{next(_numbers)}"
    command: list[str | Path] = [sys.executable, "-m", "bench.empty_server", path, str(size), directory]
    async with running(command, here.root / "floor") as process:
        await until(lambda: process.check() or path.exists(), "an empty server")
        yield path, process


@asynccontextmanager
async def cluster(here: Place) -> AsyncIterator[Process]:
    """`vdev sim` with an API server, whose kubeconfig is in the place."""
    command = vdev("sim", "--kubelet-dir", here.kubelet, "--node-name", "bench", "--api-server", free_address())
    async with running(command, here.root / "sim") as process:
        await until(lambda: process.check() or here.kubeconfig.exists(), "the API server")
        yield process


@asynccontextmanager
async def api_server(here: Place) -> AsyncIterator[Process]:
    """An API server alone: the scheduler of `vdev sim` looks at every slice of a cluster whenever one changes."""
    async with running([sys.executable, "-m", "bench.api_server", here.kubeconfig], here.root / "api") as process:
        await until(lambda: process.check() or here.kubeconfig.exists(), "the API server")
        yield process


async def sockets(here: Place, count: int, process: Process) -> list[Path]:
    """The sockets of so many resources, once they are there, in the order of their names."""

    def found() -> list[Path]:
        process.check()
        return sorted(each for each in here.sockets.iterdir() if each.is_socket() and each.name != "kubelet.sock")

    await until(lambda: len(found()) >= count, f"{count} sockets")
    return found()


async def until(condition: Callable[[], object], what: str, *, timeout: float = _UP, every: float = _POLL) -> None:
    """Wait until `condition()` holds. TimeoutError says for what."""
    try:
        async with asyncio.timeout(timeout):
            while not condition():
                await asyncio.sleep(every)
    except TimeoutError:
        raise TimeoutError(f"waited {timeout:g} s for {what}") from None


def free_address() -> str:
    """An address on loopback where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


def page(address: str, path: str) -> str:
    """A page over HTTP; empty if nobody answers, or with an error."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=_UP) as answer:
            text: str = answer.read().decode()
    except OSError:
        return ""
    return text
