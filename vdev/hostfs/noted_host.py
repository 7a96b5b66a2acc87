"""What a host was asked and what it answered, so that a later look can find out that nothing is new.

Whatever follows from these answers alone need not be concluded again where they are the same. Everything here blocks:
call it in a thread.
"""

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from ..core.spec import NodeKind
from ..errors import HostError
from .root import READ_LIMIT, FileInfo, HostRoot

_MOST = 4000  # answers, and names in directories, that are kept: a megabyte
_Look = tuple[Callable[..., Any], tuple[Any, ...]]


class NotedHost(HostRoot):
    """The same host as another one; what it is asked is noted, with the answers."""

    def __init__(self, host: HostRoot) -> None:
        self.root, self._prefix = host.root, host._prefix
        self._host = host
        self._room = _MOST
        self._answers: dict[_Look, object] | None = {}  # None where one of them cannot be kept, or compared

    def says_the_same(self, host: HostRoot) -> bool:
        """Whether all that was asked has the same answers now, by this host; False where that cannot be told.

        It cannot of more than some thousand answers, of errors, nor of disks: whether these are in use is not asked
        here.
        """
        try:
            return self._answers is not None and all(
                ask(host, *arguments) == answer for (ask, arguments), answer in self._answers.items()
            )
        except HostError:
            return False

    def resolve(self, host_path: str, *, follow: bool = True) -> str:
        """As HostRoot."""
        found: str = self._noted(_resolve, host_path, follow)
        return found

    def info(self, host_path: str) -> FileInfo | None:
        """As HostRoot."""
        found: FileInfo | None = self._noted(_info, host_path)
        if found is not None and found.kind is NodeKind.BLOCK:
            self._answers = None
        return found

    def is_present(self, host_path: str) -> bool:
        """As HostRoot."""
        return bool(self._noted(_is_present, host_path))

    def link(self, host_path: str) -> str:
        """As HostRoot."""
        found: str = self._noted(_link, host_path)
        return found

    def entries(self, host_path: str) -> Iterator[tuple[str, bool]]:
        """As HostRoot."""
        found = self._host.entries(host_path)
        try:
            first = tuple(islice(found, _MOST))
        except HostError:
            self._answers = None
            raise
        self._note((_entries, (host_path,)), first, len(first) + 1)
        return chain(first, found)

    def read_text(self, host_path: str, *, limit: int = READ_LIMIT) -> str | None:
        """As HostRoot."""
        found: str | None = self._noted(_read_text, host_path, limit)
        return found

    def _noted(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        try:
            answer = ask(self._host, *arguments)
        except HostError:
            self._answers = None
            raise
        self._note((ask, arguments), answer, 1)
        return answer

    def _note(self, look: _Look, answer: object, room: int) -> None:
        if self._answers is None:
            return
        self._room -= room
        if self._room < 0 or self._answers.setdefault(look, answer) != answer:
            self._answers = None  # too many, or it changed while it was looked at


def _resolve(host: HostRoot, host_path: str, follow: bool) -> str:
    return host.resolve(host_path, follow=follow)


def _info(host: HostRoot, host_path: str) -> FileInfo | None:
    return host.info(host_path)


def _is_present(host: HostRoot, host_path: str) -> bool:
    return host.is_present(host_path)


def _link(host: HostRoot, host_path: str) -> str:
    return host.link(host_path)


def _entries(host: HostRoot, host_path: str) -> tuple[tuple[str, bool], ...]:
    return tuple(islice(host.entries(host_path), _MOST + 1))


def _read_text(host: HostRoot, host_path: str, limit: int) -> str | None:
    return host.read_text(host_path, limit=limit)
