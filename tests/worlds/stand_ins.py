"""Replacements for what production code takes from the machine: file events, threads, random names.

`installed` patches the modules that use them. File events are still those of the kernel: they are ready when a file
operation returns, so their order is always the same.
"""

import asyncio
import contextlib
import random
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import inotify_simple

from tests.worlds.virtual_time import PROCESS, WorldLoop
from vdev.aio import tasks
from vdev.deviceplugin import registration
from vdev.hostfs import watch


@contextlib.contextmanager
def installed(dice: random.Random, loop: WorldLoop) -> Iterator[None]:
    """Install the replacements inside the context. Random values depend on the seed."""
    random.seed(dice.random())
    numbers = iter(range(1, 1_000_000))
    names = SimpleNamespace(token_hex=lambda size: f"{next(numbers):0{2 * size}x}")

    with contextlib.ExitStack() as stack:
        for module, name, stand_in in (
            (watch, "inotify_simple", SimpleNamespace(INotify=_INotify)),
            (tasks, "threading", SimpleNamespace(Thread=_Thread)),
            (registration, "secrets", names),
            (uuid, "uuid4", lambda: uuid.UUID(int=random.getrandbits(128), version=4)),
        ):
            stack.enter_context(mock.patch.object(module, name, stand_in))
        yield


class _Thread:
    """A thread of one blocking call, which runs in the loop's thread, like those of `asyncio.to_thread`."""

    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...] = (), **_: object) -> None:
        self._target, self._args = target, args

    def start(self) -> None:
        asyncio.get_running_loop().run_in_executor(None, self._target, *self._args)


class _INotify(inotify_simple.INotify):  # type: ignore[misc]  # it has no types
    """The kernel's inotify, which ends with its process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        process = PROCESS.get()
        if process is not None:
            process.killed.append(self._end)

    def _end(self) -> None:
        if not self.closed:
            asyncio.get_running_loop().remove_reader(self.fileno())
            self.close()
