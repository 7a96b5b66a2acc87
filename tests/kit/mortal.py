"""Plugins that end as by `kill -9` at a chosen point of what they do, each a process of its own.

    python -m tests.kit.mortal

imports the plugin once and then makes a process of it for each line on its standard input, which costs a tenth of what
a process costs that begins with nothing. `Mortals` is the other end.

A point is whatever the process does that others may see, or that may come between two such things: each callback of the
event loop (so each `await` that waited), and each file or directory that it opens, makes, renames or removes, in any
thread. Points are counted from the moment at which the fuse is lit; at the chosen one the process kills itself.
"""

import asyncio
import functools
import json
import mmap
import os
import signal
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import vdev.cli
from tests.kit import quick
from vdev.core.intervals import Intervals

_FORM = struct.Struct("qq")  # the point at which to die (0: not lit), and how many there were
NEVER = 2**62
_TOUCHES_FILES = ("os.", "shutil.", "tempfile.")


class Fuse:
    """What a process and its killer share: a file, so that it is still there when the process is not."""

    def __init__(self, path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(handle, _FORM.size)
        self._shared = mmap.mmap(handle, _FORM.size)
        os.close(handle)

    def light(self, point):
        """Let the process die at this point from now on."""
        _FORM.pack_into(self._shared, 0, point, 0)

    @property
    def passed(self):
        """How many points there were since it was lit."""
        return _FORM.unpack_from(self._shared)[1]

    def point(self):
        """One more."""
        last, count = _FORM.unpack_from(self._shared)
        if last:
            _FORM.pack_into(self._shared, 0, last, count + 1)
            if count + 1 >= last:
                signal.raise_signal(signal.SIGKILL)  # os.kill would be a point itself

    def burn(self):
        """Count the points of this process from now on."""
        run = asyncio.events.Handle._run

        def watched(handle):
            self.point()
            return run(handle)

        def audited(event, arguments):
            written = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if written or event.startswith(_TOUCHES_FILES):
                self.point()

        asyncio.events.Handle._run = watched
        sys.addaudithook(audited)


class Mortals:
    """Starts them; a context manager."""

    def __enter__(self):
        self._mother = subprocess.Popen(
            (sys.executable, "-m", "tests.kit.mortal"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(self, *_):
        self._mother.communicate(timeout=30)

    def start(self, fuse, log, arguments):
        """A plugin with these arguments of `vdev run`."""
        order = {"fuse": str(fuse), "log": str(log), "arguments": [str(each) for each in arguments]}
        self._mother.stdin.write(json.dumps(order).encode() + b"\n")
        self._mother.stdin.flush()
        return Mortal(int(self._mother.stdout.readline()), Fuse(fuse), log)


@dataclass
class Mortal:
    """One of them."""

    pid: int
    fuse: Fuse
    log: Path

    def __post_init__(self):
        self._gone = asyncio.Event()
        self._handle = os.pidfd_open(self.pid)
        asyncio.get_running_loop().add_reader(self._handle, self._ended)

    def _ended(self):
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        self._gone.set()

    @property
    def gone(self):
        """Whether it has ended."""
        return self._gone.is_set()

    async def kill(self):
        """End it, if it did not end itself."""
        if not self.gone:
            signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        async with asyncio.timeout(30):
            await self._gone.wait()


def _mother():
    """Import everything, and make a process for each order; nothing runs here that a copy would lack."""
    import inotify_simple

    import vdev.agent.agent
    import vdev.cli.processes.run
    import vdev.config.pipeline

    inotify_simple.INotify().close()  # the first one looks for libc
    vdev.agent.Options = functools.partial(vdev.agent.Options, intervals=Intervals(**quick.INTERVALS))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # their killer sees that they end
    for line in sys.stdin.buffer:
        if not (pid := os.fork()):
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _live(**json.loads(line))
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _live(fuse, log, arguments):
    """The life of one process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for each in (1, 2):
        os.dup2(handle, each)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    Fuse(fuse).burn()
    os._exit(vdev.cli.main(["run", *arguments]))


if __name__ == "__main__":
    _mother()
