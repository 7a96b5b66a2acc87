"""Serial lines: pseudo terminals in the host's devpts, and the programs at their other ends."""

import asyncio
import contextlib
import fcntl
import os
import struct
import tty
from collections.abc import Callable, Mapping

from ..aio.clock import Clock
from ..errors import HostError, reason_of
from ..hostfs.root import HostRoot
from ..model.virtual import LineEnd

# asm-generic/ioctls.h
_TIOCGPTN, _TIOCSPTLCK, _TIOCGPTPEER = 0x80045430, 0x40045431, 0x5441
_MULTIPLEXER = "/dev/ptmx"

_MAX_LINE = 4096  # bytes of an unfinished line; no script has a longer one
_PIECE = 1024  # bytes


class Line:
    """A raw serial line without echo, open to every user of the container that gets it.

    A program at its other end runs on the event loop from `behave` to `close`. It waits `pause` seconds after each
    piece that it reads.
    """

    def __init__(self, host: HostRoot, *, pause: float, clock: Clock) -> None:
        """Raises HostError; blocks."""
        self._master, self._terminal, self.path = _open(host)
        self._end = LineEnd.SILENCE
        self._answers: Mapping[str, str] = {}
        self._otherwise: str | None = None
        self._unfinished = b""  # the beginning of a line whose end has not come
        self._seconds = pause
        self._clock = clock
        self._end_pause: Callable[[], object] | None = None  # set during a pause

    def behave(self, end: LineEnd, answers: Mapping[str, str], otherwise: str | None) -> None:
        """Set the program; `answers` maps a line, without its end, to the answer."""
        self._end, self._answers, self._otherwise = end, answers, otherwise
        if self._end_pause is None:
            self._listen()

    def close(self) -> None:
        if self._end_pause is not None:
            self._end_pause()
        asyncio.get_running_loop().remove_reader(self._master)
        for side in (self._master, self._terminal):
            with contextlib.suppress(OSError):
                os.close(side)

    def _listen(self) -> None:
        self._end_pause = None
        asyncio.get_running_loop().add_reader(self._master, self._answer)

    def _answer(self) -> None:
        """Answer the bytes that came. If the line is full, the answer is lost, as without flow control."""
        with contextlib.suppress(OSError):
            answer = self._response(os.read(self._master, _PIECE))
            if answer:
                os.write(self._master, answer)
        asyncio.get_running_loop().remove_reader(self._master)
        self._end_pause = self._clock.call_later(self._seconds, self._listen)

    def _response(self, data: bytes) -> bytes:
        """Return the answer to these bytes. A line ends with CR, LF or both; an empty one has no answer."""
        if self._end is not LineEnd.SCRIPT:
            return data if self._end is LineEnd.ECHO else b""
        *lines, rest = (self._unfinished + data).replace(b"\r", b"\n").split(b"\n")
        self._unfinished = rest[-_MAX_LINE:]
        heard = (line.decode(errors="replace").strip() for line in lines)
        answers = (self._answers.get(each, self._otherwise) for each in heard if each)
        return b"".join(f"{each}\r\n".encode() for each in answers if each is not None)


def _open(host: HostRoot) -> tuple[int, int, str]:
    """Open both sides of a new line, and return them with the host's path of the terminal side. Raises HostError.

    The terminal is held open, so that the line stays up, and raw, while no container has it open.
    """
    flags = os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC
    try:
        master = os.open(host.path(_MULTIPLEXER), flags | os.O_NONBLOCK)
    except OSError as cause:
        raise HostError(f"cannot make a serial line: cannot open {_MULTIPLEXER}: {reason_of(cause)}") from cause
    try:
        fcntl.ioctl(master, _TIOCSPTLCK, struct.pack("i", 0))
        (number,) = struct.unpack("i", fcntl.ioctl(master, _TIOCGPTN, struct.pack("i", 0)))
        terminal = fcntl.ioctl(master, _TIOCGPTPEER, flags)
    except OSError as cause:
        os.close(master)
        raise HostError(f"cannot make a serial line: {reason_of(cause)}") from cause
    tty.setraw(terminal)
    os.fchmod(terminal, 0o666)
    return master, terminal, f"/dev/pts/{number}"
