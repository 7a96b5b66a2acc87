"""Virtual devices: the key `virtual` of an entry, presets, and placeholder nodes.

A preset is a device model that `virtual` can name. A placeholder node is a file on the host,
`<directory>/vdev-<device id>`, that a container gets for a device. `agent.placeholders` creates and removes it:

    like        a harmless character device: /dev/null, /dev/zero or /dev/random under another name
    pty         a serial line; vdev holds its other end
    file        a plain file                    directory    a directory with plain files

A container gets the first as a device node and the others as bind mounts, because containerd 2.1 accepts only this.
"""

import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import permutations
from typing import Annotated, Any, Self

from pydantic import Field, WithJsonSchema, model_validator

from .device import DeviceNode, IdStyle, Mount, RawDevice
from .geometry import Geometry
from .scalars import (
    NO_DEFAULT,
    Amount,
    AsWritten,
    Constraint,
    Count,
    EnvName,
    Flag,
    Index,
    OneOrMany,
    PathTemplate,
    Permissions,
    Refusal,
    ResourceName,
    TemplateText,
    Text,
    Whole,
    Word,
    between,
    matching,
)
from .section import NO_VALUE, Resolved, Section
from .telemetry import PhysicsModel
from .template import Template, parse

FAST_LINK = 100  # one NVLink on NVIDIA's scale; devices on the same PCIe switch have 50

Links = Mapping[tuple[int, int], int]
"""Scores of pairs of device indices, in both directions, on NVIDIA's scale."""


def are_scores(rows: Sequence[Sequence[int]], count: int) -> bool:
    """Whether the rows are scores of pairs (`count` lists of `count` numbers) and not groups of indices.

    Groups in this form would be useless, because each group would contain all devices.
    """
    return len(rows) == count and all(len(row) == count for row in rows)


def _links(rows: Sequence[Sequence[int]], count: int, score: int) -> Links:
    """Return the links from scores of pairs, or from groups of indices in which each pair has `score`."""
    if not are_scores(rows, count):
        return {pair: score for group in rows for pair in permutations(group, 2)}
    pairs = {(one, other): rows[one][other] for one, other in permutations(range(count), 2)}
    return {pair: value for pair, value in pairs.items() if value}


class DriverNode(Section):
    """A device node of the real device."""

    path: PathTemplate
    """Path on the host; {index} is the device's number."""
    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""
    first_index: Index = 0
    """The value of {index} for the first device."""


_NVIDIA_DRIVER = {"driverVersion": "580.95.05", "cudaVersion": "13.0"}
"""Default attributes of presets with ids in NVIDIA's style, because one driver serves all of NVIDIA's devices.

580 is a data center branch with long-term support, and its driver reports CUDA 13.0 (NVIDIA's data center driver
release notes and CUDA's compatibility table).
"""


class Preset(Section):
    """A preset's file. A loaded preset includes the values of its bases.

    `count` is 0 for a device model, which supports any number of devices.
    """

    base: Word | None = None
    """Another preset, which provides the values that this one does not set."""
    description: Word = ""
    """A short description for `vdev presets`."""
    resource: ResourceName = ""
    """The resource of the vendor's device plugin."""
    id_style: IdStyle = IdStyle.NAME
    """The form of ids: `<name>-<index>`, or NVIDIA's UUIDs."""
    visible_devices_env: EnvName = ""
    """The variable from which the vendor's runtime reads the devices of a container."""
    count: Count = 0
    """Number of devices on a node."""
    memory: Amount = 0
    """Memory of each device, as a Kubernetes quantity such as 16Gi."""
    numa: tuple[Index, ...] = ()
    """NUMA nodes: one for all devices, or one per device."""
    attributes: dict[str, AsWritten] = {}
    """Attributes of each device for templates, in addition to those of the base."""
    links: list[list[Index]] = []
    """Groups of fully linked devices, or a score for every pair, as `count` lists of `count` numbers."""
    link_score: Annotated[Whole, between(1)] = FAST_LINK
    """The score of a link within a group; 100 for one NVLink."""
    device_nodes: tuple[DriverNode, ...] = ()
    """Device nodes of the real device."""
    partition_nodes: tuple[DriverNode, ...] | None = None
    """Device nodes of a partition. Default: the device's."""
    partitioning: Geometry | None = None
    """How a device can be partitioned."""
    physics: PhysicsModel = PhysicsModel()
    """Power, temperature and clocks of a device under load."""
    sources: dict[str, Text] = {}
    """Sources of the values, by key."""
    unverified: tuple[Text, ...] = ()
    """Keys with unconfirmed values."""
    name: Resolved[str] = ""

    def named(self, name: str) -> Self:
        """Return the preset with its name and the attributes of the vendor's driver."""
        driver = _NVIDIA_DRIVER if self.id_style is IdStyle.NVIDIA else {}
        return self.model_copy(update={"attributes": {**driver, **self.attributes}, "name": name})

    @property
    def nodes_of_partitions(self) -> tuple[DriverNode, ...]:
        return self.device_nodes if self.partition_nodes is None else self.partition_nodes


NO_PRESET = Preset()

# --- placeholder nodes: files on the host that a container gets for a virtual device ----------------------------------

NODE_DIRECTORY = "/var/run/vdev/devices"
"""The default directory of placeholder nodes on the host."""

NODE_PREFIX = "vdev-"


