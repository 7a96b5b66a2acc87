"""The collector is kept away while large values are made, and looks at everything else before and after."""

import gc
import weakref

import pytest

from vdev.aio.clock import ManualClock
from vdev.aio.garbage import Garbage, set_aside


class Cycle:
    """Garbage that only the collector finds, once nobody has it."""

    def __init__(self):
        self.me = self


@pytest.fixture(autouse=True)
def _as_it_was():
    """Leave aside again what was left aside before: in a worker of a run that is all that it has imported."""
    frozen = gc.get_freeze_count()
    yield
    if frozen:
        gc.freeze()


@pytest.fixture
def garbage():
    """One that directs this process's collector, as it was afterwards."""
    frozen = gc.get_freeze_count()
    yield Garbage()
    gc.enable()
    if not frozen:
        gc.unfreeze()


def test_large_values_are_left_aside(garbage):
    """What was made during the pause is not looked at afterwards; what was garbage before is gone."""
    before = weakref.ref(Cycle())
    aside = gc.get_freeze_count()
    garbage.pause()
    assert before() is None
    assert not gc.isenabled()
    made = [[] for _ in range(1000)]
    garbage.keep()
    garbage.resume()
    assert gc.isenabled()
    assert len(made) <= gc.get_freeze_count() - aside


def test_what_was_left_aside_is_collected_in_the_end(garbage):
    """Of what is garbage later something may be put aside. So all is looked at after many times."""
    garbage.pause()
    there = weakref.ref(Cycle())
    garbage.keep()
    garbage.resume()
    gc.collect()
    assert there() is not None
    for _ in range(500):
        garbage.pause()
        garbage.keep()
        garbage.resume()
    assert there() is None


def test_nothing_is_left_aside_where_nothing_stays(garbage):
    """A pause in which no large values are made that stay."""
    aside = gc.get_freeze_count()
    garbage.pause()
    assert not gc.isenabled()
    garbage.resume()
    assert gc.isenabled()
    assert aside == gc.get_freeze_count()


def test_pauses_overlap(garbage):
    """The collector goes on after the last of them."""
    with garbage.spared():
        garbage.pause()
        garbage.resume()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_idle_one_changes_nothing():
    """Where somebody else lives in the process."""
    garbage = Garbage(idle=True)
    garbage.pause()
    with garbage.spared():
        assert gc.isenabled()
    garbage.resume()
    assert gc.isenabled()


class Value:
    """Something with attributes."""


async def test_parting_with_values(garbage):
    """They go with all that they are made of, and with their owners; what others still have stays."""
    value, owner, kept = Value(), Value(), Value()
    value.items = (*(Value() for _ in range(5000)), kept)
    value.by_id = dict(enumerate(value.items))
    owner.value = value
    gone = [weakref.ref(each) for each in (value, owner, value.items[17])]
    owners = [owner]
    garbage.part_with([value], owners)
    del value, owner, owners
    await garbage.parted()
    assert [None] * 3 == [each() for each in gone]
    assert kept is not None


@pytest.fixture
def clock():
    """Stands still."""
    return ManualClock()


def test_what_outlived_a_collection_is_not_looked_at_for_an_hour(clock):
    """Then it is, and what became garbage meanwhile goes."""
    with set_aside(clock):
        cycle = Cycle()
        gone = weakref.ref(cycle)
        gc.collect()
        del cycle
        gc.collect()
        assert gone() is not None
        clock.advance(3601)
        gc.collect()
        assert gone() is None


def test_new_garbage_goes_as_ever(clock):
    """What no collection has seen before is looked at by the next one."""
    with set_aside(clock):
        gone = weakref.ref(Cycle())
        gc.collect()
        assert gone() is None


def test_afterwards_everything_is_as_before(clock):
    """Nothing stays set aside, and collections do nothing more."""
    before = len(gc.callbacks)
    with set_aside(clock):
        assert gc.get_freeze_count() > 0
    assert (before, 0) == (len(gc.callbacks), gc.get_freeze_count())
