"""Stand-ins: what a container is given where it needs a real node or file for a device that does not exist.

    like        a harmless character device: /dev/null, /dev/zero or /dev/random under another name
    pty         a serial line whose other end vdev holds
    file        a plain file                    directory    a directory with plain files

The first reaches a container as a device node, the others as bind mounts; what a runtime takes and refuses was seen on
containerd 2.1. On the host a stand-in is `<directory>/vdev-<device id>`; `agent.outputs.virtual` makes and removes it.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from .device import DeviceNode, Mount, RawDevice
from .template import Template

DIRECTORY = "/var/run/vdev/devices"
PREFIX = "vdev-"


class Like(StrEnum):
    """The character device that a stand-in behaves as."""

    NULL = "null"
    ZERO = "zero"
    RANDOM = "random"


NUMBERS = {Like.NULL: (1, 3), Like.ZERO: (1, 5), Like.RANDOM: (1, 8)}
"""Major and minor, of Documentation/admin-guide/devices.txt. /dev/random does not block since Linux 5.6."""


class LineEnd(StrEnum):
    """What is at the other end of a serial line."""

    ECHO = "echo"
    SILENCE = "silence"
    SCRIPT = "script"


@dataclass(frozen=True, slots=True, kw_only=True)
class LikeNode:
    """A device node."""

    container_path: Template
    like: Like
    permissions: str = "rw"


@dataclass(frozen=True, slots=True, kw_only=True)
class PtyLine:
    """A serial line. A script answers each line that it knows with its own, others with `otherwise`, if that is set."""

    container_path: Template
    end: LineEnd
    answers: tuple[tuple[str, Template], ...] = ()
    otherwise: Template | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainFile:
    """A file with some content."""

    container_path: Template
    content: Template
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainDirectory:
    """A directory with files: (name, content)."""

    container_path: Template
    files: tuple[tuple[str, Template], ...] = ()
    read_only: bool = False


StandIn = LikeNode | PtyLine | PlainFile | PlainDirectory


def host_path(directory: str, device: str) -> str:
    """Where the stand-in of a raw device is on the host."""
    return posixpath.join(directory, PREFIX + device)


def with_standin(device: RawDevice, standin: StandIn, values: Mapping[str, str], directory: str) -> RawDevice:
    """The device with what a container gets for its stand-in; `values` are what placeholders stand for."""
    inside, outside = standin.container_path.render(values), host_path(directory, device.id)
    match standin:
        case LikeNode():
            major, minor = NUMBERS[standin.like]
            node = DeviceNode(outside, inside, standin.permissions, "c", major, minor)
            return replace(device, nodes=(*device.nodes, node))
        case PtyLine():
            mount = Mount(outside, inside)
        case PlainFile() | PlainDirectory():
            mount = Mount(outside, inside, standin.read_only)
    return replace(device, mounts=(*device.mounts, mount))
