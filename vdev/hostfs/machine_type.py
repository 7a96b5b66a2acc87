"""What kind of machine the host is, as its firmware says."""

from ..errors import HostError
from .root import HostRoot

_FILE = "/sys/class/dmi/id/product_name"


def machine_type(host: HostRoot) -> str:
    """The machine's model; empty where nothing tells. Blocks for a moment."""
    try:
        return host.read_text(_FILE) or ""
    except HostError:
        return ""
