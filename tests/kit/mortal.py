"""A plugin that kills itself with SIGKILL at a chosen point.

    python -m tests.kit.mortal FUSE --config-file …        as `vdev run --config-file …`

A point is each callback of the event loop (so each `await` that waits), and each file or directory that the process
opens for writing, creates, renames or removes, in any thread. Points are counted from the moment when the fuse is lit.
"""

import asyncio
import functools
import mmap
import os
import signal
import struct
import sys

_FORM = struct.Struct("qq")  # the point of death (0: not lit), and the number of points so far
NEVER = 2**62
_TOUCHES_FILES = ("os.", "shutil.", "tempfile.")
_INTERVALS = {"unnamed_allocate": 2.0, "retire_handover": 1.0, "look_at_holders": 1.0}
"""Longer than in other tests, because the kubelet is another process, which may wait for the processor."""


class Fuse:
    """A file that a process and its killer share, so that it outlives the process."""

    def __init__(self, path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(handle, _FORM.size)
        self._shared = mmap.mmap(handle, _FORM.size)
        os.close(handle)

    def light(self, point):
        """Set the point of death, counted from now."""
        _FORM.pack_into(self._shared, 0, point, 0)

    @property
    def passed(self):
        """The number of points since the fuse was lit."""
        return _FORM.unpack_from(self._shared)[1]

    def point(self):
        """Count a point, and die if it is the chosen one."""
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


def _main(fuse, *arguments):
    import vdev.agent.options
    from tests.kit import quick
    from vdev import cli
    from vdev.intervals import Intervals

    options = vdev.agent.options
    options.Options = functools.partial(options.Options, intervals=Intervals(**quick.INTERVALS | _INTERVALS))
    Fuse(fuse).burn()
    return cli.main(["run", *arguments])


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