class Like(StrEnum):
    """The character device that a placeholder behaves like."""

    NULL = "null"
    ZERO = "zero"
    RANDOM = "random"


NODE_NUMBERS = {Like.NULL: (1, 3), Like.ZERO: (1, 5), Like.RANDOM: (1, 8)}
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
    """A character device that behaves like /dev/null, /dev/zero or /dev/random: null, zero or random."""
    pty: LineEnd | None = None
    """A serial line. The program at its other end: echo, silence, or a script that answers lines."""
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
        """Accept an unquoted null as the name of a device."""
        empty = {"like": Like.NULL.value, "directory": {}}
        if not isinstance(data, dict):
            return data
        return {key: empty.get(key, value) if value in (None, NO_VALUE) else value for key, value in data.items()}

    @property
    def inside(self) -> Template:
        return self.container_path or _BY_ID

    @property
    def is_writable(self) -> bool:
        """Whether pods can write into the file or directory."""
        return (self.file is not None or self.directory is not None) and not self.read_only


def node_path(directory: str, device: str) -> str:
    """Return the host path of a raw device's placeholder."""
    return posixpath.join(directory, NODE_PREFIX + device)


def with_placeholder(device: RawDevice, node: VirtualNode, values: Mapping[str, str], directory: str) -> RawDevice:
    """Return the device with its placeholder node or mount. `values` are for the template of its path."""
    inside, outside = node.inside.render(values), node_path(directory, device.id)
    if node.like is None:
        return replace(device, mounts=(*device.mounts, Mount(outside, inside, bool(node.read_only))))
    major, minor = NODE_NUMBERS[node.like]
    given = DeviceNode(outside, inside, node.permissions or "rw", "c", major, minor)
    return replace(device, nodes=(*device.nodes, given))


# --- the key `virtual` ------------------------------------------------------------------------------------------------

NumaNode = Annotated[Whole, between(0, 1023)]

DeviceId = Annotated[
    Text,
    matching(
        "(?=.{1,63}$)(?!.*::)[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?",
        "1 to 63 letters, digits, '.', '_', '-' and ':', with a letter or digit at both ends, and no '::'",
    ),
]


def _twice_problem(ids: tuple[str, ...]) -> Refusal:
    twice = next((each for each, count in Counter(ids).items() if count > 1), None)
    return "" if twice is None else (f"{twice!r} is listed twice", "give each device a different id")


class VirtualDevices(Section):
    """Virtual devices. These values take precedence over those of the preset."""

    preset: Annotated[Word, NO_DEFAULT] = ""
    """A real model, such as a100-sxm4-40gb, or a whole node of it, such as dgx-a100."""
    count: Annotated[Count, NO_DEFAULT] = 1
    """Number of devices. Default: from the node preset, else 1."""
    ids: Annotated[tuple[DeviceId, ...], Constraint(_twice_problem)] = ()
    """Ids of the devices, one for each, such as the ids of existing real devices. Default: derived from the entry's
    name and the index, or in the form of the vendor's driver."""
    memory: Annotated[Amount, NO_DEFAULT] = 0
    """Memory of each device, as a Kubernetes quantity such as 16Gi. Default: the preset's, else none."""
    numa: Annotated[tuple[NumaNode, ...], OneOrMany(), NO_DEFAULT] = ()
    """NUMA node: one number for all devices, or a list with one per device. Default: the preset's, else none."""
    attributes: dict[str, AsWritten] = {}
    """Attributes of each device, for templates such as {attributes.model}. Values are kept as written."""
    link_rows: Annotated[list[list[Index]], Field(alias="links"), NO_DEFAULT] = []
    """Fast links between devices. Either groups of indices, [[0, 1], [2, 3]]; or a score for every pair, as `count`
    lists of `count` numbers, symmetric and with a zero diagonal, where 100 is one NVLink. `count` lists of `count`
    numbers are always read as scores."""
    node: VirtualNode | None = None
    """A node or file that a container gets for each device. Default: none."""
    partitioning: Geometry | None = None
    """How a device can be partitioned, as in preset files. Default: the preset's, else not at all."""
    physics: Annotated[PhysicsModel, NO_DEFAULT] = PhysicsModel()
    """Power, temperature and clocks of a device under load, as in preset files. Default: the preset's."""
    model: Resolved[Preset] = NO_PRESET
    """The preset with the facts about the real device; empty if no preset is set."""

    def resolved(self, preset: Preset, *, count: int) -> Self:
        """Return `count` devices with the values of the preset for all keys that are not set."""
        update = {
            "count": count,
            "attributes": {**preset.attributes, **self.attributes},
            "partitioning": self.partitioning or preset.partitioning,
            "physics": self.physics.over(preset.physics),
            "model": preset,
        }
        if "memory" not in self.model_fields_set:
            update["memory"] = preset.memory
        if "numa" not in self.model_fields_set:
            update["numa"] = preset.numa[:count]
        return self.model_copy(update=update)

    @property
    def links(self) -> Links:
        """The scores of pairs of devices, from `links` or the preset."""
        if "link_rows" in self.model_fields_set:
            return _links(self.link_rows, self.count, FAST_LINK)
        known = _links(self.model.links, self.model.count, self.model.link_score)
        return {pair: score for pair, score in known.items() if max(pair) < self.count}

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of the devices and their partitions, for templates."""
        profiles = self.partitioning.profiles.values() if self.partitioning else ()
        return frozenset(self.attributes).union(*(profile.attributes for profile in profiles))
