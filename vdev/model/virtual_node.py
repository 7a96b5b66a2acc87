"""Placeholder nodes: files on the host that a container gets for a virtual device.

    like        a harmless character device: /dev/null, /dev/zero or /dev/random under another name
    pty         a serial line whose other end vdev holds
    file        a plain file                    directory    a directory with plain files

A container gets the first as a device node and the others as bind mounts, which is what containerd 2.1 accepts. On the
host a placeholder is `<directory>/vdev-<device id>`; `agent.virtual_nodes` makes and removes it.
"""

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import WithJsonSchema, model_validator

from .device import DeviceNode, Mount, RawDevice
from .scalars import Flag, PathTemplate, Permissions, TemplateText, Text, matching
from .section import NO_VALUE, Section
from .template import Template, parse

DIRECTORY = "/var/run/vdev/devices"
PREFIX = "vdev-"


class Like(StrEnum):
    """The character device that a placeholder behaves as."""

    NULL = "null"
    ZERO = "zero"
    RANDOM = "random"


NUMBERS = {Like.NULL: (1, 3), Like.ZERO: (1, 5), Like.RANDOM: (1, 8)}
"""Major and minor numbers, from Linux's admin-guide/devices.txt. /dev/random does not block since Linux 5.6."""


class LineEnd(StrEnum):
    """The program at the other end of a serial line."""

    ECHO = "echo"
    SILENCE = "silence"
    SCRIPT = "script"


_BY_ID = parse("/dev/{id}")
_LIKE_JSON = WithJsonSchema({"enum": [*Like, None]})

FileName = Annotated[Text, matching(r"(?!\.\.?$)[^/]{1,255}", "a file's name, without '/'")]


class VirtualNode(Section):
    """A node or file that represents the device: exactly one of like, pty, file and directory."""

    like: Annotated[Like | None, _LIKE_JSON] = None
    """A character device that behaves as /dev/null, /dev/zero or /dev/random: null, zero or random."""
    pty: LineEnd | None = None
    """A serial line; at its other end is echo, silence, or a script that answers lines."""
    answers: dict[Text, TemplateText] = {}
    """For pty script: the answer to each line; answers may hold placeholders."""
    otherwise: TemplateText | None = None
    """For pty script: the answer to any other line. Default: none."""
    file: TemplateText | None = None
    """A plain file with this content, which may hold placeholders."""
    directory: dict[FileName, TemplateText] | None = None
    """A directory with these files: their names, and their content, which may hold placeholders."""
    container_path: PathTemplate | None = None
    """Path in the container; may hold placeholders. Default: /dev/{id}."""
    permissions: Permissions | None = None
    """For like: one or more of r (read), w (write) and m (mknod). Default: rw."""
    read_only: Flag | None = None
    """For file and directory: whether the container may only read it. Default: false."""

    @model_validator(mode="before")
    @classmethod
    def _name_null(cls, data: Any) -> Any:
        """Accept an unquoted null, which is the name of a device here and no value elsewhere."""
        empty = {"like": Like.NULL.value, "directory": {}}
        if not isinstance(data, dict):
            return data
        return {key: empty.get(key, value) if value in (None, NO_VALUE) else value for key, value in data.items()}

    @property
    def inside(self) -> Template:
        """Its path in the container."""
        return self.container_path or _BY_ID

    @model_validator(mode="after")
    def _fill(self) -> Self:
        self.filled(container_path=self.inside)
        return self.filled(permissions="rw") if self.like else self if self.pty else self.filled(read_only=False)

    @property
    def is_writable(self) -> bool:
        """Whether pods can write into the file or directory."""
        return (self.file is not None or self.directory is not None) and not self.read_only


def host_path(directory: str, device: str) -> str:
    """Return the path of a raw device's placeholder on the host."""
    return posixpath.join(directory, PREFIX + device)


def with_placeholder(device: RawDevice, node: VirtualNode, values: Mapping[str, str], directory: str) -> RawDevice:
    """Return the device with its placeholder node or mount; `values` are for the template of its path."""
    inside, outside = node.inside.render(values), host_path(directory, device.id)
    if node.like is None:
        return replace(device, mounts=(*device.mounts, Mount(outside, inside, bool(node.read_only))))
    major, minor = NUMBERS[node.like]
    given = DeviceNode(outside, inside, node.permissions or "rw", "c", major, minor)
    return replace(device, nodes=(*device.nodes, given))
