"""The plugin under test, as a process of its own: `vdev run`, or any command.

It is started in a process group of its own, and ended with everything that it has started.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...errors import reason_of
from ..objects.node_devices import UNHEALTHY
from . import program
from .scenario import ScenarioError

GRACE_SECONDS = 30.0  # a pod's default, after which the kubelet kills its containers
LAST_LINES = "the last lines of its output:"
_TAIL_BYTES = 4_000
_TAIL_LINES = 20
_TOLD = {0, -signal.SIGTERM, 128 + signal.SIGTERM}  # exit codes of who does as SIGTERM says
_CRASHES = {-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE}
_LARGEST_LOG, _KEPT_LOG = 10_000_000, 5_000_000  # bytes
_LEFT_OUT = b"(earlier output is left out)\n"
_AGAIN_SECONDS = 1.0  # between an end and the next start, where plugins are started again


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


class CommandPlugin:
    """A command as a plugin. Its output is appended to `log`, which is cut when it grows too large.

    With `again` it is started again whenever it ends by itself, as a DaemonSet does; otherwise that is an error. With
    `strict` it has to end well when it is told to.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        environ: Mapping[str, str],
        again: bool = False,
        strict: bool = False,
        grace: float = GRACE_SECONDS,
    ) -> None:
        self._argv = list(argv)
        self._log = log
        self._environ = dict(environ)
        self._again = again
        self._strict = strict
        self._grace = grace
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0

    async def start(self) -> None:
        """Start the command. Raises ScenarioError if it cannot be."""
        await asyncio.to_thread(self._start)

    async def stop(self) -> None:
        """Send SIGTERM to the command, wait for its end, and kill what it leaves behind. Raises ScenarioError."""
        await asyncio.to_thread(self.check)
        process, self._process = self._process, None
        if process is None:
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            ended = await asyncio.to_thread(_waited, process, self._grace)
        finally:
            _kill_group(process)  # also where the wait was cancelled
        await asyncio.to_thread(self._await_end, process)
        if not ended:
            raise ScenarioError(f"the plugin did not end within {self._grace:g} s of SIGTERM, and was killed")
        code = process.returncode
        if code in _CRASHES or (self._strict and code not in _TOLD):
            words = await asyncio.to_thread(last_words, self._log)
            raise ScenarioError(f"the plugin {_ending(code)} when it was told to end by SIGTERM; {words}")

    async def kill(self) -> None:
        """End the command and all that it has started with SIGKILL."""
        process, self._process = self._process, None
        if process is not None:
            _kill_group(process)
            await asyncio.to_thread(self._await_end, process)

    async def reasons(self) -> Mapping[tuple[str, str], str]:
        """A foreign plugin tells nobody."""
        return {}

    def check(self) -> None:
        """Raise ScenarioError with the end of its output if the command ended by itself; cut its log. Blocks."""
        process = self._process
        self._cut_log()
        if process is None or (code := process.poll()) is None:
            return
        _kill_group(process)
        self._await_end(process)
        if self._again:
            if time.monotonic() - self._started >= _AGAIN_SECONDS:
                self._start()
            return
        self._process = None
        raise ScenarioError(f"the plugin {_ending(code)} by itself; {last_words(self._log)}")

    def _start(self) -> None:
        self._started = time.monotonic()
        try:
            # The output is appended, so the log can be cut while the command runs.
            with self._log.open("ab") as log:
                self._process = subprocess.Popen(  # the user's own command, no shell
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environ,
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            raise ScenarioError(f"cannot start {self._argv[0]}: {reason_of(error)}") from error

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        """Return when a process that was killed has ended. Blocks."""
        process.wait()
        self._cut_log()

    def _cut_log(self) -> None:
        """Keep the end of a log that has grown too large. What comes while it is cut may be lost. Blocks."""
        with contextlib.suppress(OSError):
            if self._log.stat().st_size > _LARGEST_LOG:
                with self._log.open("a+b") as log:
                    log.seek(-_KEPT_LOG, os.SEEK_END)
                    kept = log.read(_KEPT_LOG)
                    log.truncate(0)
                    log.write(_LEFT_OUT + kept)


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


def last_words(log: Path) -> str:
    """The last lines of a plugin's output, as the end of a message. Blocks."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        if lines := file.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]:
            return f"{LAST_LINES}\n" + "\n".join(f"  | {line}" for line in lines)
    return f"{LAST_LINES} none"


def _waited(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether the process ended within the time. Blocks."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def reasons_in(status: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """The reasons of Unhealthy devices in a status document of vdev."""
    return {
        (resource["name"], device["id"]): device["reason"]
        for resource in status["resources"]
        for device in resource["devices"]
        if device["health"] == UNHEALTHY
    }
