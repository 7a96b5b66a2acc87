"""Where the plugin's sockets are, and who is told of a look at them."""

import os
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
