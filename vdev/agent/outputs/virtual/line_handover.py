"""Open serial lines on their way from the agent that ends to the one that takes over, through a socket of theirs.

    stand-by ── connects, and says nothing ──► the one that serves, which looks who is there only at its end
    the one that got the node ── "give" ──► a message per line: its device, its two descriptors, what was half said

Nobody asks but who has the node, so a line never has two other ends. Who ends waits a moment for the question, and
hangs up when it does not come. `Giver` and `Taker` block, but briefly.
"""

import asyncio
import contextlib
import json
import os
import select
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

from ....aio.timing import Timing
from ....errors import reason_of
from ....hostfs.pty import Pty
from ....json_text import parse_json
from .serial_lines import OpenLine
from .virtual_nodes import VirtualNodes

log = structlog.get_logger(__name__)

_GIVE = b"give"
_MESSAGE = 2**16  # bytes at most
_WAITING = 128  # agents in stand-by that were never answered; those that are gone count as well
_SIDES = 2  # descriptors of a line


class LineHandover:
    """The lines of `nodes`, taken from the agent before and given to the one after; None: there is no way."""

    def __init__(self, path: Path | None, nodes: VirtualNodes, timing: Timing) -> None:
        self._nodes = nodes
        self._giver = Giver(path) if path else None
        self._taker = Taker(path) if path else None
        self._intervals, self._clock = timing
        self._one_at_a_time = asyncio.Lock()
        self._begun = False

    @property
    def is_waiting(self) -> bool:
        """Whether an agent that serves will be asked."""
        return self._taker is not None and self._taker.is_connected

    async def wait(self) -> None:
        """Be there for the agent that serves, until it is this one."""
        while self._taker is not None:
            async with self._one_at_a_time:
                if self._begun:
                    return
                await asyncio.to_thread(self._taker.connect)
            await self._clock.sleep(self._intervals.look_for_lines)

    async def begin(self) -> None:
        """The node is ours: go on with the lines that there are, and let the next agent wait for them."""
        self._begun = True
        if self._taker is None or self._giver is None:
            return
        async with self._one_at_a_time:
            lines = await asyncio.to_thread(_begin, self._taker, self._giver, self._intervals.give_lines)
        if lines:
            log.info("serial lines taken over", lines=len(lines))
            self._nodes.adopt(lines)

    async def end(self) -> None:
        """While the node is ours: hang up where nobody waits for the lines."""
        if self._giver is None or await asyncio.to_thread(_end, self._giver, has_lines=self._nodes.has_lines):
            await self._nodes.close()

    async def give(self) -> None:
        """The node is free: give the lines to the agent that has it now, or hang up; safe to call without lines."""
        if self._giver is not None and self._taker is not None:
            if self._nodes.has_lines:
                await self._give(self._giver)
            await asyncio.to_thread(_close, self._giver, self._taker)
        await self._nodes.close()

    async def _give(self, giver: "Giver") -> None:
        client = await asyncio.to_thread(giver.asked, self._intervals.give_lines)
        if client is None:
            return
        lines = self._nodes.let_go()
        try:
            await asyncio.to_thread(giver.give, client, lines, self._intervals.give_lines)
        except OSError as failed:
            log.warning("serial lines not given to the next agent", reason=reason_of(failed))
        else:
            log.info("serial lines given to the next agent", lines=len(lines))
        finally:
            for each in lines.values():
                each.pty.close()


