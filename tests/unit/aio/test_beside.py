"""Long work is done by threads that are in nobody's way."""

import os

import pytest

from vdev.aio.beside import workers


def niceness():
    """That of the thread that asks: Linux keeps it for each thread."""
    return os.getpriority(os.PRIO_PROCESS, 0)


@pytest.fixture
def threads():
    with workers() as made:
        yield made


def test_they_leave_the_processor_to_others(threads):
    """Each steps back, and the thread that gave them the work does not."""
    own = niceness()
    assert own < threads.submit(niceness).result(10)
    assert own == niceness()


def test_where_a_sandbox_forbids_it(threads, monkeypatch):
    """The work is done all the same."""

    def refuse(_by):
        raise PermissionError

    monkeypatch.setattr(os, "nice", refuse)
    assert niceness() == threads.submit(niceness).result(10)
