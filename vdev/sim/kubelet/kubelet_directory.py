"""The kubelet's directories and sockets on disk. All functions block.

gRPC removes a server's socket when the server stops, but the sockets of a kubelet remain. So a server listens at a
private path, and the public path is a hard link. The number of links must not change after that, because this would
change the socket's ctime, which plugins use to detect a new kubelet.
"""

import contextlib
import os
import socket
import stat
from pathlib import Path

from ...errors import HostError, SocketError
from ..lint import SUN_PATH_LIMIT


class KubeletPaths:
    """The kubelet's directories and sockets below its root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.device_plugins = root / "device-plugins"  # contains the sockets of device plugins
        self.registration_socket = self.device_plugins / "kubelet.sock"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"
        self.plugins_registry = root / "plugins_registry"  # contains the registration sockets of DRA drivers

    def private(self, public: Path) -> Path:
        """Return the path at which the server of a socket listens; see the module's docstring."""
        return self.root / ".sim" / public.parent.name

    def create(self) -> None:
        """Create the directories, with the kubelet's modes, and remove a killed kubelet's private sockets.

        Raises SocketError if a path is too long or another kubelet uses the directory, and HostError.
        """
        sockets = self.registration_socket, self.pod_resources_socket
        for path in sockets:
            if (length := len(os.fsencode(path))) > SUN_PATH_LIMIT:
                text = f"the path of the socket has {length} bytes, at most {SUN_PATH_LIMIT} are allowed"
                raise SocketError(f"{path}: {text}; use a shorter directory")
            refuse_live(path)
        modes = {path.parent: 0o750 for path in (*sockets, *map(self.private, sockets))}
        for directory, mode in {**modes, self.plugins_registry: 0o755}.items():
            try:
                directory.mkdir(mode=mode, parents=True, exist_ok=True)
            except OSError as error:
                raise HostError(f"{directory}: cannot create the kubelet's directory: {error.strerror}") from error
        for path in map(self.private, sockets):
            path.unlink(missing_ok=True)


def refuse_live(path: Path) -> None:
    """Raise SocketError if another kubelet listens on this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except TimeoutError:
            pass  # the backlog is full, so a process is listening
        except OSError:
            return
    raise SocketError(f"{path}: another kubelet is running here; use another directory")


def sockets(directory: Path) -> list[Path]:
    """Return the sockets in a directory, sorted by name."""
    found = []
    for entry in sorted(directory.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(entry.stat().st_mode):  # like the kubelet, follows links
                found.append(entry)
    return found


def remove_sockets(directory: Path) -> None:
    """Remove all sockets in a directory, including those of running plugins."""
    for path in sockets(directory):
        path.unlink(missing_ok=True)


def publish(private: Path, public: Path) -> None:
    """Link the socket of a server that listens at `private` to `public`.

    A rename is not enough, because plugins may wait for the inotify event of a new file.
    """
    kept = private.replace(private.with_name(f"{private.name}.public"))
    public.unlink(missing_ok=True)
    public.hardlink_to(kept)
