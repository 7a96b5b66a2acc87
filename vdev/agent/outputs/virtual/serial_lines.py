"""The serial lines of virtual devices: the bytes between each line and its other end, which is a `core.serial`.

A line is read in small pieces with a pause after each, about as fast as a real one. So a program that echoes our echo
keeps only its own line busy, slowly, and disturbs nothing else.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable

from ....aio.clock import Clock
from ....core.serial import Dialogue
from ....hostfs.pty import Pty

_PIECE = 1024  # bytes


class Line:
    """One serial line, answered on the running event loop until it is closed; after each piece comes a `pause`."""

    def __init__(self, pty: Pty, dialogue: Dialogue, *, pause: float, clock: Clock) -> None:
        self.pty = pty
        self.dialogue = dialogue
        self._loop = asyncio.get_running_loop()
        self._seconds = pause
        self._clock = clock
        self._end_pause: Callable[[], object] | None = None
        self._listen()

    def close(self) -> None:
        if self._end_pause is not None:
            self._end_pause()
        self._loop.remove_reader(self.pty.master)
        self.pty.close()

    def _listen(self) -> None:
        self._end_pause = None
        self._loop.add_reader(self.pty.master, self._answer)

    def _answer(self) -> None:
        """Answer what came. What a full line does not take is lost, as on a line without flow control."""
        with contextlib.suppress(OSError):
            answer = self.dialogue.hear(os.read(self.pty.master, _PIECE))
            if answer:
                os.write(self.pty.master, answer)
        self._loop.remove_reader(self.pty.master)
        self._end_pause = self._clock.call_later(self._seconds, self._listen)
