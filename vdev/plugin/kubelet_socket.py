"""The kubelet's socket: where it is, whether it is a new one, and which socket files beside it are ours.

A kubelet that starts deletes every socket in the directory and then makes its own; one that dies leaves its socket
behind. So the file's existence says little and its identity says much: a new inode is a new kubelet.
"""

import asyncio
import os
import secrets
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from ..core.model.syntax import names
from ..sockets.files import MAX_SOCKET_PATH, remove_dead

log = structlog.get_logger(__name__)

_OURS = r"vdev-.*\.sock"

_Identity = tuple[int, int, int]
_Subscribers = Sequence[tuple[asyncio.Event, Callable[[], bool]]]


class KubeletSocket:
    """Where the kubelet is to be found, and a generation that counts its appearances.

    `socket` is None when nothing is to be registered; `directory` holds the plugin's own sockets, and `is_ours` says in
    a thread whether nobody else has come to serve there (it may have been made again). `look` finds out whether
    anything changed, and sets the events of those whom it concerns.
    """

    def __init__(
        self,
        socket_path: Path | None,
        plugin_dir: Path,
        *,
        is_ours: Callable[[], bool] = lambda: True,
    ) -> None:
        self.socket = socket_path
        self.directory = plugin_dir
        self.directories = frozenset({plugin_dir} if socket_path is None else {plugin_dir, socket_path.parent})
        self.generation = 0
        self._is_ours = is_ours
        self._identity: _Identity | None = None
        self._instance = f"{os.getpid():x}{secrets.token_hex(3)}"
        self._made = 0
        self._subscribers: dict[asyncio.Event, Callable[[], bool]] = {}  # in the order in which they came
        self._looking = asyncio.Lock()  # of two looks at once the older one could end last

    def subscribe(self, event: asyncio.Event, stands: Callable[[], bool]) -> None:
        """Set the event where the kubelet is another one, and after each look that finds that something fell.

        `stands` tells whether it did not. It is called in a thread.
        """
        self._subscribers[event] = stands

    def unsubscribe(self, event: asyncio.Event) -> None:
        self._subscribers.pop(event, None)

    def new_socket_path(self, resource: str) -> Path:
        """A path for a resource's socket that nobody had before."""
        self._made += 1
        room = MAX_SOCKET_PATH - len(os.fsencode(self.directory.absolute())) - 1
        return self.directory / names.socket_name(resource, f"{self._instance}{self._made:x}", room=room)

    @property
    def kubelet_present(self) -> bool:
        """Whether the kubelet's socket was there at the last look."""
        return self._identity is not None

    async def look(self) -> Sequence[asyncio.Event]:
        """Look at the kubelet's socket and at all that is ours; the events of what fell."""
        async with self._looking:
            identity, fallen = await asyncio.to_thread(self._see, list(self._subscribers.items()))
            self._meet(identity)
            for event in fallen:
                event.set()
            return fallen

    async def catch_up(self, stands: Callable[[], bool]) -> bool:
        """Look at the kubelet's socket and, after it, at one of ours; what `stands` says, which blocks briefly.

        Nothing of ours stands where the directory is another agent's by now.
        """
        async with self._looking:
            seen = await asyncio.to_thread(lambda: (_identity(self.socket), stands() and self._is_ours()))
            identity, is_there = seen
            self._meet(identity)
            return is_there

    def _see(self, subscribers: _Subscribers) -> tuple[_Identity | None, list[asyncio.Event]]:
        return _identity(self.socket), [event for event, stands in subscribers if not stands()]

    def _meet(self, identity: _Identity | None) -> None:
        """Tell all subscribers if this is another kubelet's socket."""
        if identity == self._identity:
            return
        appeared = identity is not None
        if appeared and self.generation:
            log.info("kubelet socket appeared", socket=str(self.socket))
        elif not appeared:
            log.warning("kubelet socket vanished", socket=str(self.socket))
        self._identity = identity
        self.generation += appeared
        for event in self._subscribers:
            event.set()

    async def remove_leftovers(self) -> None:
        """Remove sockets with our name pattern on which nobody listens any more; never those of others."""
        for path in await asyncio.to_thread(remove_dead, self.directory, _OURS):
            log.info("removed the socket of a process that is gone", socket=str(path))


def _identity(path: Path | None) -> _Identity | None:
    if path is None:
        return None
    try:
        status = os.stat(path)  # twice as fast, and often called
    except OSError:
        return None
    # The inode alone does not suffice, because file systems reuse numbers. A chmod changes only the ctime.
    return (status.st_dev, status.st_ino, status.st_mtime_ns) if stat.S_ISSOCK(status.st_mode) else None
