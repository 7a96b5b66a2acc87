"""The nodes of MIG instances, `/dev/nvidia-caps/nvidia-cap<N>`: a container opens them beside the node of the GPU.

Facts: NVIDIA/k8s-device-plugin v0.20.0, `internal/mig/mig-dp.go`; the driver has a line of each access right in
`/proc/driver/nvidia-caps/mig-minors`, such as `gpu0/gi1/access 12` and `gpu0/gi1/ci0/access 13`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from ..core.model.device import DeviceNode
from ..errors import HostError
from ..hostfs import HostRoot

DIRECTORY = "/dev/nvidia-caps"
_MINORS = "/proc/driver/nvidia-caps/mig-minors"
_ACCESS = re.compile(r"gpu(\d+)/gi(\d+)(?:/ci0)?/access (\d+)")
_LIMIT = 2**20  # 135 lines for each GPU


def of_instances(host: HostRoot) -> Mapping[int, Mapping[int, tuple[DeviceNode, ...]]]:
    """By GPU and GPU instance, the nodes of that instance and of its first compute instance that the host has."""
    found: dict[int, dict[int, tuple[DeviceNode, ...]]] = {}
    for line in _minors(host).splitlines():
        if access := _ACCESS.fullmatch(line.strip()):
            gpu, instance, minor = map(int, access.groups())
            path = f"{DIRECTORY}/nvidia-cap{minor}"
            if host.exists(path):
                nodes = found.setdefault(gpu, {}).get(instance, ())
                found[gpu][instance] = (*nodes, DeviceNode(path, path))
    return found


def _minors(host: HostRoot) -> str:
    """The driver's table; where the host's /proc is not mounted here, this process sees the same in its own."""
    try:
        text = host.read_text(_MINORS, limit=_LIMIT)
        return Path(_MINORS).read_text(errors="replace") if text is None else text
    except (OSError, HostError):
        return ""
