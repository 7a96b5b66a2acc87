"""A plugin that kills itself with SIGKILL at a chosen point.

    python -m tests.kit.mortal FUSE --config-file …        like `vdev run --config-file …`

Points are callbacks of the event loop (so each `await` that waits), and each time that any thread opens a file for
writing, or creates, renames or removes a file or directory. They are counted from the moment when the fuse is lit.
"""

import asyncio
import functools
import mmap
import os
import signal
import struct
import sys

_FORM = struct.Struct("qq")  # the point at which to die (0: not lit), and the number of points so far
NEVER = 2**62
_TOUCHES_FILES = ("os.", "shutil.", "tempfile.")
_INTERVALS = {"unnamed_allocate": 2.0, "retire_handover": 1.0, "look_at_holders": 1.0}
"""Longer than in other tests, because the kubelet is another process, which may wait for the processor."""


class Fuse:
    """A point counter in a file that the process and the test share, so that it outlives the process."""

    def __init__(self, path):
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(handle, _FORM.size)
        self._shared = mmap.mmap(handle, _FORM.size)
        os.close(handle)

    def light(self, point):
        """Set the point at which to die, counted from now."""
        _FORM.pack_into(self._shared, 0, point, 0)

    @property
    def passed(self):
        """The number of points since the fuse was lit."""
        return _FORM.unpack_from(self._shared)[1]

    def point(self):
        """Count a point, and kill the process if this is the chosen one."""
        last, count = _FORM.unpack_from(self._shared)
        if last:
            _FORM.pack_into(self._shared, 0, last, count + 1)
            if count + 1 >= last:
                signal.raise_signal(signal.SIGKILL)  # os.kill would itself be a point

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
    from tests.kit import quick
    from vdev import cli
    from vdev.cli import options
    from vdev.intervals import Intervals

    options.Options = functools.partial(options.Options, intervals=Intervals(**quick.INTERVALS | _INTERVALS))
    Fuse(fuse).burn()
    return cli.main(["run", *arguments])


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
