"""The kubelet's directories and sockets, as a plugin sees them on disk.

All functions block; call them through `to_thread`. gRPC removes a server's socket when the server stops, but a kubelet
that ends leaves its socket behind. So the servers listen on a private path, and the public one is a hard link to it:
it appears as a new file, and stays as it is to the end: with each other link that comes or goes it would have changed,
and a plugin that knows a kubelet by the times of its socket would see another one.
"""

import contextlib
import os
import socket
import stat
from dataclasses import dataclass
from pathlib import Path

from ...errors import HostError, SocketError
from ..lint import SUN_PATH_LIMIT

_DIRECTORY_MODE = 0o750


@dataclass(frozen=True, slots=True)
class KubeletPaths:
    """The kubelet's directories and sockets below its root."""

    root: Path

    @property
    def device_plugins(self) -> Path:
        """Where plugins put their sockets."""
        return self.root / "device-plugins"

    @property
    def registration_socket(self) -> Path:
        """Where plugins register."""
        return self.device_plugins / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """Where the PodResources API is served."""
        return self.root / "pod-resources" / "kubelet.sock"

    @property
    def plugins_registry(self) -> Path:
        """Where DRA drivers, and device plugins that like it, put the sockets on which the kubelet asks them."""
        return self.root / "plugins_registry"

    def private(self, public: Path) -> Path:
        """Where the server of a socket really listens; see the module's docstring."""
        return self.root / ".sim" / public.parent.name


def make_directories(*directories: Path, mode: int = _DIRECTORY_MODE) -> None:
    """Make the directories as the kubelet does. Raises HostError."""
    for directory in directories:
        try:
            directory.mkdir(mode=mode, parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(f"{directory}: cannot create the kubelet's directory: {error.strerror}") from error


def check_path(path: Path) -> None:
    """Raise SocketError if a socket's path is too long for the system."""
    if (length := len(os.fsencode(path))) > SUN_PATH_LIMIT:
        text = (
            f"the path of the socket has {length} bytes, at most {SUN_PATH_LIMIT} are allowed; use a shorter directory"
        )
        raise SocketError(f"{path}: {text}")


def refuse_live(path: Path) -> None:
    """Raise SocketError if something answers on this socket: another kubelet is running here."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(os.fspath(path))
        except TimeoutError:
            pass  # Only a running process has a full backlog.
        except OSError:
            return
    raise SocketError(f"{path}: another kubelet is running here; use another directory")


def sockets(directory: Path) -> list[Path]:
    """Every socket in the directory, by name."""
    found = []
    for entry in sorted(directory.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(entry.stat().st_mode):  # follows links, as the kubelet does
                found.append(entry)
    return found


def remove_sockets(directory: Path) -> None:
    """Unlink every socket in the directory, also of live plugins; files and directories stay."""
    for path in sockets(directory):
        path.unlink(missing_ok=True)


def publish(private: Path, public: Path) -> None:
    """Let a server that listens on `private` be found at `public`, and only there."""
    kept = private.with_name(f"{private.name}.public")
    for each in (public, kept):
        each.unlink(missing_ok=True)
    kept.hardlink_to(private)
    private.unlink()
    public.hardlink_to(kept)


def missing_host_paths(paths: list[str], host_root: Path) -> list[str]:
    """Those of the absolute host paths that do not exist below `host_root`."""
    return [path for path in paths if not os.path.lexists(host_root / path.lstrip("/"))]
