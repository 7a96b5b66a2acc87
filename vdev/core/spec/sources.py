"""Where devices come from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from ..model.device import EMPTY, IdStyle
from ..model.virtual_node import StandIn
from .container import NodeTemplate


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSource:
    """Devices that exist only in the file (or as a preset's data).

    `numa` holds one value per device, or one for all, or none. `links` maps pairs of indices to a score (NVIDIA's
    scale: 100 per NVLink), symmetric. `driver_nodes` are templates of the nodes that the real device has, `node` is
    what a container gets in its stead. `maker_resource` is the resource under which the maker's own plugin advertises
    devices of the preset. `ids` has one for each device, or none where they are made up.
    """

    count: int
    ids: tuple[str, ...] = ()
    memory: int = 0
    numa: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    id_style: IdStyle = IdStyle.NAME
    preset: str = ""
    maker_resource: str = ""
    driver_nodes: tuple[NodeTemplate, ...] = ()
    partition_nodes: tuple[NodeTemplate, ...] = ()
    node: StandIn | None = None

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of its devices, for templates."""
        return frozenset(self.attributes)


class PathType(StrEnum):
    """How a matched path reaches the container: as a device node, or as a bind mount."""

    DEVICE = "device"
    MOUNT = "mount"


class NodeKind(StrEnum):
    """What a host path is."""

    CHAR = "char"
    BLOCK = "block"
    FILE = "file"
    DIRECTORY = "directory"
    SOCKET = "socket"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobPath:
    """One pattern of a group.

    `container_path` "" keeps the host's path; ending in "/" it is a directory that the node goes into; else a new
    name, a template. `kinds` empty means the type's default (char and block for devices, anything for mounts). `limit`
    lets one match serve that many devices of the group.
    """

    path: str
    container_path: str = ""
    permissions: str = "rw"
    type: PathType = PathType.DEVICE
    read_only: bool = False
    optional: bool = False
    limit: int = 1
    kinds: tuple[NodeKind, ...] = ()


class GroupBy(StrEnum):
    """Which matches form a device: the i-th of each, those in which `*` captured the same text, or all of them."""

    POSITION = "position"
    NAME = "name"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobSource:
    """Devices found by path patterns below the host root; several patterns together form one device."""

    paths: tuple[GlobPath, ...]
    exclude: tuple[str, ...] = ()
    group_by: GroupBy = GroupBy.POSITION
    allow_dangerous: bool = False

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of its devices, for templates."""
        return frozenset({"base", "target", "match", "below"})


class Operator(StrEnum):
    """How an attribute is compared."""

    GLOB = "glob"
    IN = "in"
    NOT_IN = "notIn"
    EXISTS = "exists"
    GT = "gt"
    GE = "ge"
    LT = "lt"
    LE = "le"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition on a sysfs attribute; the path may climb to parents with `../`.

    `values` holds the pattern (GLOB), the allowed values (IN), "true"/"false" (EXISTS) or the number (comparisons).
    """

    attribute: str
    operator: Operator
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SysfsSource:
    """Devices found in sysfs: all of a class or bus that meet every condition.

    `children` names subsystems (`drm`, `hidraw`, `tty`, `input`, `video4linux`, `net`, `vfio`) whose device nodes
    below the match are handed out with it. `container_path` and `permissions` are as in a glob.
    """

    kind: str  # "class" or "bus"
    subsystem: str
    match: tuple[Condition, ...] = ()
    children: tuple[str, ...] = ()
    container_path: str = ""
    permissions: str = "rw"
    allow_dangerous: bool = False

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of its devices, for templates; a child's is the name of its nodes or interfaces."""
        return frozenset({"name", "driver", *(each.attribute for each in self.match), *self.children})


@dataclass(frozen=True, slots=True, kw_only=True)
class UsbSource:
    """USB devices by identity. Ids are four lower-case hexadecimal digits; `serial` and `port` are globs; "" matches
    all. `optional` is for a member of a `UsbGroup`.
    """

    vendor: str = ""
    product: str = ""
    serial: str = ""
    port: str = ""
    device_class: str = ""
    children: tuple[str, ...] = ()
    container_path: str = ""
    permissions: str = "rw"
    optional: bool = False

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes of its devices, for templates; a child's is the name of its nodes or interfaces."""
        own = {"vendor", "product", "serial", "port", "manufacturerName", "productName"}
        return frozenset({*own, *self.children})


@dataclass(frozen=True, slots=True, kw_only=True)
class UsbGroup:
    """Devices that are several USB devices each: one of each stick, or with ALL whatever matches one of them."""

    sticks: tuple[UsbSource, ...]
    group_by: GroupBy = GroupBy.POSITION

    @property
    def attribute_names(self) -> frozenset[str]:
        """The attributes that its devices may have, for templates: those of the stick that comes first."""
        return frozenset[str]().union(*(each.attribute_names for each in self.sticks))


Source = VirtualSource | GlobSource | SysfsSource | UsbSource | UsbGroup
