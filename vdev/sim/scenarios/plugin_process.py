"""The process of a plugin under test: `vdev run`, or any command.

It has its own process group. When the process ends, the whole group is killed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Self

from ...aio.program import signal_name
from ...errors import reason_of
from .scenario import ScenarioError

GRACE_SECONDS = 30.0  # the default terminationGracePeriodSeconds of a pod
LAST_LINES = "the last lines of its output:"
_TAIL_LINES = 20
_CLEAN_EXITS = {0, -signal.SIGTERM, 128 + signal.SIGTERM}
_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}
_RESTART_SECONDS = 1.0  # minimum between two starts with `again`


@dataclass(frozen=True, slots=True)
class PluginPlaces:
    """Paths and names that a node gives to its plugin."""

    configuration: Path
    kubelet_dir: Path
    cdi_dir: Path
    run_dir: Path
    state_dir: Path
    log: Path  # file for the plugin's output
    node_name: str
    host_root: Path = Path("/")
    kubeconfig: Path | None = None

    @classmethod
    def below(cls, directory: Path, *, kubelet_dir: Path, node_name: str, log: Path | None = None) -> Self:
        return cls(
            configuration=directory / "vdev.yaml",
            kubelet_dir=kubelet_dir,
            cdi_dir=directory / "cdi",
            run_dir=directory / "run",
            state_dir=directory / "state",
            log=log or directory / "log",
            node_name=node_name,
        )

    def flags(self) -> tuple[str, ...]:
        """Return the options of `vdev run`."""
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


@dataclass(eq=False)
class CommandPlugin:
    argv: Sequence[str]
    _: KW_ONLY
    log: Path  # file for its output
    environ: Mapping[str, str]
    again: bool = False  # restart it if it exits, like a DaemonSet; otherwise, an exit is an error
    strict: bool = False  # after SIGTERM, any exit code except 0 and SIGTERM's is an error
    grace: float = GRACE_SECONDS  # seconds to end after SIGTERM
    _process: Process | None = field(default=None, init=False)
    _started: float = field(default=0.0, init=False)

    async def start(self) -> None:
        """Start the command. Does not wait until the plugin serves. Raises ScenarioError if it cannot be started."""
        self._started = time.monotonic()
        try:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *self.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self.environ,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise ScenarioError(f"cannot start {self.argv[0]}: {reason_of(error)}") from error

    async def run(self) -> int:
        """Run the command until it exits, and kill the rest of its process group. Returns the exit code."""
        await self.start()
        assert self._process is not None
        try:
            return await self._process.wait()
        finally:
            await self.kill()

    async def stop(self) -> None:
        """Send SIGTERM, wait for the end, and kill the rest of the process group. No effect if it is not running.

        Raises ScenarioError if it had exited already, did not end in time, or ended with an error.
        """
        await self.check()
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(self.grace):
                code = await process.wait()
        except TimeoutError:
            text = f"the plugin did not end within {self.grace:g} s of SIGTERM, and was killed"
            raise ScenarioError(text) from None
        finally:
            await _kill(process)  # also if the wait was cancelled
        if code in _CRASHES or (self.strict and code not in _CLEAN_EXITS):
            raise ScenarioError(f"the plugin {_ending(code)} after SIGTERM; {last_words(self.log)}")

    async def kill(self) -> None:
        """Send SIGKILL to the process group, and wait for the end. No effect if it is not running."""
        process, self._process = self._process, None
        if process is not None:
            await _kill(process)

    async def check(self) -> None:
        """If the plugin has exited, restart it (`again`) or raise ScenarioError with the last lines of its output."""
        process = self._process
        if process is None or process.returncode is None:
            return
        await _kill(process)
        if self.again:
            if time.monotonic() - self._started >= _RESTART_SECONDS:
                await self.start()
            return
        self._process = None
        ending = f"the plugin {_ending(process.returncode)} by itself (--restart would restart it)"
        raise ScenarioError(f"{ending}; {last_words(self.log)}")


class VdevRun(CommandPlugin):
    def __init__(self, places: PluginPlaces) -> None:
        argv = (sys.executable, "-m", "vdev", "run", *places.flags())
        super().__init__(argv, log=places.log, environ=os.environ, strict=True)


async def _kill(process: Process) -> None:
    """Kill the process group, and wait for the end of the process."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def last_words(log: Path) -> str:
    """Return the last lines of a plugin's output for a message. Blocks."""
    with contextlib.suppress(OSError):
        if lines := log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]:
            return f"{LAST_LINES}\n" + "\n".join(f"  | {line}" for line in lines)
    return f"{LAST_LINES} none"


def _ending(code: int) -> str:
    return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"
