"""Many worlds: each in a process of its own, forked from one that is prepared, so that all begin alike.

What a world leaves behind (suspended coroutines of processes that were killed, caches) ends with its process, and its
course depends on nothing but its seed and its events.
"""

import contextlib
import fcntl
import gc
import os
import pickle
import random
import select
import shutil
import signal
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import mutants
from .drawn_events import Event, drawn, kinds_of
from .world import Outcome, World

LENGTH = 3600.0  # seconds of a world
_LIMIT = 300.0  # seconds of the real time that a world may take
_SHARED_MEMORY = Path("/dev/shm")
_WARM_UP = 60.0  # seconds of the world that prepares


@dataclass(frozen=True, slots=True)
class SeededWorld:
    """What to play: the world of a seed, with its own events or with these; `mutant` is the name of a bad behaviour."""

    seed: int
    seconds: float = LENGTH
    events: tuple[Event, ...] | None = None
    mutant: str = ""

    @property
    def all_events(self) -> tuple[Event, ...]:
        """The events that were given, or else those that its seed draws."""
        if self.events is not None:
            return self.events
        return drawn(random.Random(f"events {self.seed}"), self.seconds, kinds_of(self.seed))

    @property
    def name(self) -> str:
        """What it is called; a mutant's is not called as others of the same seed."""
        return f"{self.seed}-{zlib.crc32(self.mutant.encode()):08x}" if self.mutant else str(self.seed)


@dataclass(slots=True)
class Total:
    """What was played so far."""

    worlds: int = 0
    hours: float = 0.0
    messages: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    digests: dict[int, str] = field(default_factory=dict)  # by seed
    failures: list[tuple[SeededWorld, Outcome]] = field(default_factory=list)

    def add(self, seeded: SeededWorld, outcome: Outcome) -> None:
        """One more."""
        self.worlds += 1
        self.hours += outcome.hours
        self.messages += outcome.messages
        self.digests[seeded.seed] = outcome.digest
        self.kinds += outcome.kinds
        self.happened += Counter({name: count for name, count in outcome.happened.items() if count > 0})
        if outcome.failure:
            self.failures.append((seeded, outcome))


def _home() -> Path:
    return _SHARED_MEMORY if os.access(_SHARED_MEMORY, os.W_OK) else Path("/tmp")


@contextlib.contextmanager
def place(name: str) -> Iterator[Path]:
    """Where a world of this name has its directory; another process with one of the same name waits meanwhile.

    Its path is the same in each run, for paths are in messages, and the order of sets of paths depends on them.
    """
    path = _home() / f"vdev-worlds-{name}"
    with contextlib.ExitStack() as stack:
        while not _locked(path, stack):
            stack.close()
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        yield path / "node"


def _locked(path: Path, stack: contextlib.ExitStack) -> bool:
    """Whether the directory that is there now is ours. It is not where its last owner has removed it meanwhile."""
    path.mkdir(exist_ok=True)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        stack.callback(os.close, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def prepare() -> None:
    """Play a quiet minute here, so that everything is imported and remembered that each world needs."""
    with place("warm") as root:
        World(0, (), _WARM_UP, root).run()
    gc.collect()
    gc.freeze()


def play(
    seeded_worlds: Iterable[SeededWorld], *, workers: int = 1, until: float = float("inf")
) -> Iterator[tuple[SeededWorld, Outcome]]:
    """Play these, so many at a time, and begin none after `until` (monotonic); in the order of their ends."""
    waiting = iter(seeded_worlds)
    running: dict[int, tuple[int, SeededWorld, float]] = {}  # by the descriptor: process, world, when it must be over
    try:
        while True:
            while len(running) < workers and time.monotonic() < until and (seeded := next(waiting, None)) is not None:
                process, descriptor = _begin(seeded)
                running[descriptor] = process, seeded, time.monotonic() + _LIMIT
            if not running:
                return
            for descriptor in select.select(list(running), [], [], 1.0)[0]:
                process, seeded, _ = running.pop(descriptor)
                yield seeded, _outcome(seeded, process, descriptor)
            for process, _, limit in running.values():
                if time.monotonic() > limit:
                    os.kill(process, signal.SIGKILL)
    finally:
        for descriptor, (process, _, _) in running.items():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(descriptor)


def play_one(seeded: SeededWorld) -> Outcome:
    """Play this one."""
    ((_, outcome),) = play([seeded])
    return outcome


def _begin(seeded: SeededWorld) -> tuple[int, int]:
    """The process that plays it, and where it will write its outcome."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    code = 1
    try:
        gc.disable()  # it does not live long
        os.close(reading)
        with open(writing, "wb") as out:
            pickle.dump(_played(seeded), out)
        code = 0
    finally:
        os._exit(code)


def _played(seeded: SeededWorld) -> Outcome:
    try:
        with mutants.applied(seeded.mutant) if seeded.mutant else contextlib.nullcontext(), place(seeded.name) as root:
            return World(seeded.seed, seeded.all_events, seeded.seconds, root).run()
    except Exception:
        return Outcome(seeded.seed, 0.0, f"a world comes to its end: {traceback.format_exc()}")


def _outcome(seeded: SeededWorld, process: int, descriptor: int) -> Outcome:
    with open(descriptor, "rb") as told:
        text = told.read()
    _, status = os.waitpid(process, 0)
    if status == 0:
        outcome: Outcome = pickle.loads(text)  # noqa: S301 - of our own process
        return outcome
    how = f"it took more than {_LIMIT:g} s" if os.WIFSIGNALED(status) else "its process ended"
    return Outcome(seeded.seed, 0.0, f"a world comes to its end: {how}")


def shrunk(
    seeded: SeededWorld, rule: str, *, until: float, told: Callable[[int], None] = lambda _: None
) -> SeededWorld:
    """The same world with as few events as still break this rule, as far as that is found in time.

    Whole stretches are left out first, then smaller ones, at last single events.
    """
    events: Sequence[Event] = seeded.all_events
    size = max(1, len(events) // 2)
    while time.monotonic() < until:
        left, start = tuple(events), 0
        while start < len(left) and time.monotonic() < until:
            fewer = (*left[:start], *left[start + size :])
            smaller = SeededWorld(seeded.seed, _length(seeded, fewer), fewer, seeded.mutant)
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
    """How long a world with fewer events lasts: it need not go on for long after the last one."""
    return min(seeded.seconds, (events[-1].at if events else 0.0) + 120.0)
