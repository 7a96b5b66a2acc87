"""Which machine this is: its model, as its firmware says, and its boot, which a container sees as its host does."""

from pathlib import Path

from ..errors import HostError
from .plain_file import read_plain
from .root import HostRoot

_PRODUCT = "/sys/class/dmi/id/product_name"
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_MOST = 64  # bytes; it is a UUID


def machine_type(host: HostRoot) -> str:
    """The machine's model; empty where nothing tells. Blocks for a moment."""
    try:
        return host.read_text(_PRODUCT) or ""
    except HostError:
        return ""


def boot_id() -> str:
    """What Linux calls this boot; empty where nothing tells. Blocks for a moment."""
    try:
        return (read_plain(_BOOT, limit=_MOST) or b"").decode("ascii", "replace").strip()
    except HostError:
        return ""
