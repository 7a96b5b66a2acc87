"""Plays many worlds, each in its own process. All are forked from one prepared process, so they start equal.

Leftovers of a world (suspended coroutines of killed processes, caches) end with its process, so its course depends only
on its seed and its events.
"""

import contextlib
import fcntl
import gc
import multiprocessing
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from typing import Any

from tests.worlds.events import Event, drawn, kinds_of
from tests.worlds.world import Outcome, World

LENGTH = 3600.0  # seconds of a world
_LIMIT = 600  # seconds of real time that a world may take
_SHARED_MEMORY = Path("/dev/shm")
_WARM_UP = 60.0  # seconds of the world in the prepared process


@dataclass(frozen=True, slots=True)
class SeededWorld:
    """The world of a seed, with the events of the seed or with given ones."""

    seed: int
    seconds: float = LENGTH
    events: tuple[Event, ...] | None = None

    @property
    def all_events(self) -> tuple[Event, ...]:
        """The given events, or else those of the seed."""
        if self.events is not None:
            return self.events
        return drawn(random.Random(f"events {self.seed}"), self.seconds, kinds_of(self.seed))


@contextlib.contextmanager
def place(name: str) -> Iterator[Path]:
    """Make the directory of a world of this name. Another process with a world of this name waits.

    The path is the same in each run, because messages contain it, and the order of sets of paths depends on it.
    """
    home = _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path("/tmp")
    path = home / f"vdev-worlds-{name}"
    with contextlib.ExitStack() as stack:
        while not _locked(path, stack):
            stack.close()
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        yield path / "node"


def _locked(path: Path, stack: contextlib.ExitStack) -> bool:
    """Lock the directory. Returns False if its last owner has removed it in the meantime."""
    path.mkdir(exist_ok=True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def prepare() -> None:
    """Play a minute without events, which loads the modules and caches that worlds need."""
    with place("warm") as root:
        World(0, (), _WARM_UP, root).run()


def play(
    seeded_worlds: Iterable[SeededWorld], *, workers: int = 1, until: float = float("inf")
) -> Iterator[tuple[SeededWorld, Outcome]]:
    """Play worlds, and start none after `until` (monotonic). Outcomes come in the order in which the worlds end."""
    context = multiprocessing.get_context("fork")
    waiting = iter(seeded_worlds)
    running: dict[Any, SeededWorld] = {}  # by the connection on which the outcome comes
    while True:
        while len(running) < workers and time.monotonic() < until and (seeded := next(waiting, None)) is not None:
            reading, writing = context.Pipe(duplex=False)
            context.Process(target=_play, args=(seeded, writing), daemon=True).start()
            writing.close()
            running[reading] = seeded
        if not running:
            return
        for each in connection.wait(list(running)):
            seeded = running.pop(each)
            yield seeded, _outcome(seeded, each)


def play_one(seeded: SeededWorld) -> Outcome:
    """Play this world."""
    ((_, outcome),) = play([seeded])
    return outcome


def _play(seeded: SeededWorld, told: Any) -> None:
    """Play a world in this process, and send the outcome."""
    gc.disable()  # it would end suspended coroutines at another moment in each run, so no seed would repeat
    signal.alarm(_LIMIT)
    try:
        with place(str(seeded.seed)) as root:
            outcome = World(seeded.seed, seeded.all_events, seeded.seconds, root).run()
    except Exception:
        outcome = Outcome(seeded.seed, 0.0, f"a world comes to its end: {traceback.format_exc()}")
    told.send(outcome)
    os._exit(0)


def _outcome(seeded: SeededWorld, told: Any) -> Outcome:
    try:
        outcome: Outcome = told.recv()
    except EOFError:
        return Outcome(seeded.seed, 0.0, f"a world comes to its end: its process ended, or took more than {_LIMIT} s")
    return outcome


def shrunk(
    seeded: SeededWorld, rule: str, *, until: float, told: Callable[[int], None] = lambda _: None
) -> SeededWorld:
    """The same world with the fewest events that still break this rule, as found before `until`.

    Long sequences of events are left out first, then shorter ones, and finally single events.
    """
    events: Sequence[Event] = seeded.all_events
    size = max(1, len(events) // 2)
    while time.monotonic() < until:
        left, start = tuple(events), 0
        while start < len(left) and time.monotonic() < until:
            fewer = (*left[:start], *left[start + size :])
            smaller = SeededWorld(seeded.seed, _length(seeded, fewer), fewer)
            if play_one(smaller).rule == rule:
                left = fewer
                seeded = smaller
                told(len(left))
            else:
                start += size
        if size == 1 and len(left) == len(events):
            break
        events, size = left, max(1, size // 2)
    return seeded


def _length(seeded: SeededWorld, events: Sequence[Event]) -> float:
    """The length of a world with fewer events, which ends soon after the last one."""
    return min(seeded.seconds, (events[-1].at if events else 0.0) + 120.0)
