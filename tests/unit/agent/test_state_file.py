"""A state file stands while nobody else touches it: what is written by us is no news, whenever one looks."""

import asyncio
import contextlib
import os

import pytest

from vdev.agent.state_file import Owner, StateFile
from vdev.aio.clock import LeapClock, Timing

NOBODY = frozenset[str]()


@pytest.fixture
def file(tmp_path):
    """A file that was written once."""
    made = StateFile(tmp_path, "kind", Owner("node", "/plugins"), version=1)
    made.write({"number": "1"})
    return made


async def test_what_is_written_stands(file):
    """Also when one looks at the disk."""
    assert file.recheck(frozenset({file.path.name}))
    assert await file.stands()


@pytest.mark.parametrize("harm", ["gone", "other"])
async def test_what_another_does_is_noticed_once(file, harm):
    """The one that asked for the look is told, and until it is written again there is nothing to look at."""
    if harm == "gone":
        file.path.unlink()
    else:
        file.path.write_text("x")
    assert file.recheck(NOBODY)
    assert not await file.stands()
    assert not file.recheck(NOBODY)
    file.write({"number": "2"})
    assert await file.stands()


async def test_the_disk_is_looked_at_when_something_happened_there(file):
    """Once for each time, and not without."""
    assert file.recheck(NOBODY)
    assert await file.stands()
    file.path.unlink()
    assert await file.stands()
    assert file.recheck(NOBODY)
    assert not await file.stands()


@pytest.mark.parametrize("sees", ["before", "after"])
async def test_what_is_written_during_a_look_is_not_taken_for_anothers(file, monkeypatch, sees):
    """Whether the look sees the file of before or that of after."""
    looks = asyncio.to_thread

    async def slow(look, *given):
        seen = await looks(look, *given)
        await looks(file.write, {"number": "2"})
        return seen if sees == "before" else await looks(look, *given)

    monkeypatch.setattr(asyncio, "to_thread", slow)
    assert file.recheck(NOBODY)
    assert await file.stands()
    monkeypatch.undo()
    assert file.recheck(NOBODY)
    assert await file.stands()


async def test_a_pipe_that_takes_its_place_holds_no_thread_up(tmp_path):
    """What was written is brought to the disk a moment later; somebody may have put a pipe there by then."""
    clock = LeapClock()
    made = StateFile(tmp_path, "kind", Owner("node", "/plugins"), version=1, timing=Timing(clock=clock))
    made.write({"number": "1"})
    made.sync_soon()
    made.path.unlink()
    os.mkfifo(made.path)
    clock.advance(60)
    try:
        async with asyncio.timeout(30):
            await asyncio.get_running_loop().shutdown_default_executor()
    finally:
        with contextlib.suppress(OSError):  # lets a thread go that waits for somebody to write
            os.close(os.open(made.path, os.O_WRONLY | os.O_NONBLOCK))
