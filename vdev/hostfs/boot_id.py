"""Which boot of the machine this is; a container sees the same as its host."""

from pathlib import Path

from ..errors import HostError
from .plain_file import read_plain

_FILE = Path("/proc/sys/kernel/random/boot_id")
_MOST = 64  # bytes; it is a UUID


def boot_id() -> str:
    """What Linux calls this boot; empty where nothing tells. Blocks for a moment."""
    try:
        return (read_plain(_FILE, limit=_MOST) or b"").decode("ascii", "replace").strip()
    except HostError:
        return ""
