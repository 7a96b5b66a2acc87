"""One resource's server: what is left of it when its start is interrupted."""

import asyncio
import shutil
import socket
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from vdev.deviceplugin.servicer import Servicer
from vdev.deviceplugin.socket_server import SocketServer
from vdev.planning.resources import Resource


@pytest.fixture
def directory():
    """A directory whose path is short enough for sockets, removed at the end."""
    path = Path(tempfile.mkdtemp(prefix="vd-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def test_a_start_that_is_interrupted_leaves_no_server(directory, monkeypatch):
    """A server that is cancelled when it serves already answers nobody any more."""
    serving, path = asyncio.Event(), directory / "a.sock"

    async def look_at_the_socket(*_look):
        serving.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "to_thread", look_at_the_socket)
    requests = SimpleNamespace(observe_rpc=None)
    servicer = Servicer(Resource("acme.dev/npu", ()), b"", requests, on_stream=lambda: None, faults=SimpleNamespace())
    server = SocketServer(servicer, path)
    start = asyncio.create_task(server.start())
    await serving.wait()
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
    start.cancel()
    await asyncio.wait([start])
    assert start.cancelled()
    with socket.socket(socket.AF_UNIX) as probe, pytest.raises(OSError, match=r"No such file|refused"):
        probe.connect(str(path))
