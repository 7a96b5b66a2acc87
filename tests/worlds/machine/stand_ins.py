"""What production code takes from its machine and a world must draw itself: file events, threads, random names.

`installed` puts stand-ins into the modules that ask, by name; docs/worlds.md lists them. Events of files are the
kernel's own: they are there when a file operation returns, so that they come in one order. The world may hold them
back, shuffle them, or lose them as a queue does that overflows.
"""

import asyncio
import contextlib
import os
import random
import secrets
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import inotify_simple

from vdev.aio import blocking_calls
from vdev.hostfs import watch
from vdev.plugin import kubelet_socket

from .virtual_time import PROCESS, WorldLoop

_OVERFLOW = 0x4000  # linux/inotify.h


@dataclass(slots=True)
class FileEvents:
    """How events of files come at the moment: each part of one (0 to 1)."""

    delayed: float = 0.0
    shuffled: float = 0.0
    lost: float = 0.0


@contextlib.contextmanager
def installed(dice: random.Random, events: FileEvents) -> Iterator[None]:
    """Draw what this process needs from the seed, while the context lasts."""
    random.seed(dice.random())
    numbers = iter(range(1, 1_000_000))
    names = SimpleNamespace(token_hex=lambda size: f"{next(numbers):0{2 * size}x}", choice=random.choice)

    def inotify(**options: Any) -> "_INotify":
        return _INotify(dice, events, **options)

    def no_uevents() -> None:
        raise OSError(1, "no events of the kernel's devices in a world")

    with contextlib.ExitStack() as stack:
        for module, name, stand_in in (
            (watch, "inotify_simple", SimpleNamespace(INotify=inotify)),
            (watch, "Uevents", no_uevents),
            (blocking_calls, "threading", SimpleNamespace(Thread=_Thread)),
            (kubelet_socket, "secrets", names),
            (kubelet_socket, "os", SimpleNamespace(**{**vars(os), "getpid": lambda: 1})),
            (secrets, "choice", random.choice),
            (uuid, "uuid4", lambda: uuid.UUID(int=random.getrandbits(128), version=4)),
        ):
            stack.enter_context(mock.patch.object(module, name, stand_in))
        yield


class _Thread:
    """A thread of one blocking call: it is made in the loop's thread, as those of `asyncio.to_thread`."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...] = (), **_: object) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        """Begin."""
        asyncio.get_running_loop().run_in_executor(None, self._target, *self._args)


class _INotify(inotify_simple.INotify):  # type: ignore[misc]  # it has no types
    """The kernel's events, which may come late, in another order, or not at all."""

    def __init__(self, dice: random.Random, events: FileEvents, **options: Any) -> None:
        super().__init__(**options)
        self._dice = dice
        self._events = events
        self._held: list[Any] = []
        self._due = 0.0  # when what is held comes
        process = PROCESS.get()
        if process is not None:
            process.killed.append(self._end)

    def read(self, timeout: int | None = None, read_delay: int | None = None) -> list[Any]:
        """What has come by now."""
        loop, dice, rules = asyncio.get_running_loop(), self._dice, self._events
        assert isinstance(loop, WorldLoop)
        self._held += super().read(timeout, read_delay)
        if loop.time() < self._due or not self._held:
            return []
        if not self._due and dice.random() < rules.delayed:
            self._due = loop.time() + dice.random() * 2
            loop.call_at(self._due, loop.readers[self.fileno()])
            return []
        self._due = 0.0
        found, self._held = self._held, []
        if dice.random() < rules.lost:
            return [inotify_simple.Event(-1, _OVERFLOW, 0, "")]
        if dice.random() < rules.shuffled:
            dice.shuffle(found)
        return found

    def _end(self) -> None:
        if not self.closed:
            asyncio.get_running_loop().remove_reader(self.fileno())
            self.close()
