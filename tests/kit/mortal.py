"""Plugins that end as by `kill -9` at a chosen point of what they do, each a process of its own.

One process imports the plugin, and makes a process of it for each that asks on its socket (`start`), which costs a
tenth of what a process costs that begins with nothing. All workers of a run have the same one, which `share` made.

A point is whatever the process does that others may see, or that may come between two such things: each callback of the
event loop (so each `await` that waited), and each file or directory that it opens, makes, renames or removes, in any
thread. Points are counted from the moment at which the fuse is lit; at the chosen one the process kills itself.
"""

import asyncio
import contextlib
import functools
import json
import mmap
import os
import select
import signal
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.kit import mother

_SHARED = "VDEV_TESTS_MORTALS"
_FORM = struct.Struct("qq")  # the point at which to die (0: not lit), and how many there were
NEVER = 2**62
_TOUCHES_FILES = ("os.", "shutil.", "tempfile.")
_INTERVALS = {"unnamed_allocate": 2.0, "retire_handover": 1.0, "look_at_holders": 1.0}
"""Their kubelet is another process, which may be waiting for the processor."""


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


@functools.cache
def _address():
    """Where the process is that makes them."""
    return os.environ.get(_SHARED) or Path(mother.begin("tests.kit.mortal", "")).with_name("socket")


def share():
    """Have one for all processes that this one starts."""
    if mother.CAN:
        os.environ[_SHARED] = str(_address())


def start(fuse, log, arguments):
    """A plugin with these arguments of `vdev run`."""
    order = {"fuse": str(fuse), "log": str(log), "arguments": [str(each) for each in arguments]}
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile("rb") as answer:
        connection.connect(str(_address()))
        connection.sendall(json.dumps(order).encode() + b"\n")
        return Mortal(int(answer.readline()), Fuse(fuse), log)


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
            with contextlib.suppress(ProcessLookupError):  # it has, and the loop does not know yet
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        async with asyncio.timeout(30):
            await self._gone.wait()


def _main(descriptor, _program):
    """Import everything, and make a process for each order; nothing runs here that a copy would lack."""
    mother.wait(descriptor)
    import inotify_simple

    import vdev.agent.agent
    import vdev.agent.options
    import vdev.cli.run
    import vdev.config.pipeline
    from tests.kit import quick
    from vdev.intervals import Intervals

    inotify_simple.INotify().close()  # the first one looks for libc
    options = vdev.agent.options
    options.Options = functools.partial(options.Options, intervals=Intervals(**quick.INTERVALS | _INTERVALS))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # their killer sees that they end
    server = socket.socket(fileno=int(descriptor))
    poll = select.poll()
    for each in (server, sys.stdin):
        poll.register(each, select.POLLIN)
    while sys.stdin.fileno() not in dict(poll.poll()):  # who asked for it is there
        connection, _ = server.accept()
        with connection, connection.makefile("rw") as words:
            order = json.loads(words.readline())
            if pid := os.fork():
                words.write(f"{pid}\n")
                words.flush()
                continue
        server.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _live(**order)


def _live(fuse, log, arguments):
    """The life of one process."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for each in (1, 2):
        os.dup2(handle, each)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from vdev import cli

    Fuse(fuse).burn()
    os._exit(cli.main(["run", *arguments]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
