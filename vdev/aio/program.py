"""Running a program that the configuration names: no shell, no environment but PATH, in a session of its own.

Blocks; call it in a thread. `abort` ends the whole session, so that the program's children end with it.
"""

import contextlib
import os
import posixpath
import select
import signal
import subprocess
import threading
from collections.abc import Sequence

from ..errors import reason_of

_TAIL = 4096  # bytes of its output that are kept
_PIPE = 65536  # bytes that a pipe holds
_SHOWN = 160  # characters of it that fit in a reason
_starting: set["Program"] = set()  # those that cannot be ended yet; it changes with `_starts`
_starts = threading.Condition()


class Program:
    """One run of a program."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def run(self) -> str:
        """Run it to its own end, whatever it leaves running.

        Returns why it failed, with the last line that it wrote; empty when it exited with 0.
        """
        with _starts:
            _starting.add(self)
        try:
            if self._aborted:
                return f"{self._argv[0]} was not run any more"
            process = self._start()
        except (OSError, ValueError) as cause:
            return f"cannot run {self._argv[0]}: {reason_of(cause)}"
        finally:
            with _starts:
                _starting.discard(self)
                _starts.notify_all()
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
        if self._aborted:  # in the moment before there was a process
            self._kill(process)
        return process

    def abort(self) -> None:
        """End it from another thread, with all that it started; never blocks."""
        self._aborted = True
        if self._process is not None:
            self._kill(self._process)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def wait_for_starts(within: float) -> None:
    """Before the process ends: let threads that just start a program end it, if it was aborted. Blocks.

    `within` are the seconds for all of them, for the file of a program may be one that never comes.
    """
    with _starts:
        _starts.wait_for(lambda: not _starting, within)


def _last_output(process: "subprocess.Popen[bytes]") -> bytes:
    """The end of what it writes until it ends, whether or not something that it left behind could still write."""
    assert process.stdout is not None
    output, ended = process.stdout.fileno(), _watched(process.pid)
    watch = select.poll()
    watch.register(output, select.POLLIN)
    if ended is not None:
        watch.register(ended, select.POLLIN)
    tail, over = b"", False
    try:
        while not over:
            ready = {each for each, _ in watch.poll()}
            over = ended in ready
            if output in ready:
                chunk = os.read(output, _PIPE)
                tail, over = (tail + chunk)[-_TAIL:], over or not chunk
    finally:
        if ended is not None:
            os.close(ended)
    return tail


def _watched(pid: int) -> int | None:
    """A descriptor that tells of the process' end; None where the kernel (before 5.3) or a sandbox has none."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def signal_name(number: int) -> str:
    """Such as SIGKILL; the real-time signals have numbers alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _ending(program: str, code: int, output: bytes) -> str:
    how = f"exited with {code}" if code > 0 else f"was ended by {signal_name(-code)}"
    last = shown(output.decode(errors="replace").strip().rpartition("\n")[2])
    return f"{posixpath.basename(program)} {how}" + (f": {last}" if last else "")


def shown(text: str) -> str:
    """A text that fits in a reason: one line, printable, not long."""
    line = "".join(character if character.isprintable() else " " for character in text).strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
