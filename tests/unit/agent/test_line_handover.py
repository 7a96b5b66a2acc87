"""Open serial lines from one agent to the next, whatever else these have open."""

import contextlib
import os
import resource
import socket
import threading

import pytest

from vdev.agent.outputs.virtual.line_handover import Giver, Taker
from vdev.agent.outputs.virtual.serial_lines import OpenLine
from vdev.hostfs import HostRoot
from vdev.hostfs.pty import open_pty

_MANY = 1100  # descriptors: select() takes numbers up to 1023


@pytest.fixture
def many_files():
    """So many files are open that the next ones have high numbers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * _MANY:
        pytest.skip("no more files may be opened")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * _MANY), hard))
    with contextlib.ExitStack() as stack:
        for _ in range(_MANY):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_lines_of_an_agent_with_hundreds_of_them(tmp_path, many_files):
    """Each has two descriptors, so those of the hand-over itself come late."""
    giver, taker = Giver(tmp_path / "lines.sock"), Taker(tmp_path / "lines.sock")
    taken = {}
    line = open_pty(HostRoot())
    giver.open()
    taker.connect()
    taker.connect()  # it looks now and then whether it is still wanted
    assert giver.is_wanted()
    thread = threading.Thread(target=lambda: taken.update(taker.take(20.0)))
    thread.start()
    try:
        client = giver.asked(20.0)
        assert client is not None
        giver.give(client, {"uart-0": OpenLine(line, b"half")}, 20.0)
    finally:
        giver.close()
        line.close()
        thread.join()
    assert {"uart-0": b"half"} == {device: each.unfinished for device, each in taken.items()}
    taken["uart-0"].pty.close()


@pytest.mark.parametrize("message", [b"no JSON", b"[]", b"[" * 50_000])
def test_a_message_that_cannot_be_read(tmp_path, message):
    """Its descriptors are closed, and there are no lines."""
    taker = Taker(tmp_path / "lines.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "lines.sock"))
        listener.listen()
        taker.connect()
        giver, _ = listener.accept()
        with giver:
            giver.send(message)
            giver.shutdown(socket.SHUT_WR)
            assert {} == taker.take(20.0)
