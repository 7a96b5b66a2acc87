"""Programs that are ended while they start."""

import os
import queue
import subprocess
import threading

import pytest

from vdev.aio import program

PATIENCE = 30.0


@pytest.fixture
def slow_start(monkeypatch):
    """Programs are there only once `go` is set; `made` has those that were started, `asked` that one is."""

    class Slow(subprocess.Popen):
        go, asked, made = threading.Event(), threading.Event(), queue.SimpleQueue()

        def __init__(self, *arguments, **options):
            self.asked.set()
            assert self.go.wait(PATIENCE)
            super().__init__(*arguments, **options)
            self.made.put(self)

    monkeypatch.setattr(program.subprocess, "Popen", Slow)
    yield Slow
    Slow.go.set()


def test_who_ends_waits_for_a_program_that_starts(slow_start):
    """It was aborted before it was there: it is ended before the process may end, and with it its thread."""
    one = program.Program(["sleep", "1000"])
    thread = threading.Thread(target=one.run)
    thread.start()
    assert slow_start.asked.wait(PATIENCE)
    one.abort()
    threading.Timer(0.05, slow_start.go.set).start()
    program.wait_for_starts(PATIENCE)
    made = slow_start.made.get(timeout=PATIENCE)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    with pytest.raises(ProcessLookupError):
        os.kill(made.pid, 0)


def test_what_never_starts_is_waited_for_in_vain(slow_start):
    """A file that never comes holds nobody up for long."""
    thread = threading.Thread(target=program.Program(["true"]).run)
    thread.start()
    assert slow_start.asked.wait(PATIENCE)
    program.wait_for_starts(0.01)
    assert thread.is_alive()
    slow_start.go.set()
    thread.join(PATIENCE)


def test_nothing_is_started_once_it_is_aborted(tmp_path):
    """Its thread came late."""
    one = program.Program(["touch", str(tmp_path / "seen")])
    one.abort()
    assert one.run() == "touch was not run any more"
    assert not (tmp_path / "seen").exists()
