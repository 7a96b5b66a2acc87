"""Where the plugin's sockets are."""

import os
from pathlib import Path

from vdev.plugin.kubelet_socket import KubeletSocket
from vdev.sockets.files import MAX_SOCKET_PATH


def test_a_relative_directory_counts_in_full(tmp_path, monkeypatch):
    """The kubelet dials the whole path, so a socket's name leaves room for all of it and not for what was given."""
    here = tmp_path / ("x" * (75 - len(os.fsencode(tmp_path))))
    here.mkdir()
    monkeypatch.chdir(here)
    path = KubeletSocket(None, Path()).new_socket_path("acme.dev/a-name-of-many-characters")
    assert len(os.fsencode(path.absolute())) <= MAX_SOCKET_PATH
