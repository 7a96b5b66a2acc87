"""Files of unix sockets: how long their paths may be, whether anybody listens at one, and which are left over."""

import os
import re
import socket
import stat
from pathlib import Path

from ..errors import SocketError
from ..hostfs.look import listed

MAX_SOCKET_PATH = 107  # bytes: sockaddr_un.sun_path less its terminator


def check_socket_path(path: Path) -> None:
    """Raise SocketError for a path that is too long for a socket; gRPC itself would hide the reason."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise SocketError(
            f"a socket path in {path.parent} would have {length} bytes; the system allows {MAX_SOCKET_PATH}: "
            "use a shorter --kubelet-dir"
        )


def is_dead(path: Path) -> bool:
    """Whether it is a socket on which nobody listens any more. Blocks briefly."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def remove_dead(directory: Path, names: str) -> list[Path]:
    """Remove the sockets of these names (a regular expression) at which nobody listens; which those were. Blocks."""
    removed = []
    for path in listed(directory):
        if re.fullmatch(names, path.name) and is_dead(path):
            try:
                path.unlink()
            except OSError:
                continue
            removed.append(path)
    return removed
