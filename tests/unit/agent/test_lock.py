"""Who may serve a kubelet's directory when that is made again under an agent that serves: the one that did."""

import asyncio
import contextlib
import errno
import fcntl
import os

import pytest

from vdev.agent.lock import NodeLock
from vdev.aio.clock import ManualClock, Timing
from vdev.intervals import Intervals

INTERVALS = Intervals()


class Other:
    """Another agent that serves the directory: it holds the lock until it is told to let it go."""

    def __init__(self, directory):
        self._handle = os.open(directory, os.O_RDONLY)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def end(self):
        """End."""
        os.close(self._handle)


class StandBy:
    """One that waits for the directory."""

    def __init__(self, directory):
        self.clock, self.told = ManualClock(), []
        self._stopping = asyncio.Event()
        self.lock = NodeLock(directory, waiting=self.told.append, timing=Timing(INTERVALS, self.clock))
        self.task = asyncio.create_task(self.lock.take(self._stopping))

    async def looks(self, after=0.0):
        """Let the time pass, and then let it look at least twice."""
        self.clock.advance(after)
        for _ in range(3):
            async with asyncio.timeout(30):
                while self.clock.next_due is None and not self.task.done():
                    await asyncio.sleep(0)
            if not self.task.done():
                self.clock.advance(self.clock.next_due - self.clock.now())

    async def end(self):
        """Give up."""
        self._stopping.set()
        await self.task
        self.lock.release()


@pytest.fixture
def directory(tmp_path):
    path = tmp_path / "device-plugins"
    path.mkdir()
    return path


@pytest.fixture
async def other(directory):
    with contextlib.closing(contextlib.ExitStack()) as stack:
        one = Other(directory)
        stack.callback(one.end)
        yield one


@pytest.fixture
async def stand_by(directory, other):
    one = StandBy(directory)
    await one.looks()
    assert one.lock.stands_by
    yield one
    await one.end()


async def test_it_stands_by_once_it_can_say_for_whom(directory, other, monkeypatch):
    """Who asks at that moment is told that it starts, and not that it is ready."""
    seen, show = [], NodeLock._show

    def look(lock):
        seen.append((lock.stands_by, bool(one.told)))
        return show(lock)

    monkeypatch.setattr(NodeLock, "_show", look)
    one = StandBy(directory)
    await one.looks()
    await one.end()
    assert (False, False) == seen[0]
    assert {(True, True)} == set(seen[1:])


def make_anew(directory):
    """Another directory in the place of this one, as after `rm -rf` and the kubelet's next start."""
    directory.rename(directory.with_name(f"gone-{directory.stat().st_ino}"))
    directory.mkdir()


async def test_a_directory_made_anew_is_left_to_who_serves(directory, stand_by):
    """For a time; who has not locked it by then is gone."""
    make_anew(directory)
    await stand_by.looks()
    assert stand_by.lock.stands_by
    await stand_by.looks(after=INTERVALS.directory_anew)
    assert await stand_by.task


async def test_it_is_left_to_them_each_time(directory, stand_by):
    """Also when there was enough time to lock the directory before it."""
    for _ in range(2):
        make_anew(directory)
        fresh = Other(directory)
        await stand_by.looks(after=INTERVALS.directory_anew)
        await stand_by.looks(after=INTERVALS.directory_anew)
        assert not stand_by.task.done()
        make_anew(directory)
        await stand_by.looks()
        assert not stand_by.task.done()
        fresh.end()


async def test_it_is_made_anew_while_it_is_looked_at(directory, stand_by, monkeypatch):
    """What is locked is what was looked at, and not what has come into its place since."""
    opened = os.open

    def make_anew_first(path, *args, **options):
        if path == directory:
            monkeypatch.setattr(os, "open", opened)
            make_anew(directory)
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", make_anew_first)
    await stand_by.looks()
    assert os.open is opened
    assert not stand_by.task.done()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM], ids=errno.errorcode.get)
async def test_what_the_system_has_too_little_of_gives_no_lock(directory, stand_by, monkeypatch, number):
    """Nor does it take one: an agent that serves goes on, and one that waits tries again."""
    opened = os.open

    def fail(path, *args, **options):
        if path == directory:
            raise OSError(number, os.strerror(number))
        return opened(path, *args, **options)

    monkeypatch.setattr(os, "open", fail)
    await stand_by.looks()
    assert not stand_by.task.done()
    assert os.strerror(number).lower() in stand_by.told[-1].lower()
    monkeypatch.setattr(os, "open", opened)
    await stand_by.looks(after=1)
    assert not stand_by.task.done()
    assert "another vdev serves" in stand_by.told[-1]
