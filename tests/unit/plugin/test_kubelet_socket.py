"""Where the plugin's sockets are, and who is told of a look at them."""

import asyncio
import os
import socket
from pathlib import Path

from vdev.deviceplugin.registration import KubeletSocket
from vdev.deviceplugin.socket_server import MAX_SOCKET_PATH


def test_a_relative_directory_counts_in_full(directory, monkeypatch):
    """The kubelet dials the whole path, so a socket's name leaves room for all of it and not for what was given."""
    here = directory / ("x" * (75 - len(os.fsencode(directory))))
    here.mkdir()
    monkeypatch.chdir(here)
    path = KubeletSocket(None, Path()).new_socket_path("acme.dev/a-name-of-many-characters")
    assert len(os.fsencode(path.absolute())) <= MAX_SOCKET_PATH


async def test_a_look_tells_those_whose_socket_fell(tmp_path):
    """The others have nothing to do: a hundred resources are looked at together, and stay asleep."""
    link = KubeletSocket(None, tmp_path)
    fallen, standing = asyncio.Event(), asyncio.Event()
    link.subscribe(fallen, lambda: False)
    link.subscribe(standing, lambda: True)
    assert [fallen] == await link.look()
    assert (fallen.is_set(), standing.is_set()) == (True, False)


async def test_another_kubelet_concerns_all(tmp_path):
    """It has removed all sockets, whatever a look at them finds."""
    path = tmp_path / "kubelet.sock"
    link = KubeletSocket(path, tmp_path)
    standing = asyncio.Event()
    link.subscribe(standing, lambda: True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as kubelet:
        kubelet.bind(str(path))
        assert [] == await link.look()
        assert (1, True) == (link.generation, standing.is_set())
        standing.clear()
        assert [] == await link.look()
        assert (1, False) == (link.generation, standing.is_set())
