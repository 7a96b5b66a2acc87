"""Runs a program of the configuration without a shell, in its own session, with only PATH in its environment.

Blocks; call it in a thread. `abort` kills the whole session, so that the program's children end with it.
"""

import contextlib
import os
import posixpath
import select
import signal
import subprocess
from collections.abc import Sequence

from ..errors import reason_of

_TAIL = 4096  # bytes of the output that are kept
_PIPE = 65536  # bytes that a pipe holds
_SHOWN = 160  # characters of the output that fit in a reason
_LOOK = 50  # milliseconds between checks for the program's exit, because its children may keep the pipe open


class Program:
    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def run(self) -> str:
        """Run the program until it exits, even if its children continue.

        Returns why it failed, with the last line of its output; empty if it exited with 0.
        """
        if self._aborted:
            return f"{self._argv[0]} was not started"
        try:
            process = self._start()
        except (OSError, ValueError) as cause:
            return f"cannot run {self._argv[0]}: {reason_of(cause)}"
        with process:
            tail = _last_output(process)
            code = process.wait()
        return "" if code == 0 else _ending(self._argv[0], code, tail)

    def _start(self) -> "subprocess.Popen[bytes]":
        process = self._process = subprocess.Popen(  # the configuration's own command, no shell
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
        if self._aborted:  # before the process was created
            self._kill(process)
        return process

    def abort(self) -> None:
        """Kill the program and its children. Never blocks; another thread may call it."""
        self._aborted = True
        if self._process is not None:
            self._kill(self._process)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _last_output(process: "subprocess.Popen[bytes]") -> bytes:
    """Return the end of the output when the program exits, even if its children could still write."""
    assert process.stdout is not None
    output = process.stdout.fileno()
    watch = select.poll()
    watch.register(output, select.POLLIN)
    tail, over = b"", False
    while not over:
        over = process.poll() is not None  # checked before the read, which then gets all the program's output
        if watch.poll(0 if over else _LOOK):
            chunk = os.read(output, _PIPE)
            tail, over = (tail + chunk)[-_TAIL:], over or not chunk
    return tail


def signal_name(number: int) -> str:
    """Return a name such as SIGKILL; real-time signals only have numbers."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(program: str, code: int, output: bytes) -> str:
    how = f"exited with {code}" if code > 0 else f"was ended by {signal_name(-code)}"
    last = shown(output.decode(errors="replace").strip().rpartition("\n")[2])
    return f"{posixpath.basename(program)} {how}" + (f": {last}" if last else "")


def shown(text: str) -> str:
    """Shorten a text so that it fits in a reason: one printable line."""
    line = "".join(character if character.isprintable() else " " for character in text).strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