class Giver:
    """The side of the agent that serves. Nothing is offered before `open`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._listener: socket.socket | None = None
        self._clients: list[socket.socket] = []

    def open(self) -> None:
        """Let others wait for the lines. Raises OSError."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            listener.setblocking(False)
            unfinished = self._path.with_suffix(".new")
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
            unfinished.unlink(missing_ok=True)
            listener.bind(str(unfinished))
            unfinished.chmod(0o600)
            listener.listen(_WAITING)
            unfinished.replace(self._path)
        except OSError:
            listener.close()
            raise
        self._listener = listener

    def is_wanted(self) -> bool:
        """Whether another agent is there that may ask."""
        if self._listener is not None:
            with contextlib.suppress(BlockingIOError):
                while True:
                    self._clients.append(self._listener.accept()[0])
        for each in _readable(self._clients, 0):  # it asks too early, or is gone
            self._clients.remove(each)
            each.close()
        return bool(self._clients)

    def asked(self, patience: float) -> socket.socket | None:
        """Who asks for the lines within so many seconds."""
        for each in _readable(self._clients, patience):
            with contextlib.suppress(OSError):
                if each.recv(_MESSAGE) == _GIVE:
                    return each
        return None

    def give(self, client: socket.socket, lines: Mapping[str, OpenLine], patience: float) -> None:
        """Send them; the descriptors may be closed here afterwards. Raises OSError."""
        client.settimeout(patience)
        for device, line in lines.items():
            text = {"device": device, "path": line.pty.path, "unfinished": line.unfinished.decode("latin-1")}
            socket.send_fds(client, [json.dumps(text).encode()], [line.pty.master, line.pty.terminal])

    def hide(self) -> None:
        """Let nobody else come, while the file is still this agent's."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()

    def close(self) -> None:
        """End the connections; safe to call twice."""
        for each in (*self._clients, *filter(None, [self._listener])):
            each.close()
        self._clients, self._listener = [], None


class Taker:
    """The side of an agent in stand-by."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: socket.socket | None = None

    @property
    def is_connected(self) -> bool:
        """Whether it was there at the last look."""
        return self._connection is not None

    def connect(self) -> None:
        """Be there when the lines are given; to be called again now and then, for the one that serves may change."""
        if self._connection is not None:
            if not _readable([self._connection], 0):
                return  # nothing was said, and that is as it should be
            self.close()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.setblocking(False)
        try:
            connection.connect(str(self._path))
        except OSError:  # there is nobody who has lines
            connection.close()
        else:
            self._connection = connection

    def take(self, patience: float) -> dict[str, OpenLine]:
        """Ask for the lines, by device; none where nobody gives any."""
        lines: dict[str, OpenLine] = {}
        connection, self._connection = self._connection, None
        if connection is None:
            return lines
        with connection:
            connection.settimeout(patience)
            try:
                connection.send(_GIVE)
                while True:
                    text, handles, _, _ = socket.recv_fds(connection, _MESSAGE, _SIDES)
                    if not text:
                        break
                    lines |= _line(text, handles)
            except OSError as failed:
                hung_up = isinstance(failed, ConnectionError) and not lines  # it had none, or they ended with it
                if not hung_up:
                    log.warning("serial lines not taken over", reason=reason_of(failed))
        return lines

    def close(self) -> None:
        """Wait no longer; safe to call twice."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _begin(taker: Taker, giver: Giver, patience: float) -> dict[str, OpenLine]:
    """Take the lines that there are, and let the next agent wait for them."""
    lines = taker.take(patience)
    try:
        giver.open()
    except OSError as failed:
        log.info("serial lines will end with this agent", reason=reason_of(failed))
    return lines


def _end(giver: Giver, *, has_lines: bool) -> bool:
    """Offer nothing more, unless somebody waits for lines; whether all ends here."""
    giver.hide()
    if has_lines and giver.is_wanted():
        return False
    giver.close()
    return True


def _close(*sides: Giver | Taker) -> None:
    for each in sides:
        each.close()


def _readable(sockets: Iterable[socket.socket], patience: float) -> list[socket.socket]:
    """Those on which something comes or ends within so many seconds, also where descriptors have passed 1023."""
    watch, known = select.poll(), {each.fileno(): each for each in sockets}
    for each in known:
        watch.register(each, select.POLLIN)
    return [known[each] for each, _ in watch.poll(patience * 1000)]


def _line(text: bytes, handles: list[int]) -> dict[str, OpenLine]:
    """The line of a message; one that cannot be read is hung up."""
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    match found, handles:
        case {"device": str(device), "path": str(path), "unfinished": str(unfinished)}, [master, terminal]:
            for each in handles:
                os.set_inheritable(each, False)
            return {device: OpenLine(Pty(master, terminal, path), unfinished.encode("latin-1", "replace"))}
    for each in handles:
        os.close(each)
    return {}
