"""An item of `devices`: where they come from, what containers get, how their health is checked."""

from typing import Annotated

from ..model.dra import Advertise, ClaimApi, Dra
from ..model.entry import Action, Condition, Container, Health, LabelKey, LabelValue, OnFailure
from ..model.names import ENTRY_NAME
from ..model.scalars import (
    INTEGER,
    PATH,
    STRING,
    AsWritten,
    Constraint,
    Count,
    EnvName,
    Flag,
    Index,
    Memory,
    NodePattern,
    PathPattern,
    ResourceTemplate,
    Section,
    Text,
    Whole,
    Word,
    between,
    choice,
    matching,
    not_empty,
    one_or_many,
    refuse,
)
from ..model.sources import Glob, GroupBy, Sysfs, Usbs
from ..model.telemetry import EntryTelemetry, PhysicsModel
from ..model.virtual_node import VirtualNode
from .partitions_block import PartitioningModel, Partitions

NumaNode = Annotated[Whole, between(0, 1023)]


DeviceId = Annotated[
    Text,
    matching(
        "(?=.{1,63}$)(?!.*::)[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?",
        "1 to 63 letters, digits, '.', '_', '-' and ':', with a letter or digit at both ends, and no '::'",
    ),
]


def _each_once(ids: list[str]) -> None:
    seen: set[str] = set()
    for each in ids:
        if each in seen:
            refuse(f"{each!r} is listed twice", "give each device an id of its own")
        seen.add(each)


class Virtual(Section):
    """Virtual devices. These values take precedence over those of the preset."""

    preset: Word | None = None
    """A real model, such as a100-sxm4-40gb, or a whole node of it, such as dgx-a100."""
    count: Count | None = None
    """Number of devices. Default: that of the node preset, else 1."""
    ids: Annotated[list[DeviceId], Constraint(_each_once)] = []
    """Ids of the devices, one for each, such as those of real devices elsewhere. Default: made from the entry's name
    and the index, or in the form of the maker's driver."""
    memory: Memory | None = None
    """Memory of each device, as a Kubernetes quantity such as 16Gi. Default: the preset's, else none."""
    numa: Annotated[list[NumaNode], one_or_many(INTEGER)] | None = None
    """NUMA node: one number for all devices, or a list with one per device. Default: the preset's, else none."""
    attributes: dict[str, AsWritten] = {}
    """Facts about each device, for templates such as {attributes.model}. Values are kept as written."""
    links: list[list[Index]] | None = None
    """Fast links between devices. Either groups of indices, [[0, 1], [2, 3]]; or a score for every pair, as `count`
    lists of `count` numbers, symmetric and with a zero diagonal, where 100 is one NVLink. `count` lists of `count`
    numbers are always read as scores."""
    node: VirtualNode | None = None
    """A node or file that a container gets for each device. Default: none."""
    partitioning: PartitioningModel | None = None
    """How a device can be partitioned, in the form of presets. Default: as in the preset, else not at all."""
    physics: PhysicsModel | None = None
    """Power, temperature and clocks of a device under load, in the form of presets. Default: as in the preset."""


EntryName = Annotated[
    Text,
    matching(
        f"(?=.{{1,63}}$){ENTRY_NAME.pattern}",
        "1 to 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    ),
]
_SOURCES = ("virtual", "glob", "sysfs", "usb")


class Entry(Section):
    """A group of devices of one kind. Exactly one of virtual, glob, sysfs and usb is their source."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": [source]} for source in _SOURCES]}}

    name: EntryName
    """Name of the entry, unique in the configuration. Device ids begin with it, so a new name makes new devices."""
    resource: ResourceTemplate
    """The extended resource that pods ask for, <domain>/<name>. If the name has placeholders, such as {index} or
    {attributes.X}, each device gets the resource with its own values; in these, any character except letters, digits,
    '-' and '_' becomes '_'."""
    on_nodes: Annotated[list[NodePattern], one_or_many(STRING)] = []
    """Patterns for the names of the nodes that have these devices. Default: every node."""
    advertise: Advertise = [ClaimApi.DEVICE_PLUGIN]
    """How pods can ask for these devices: as an extended resource of the device plugin, by claims of Dynamic Resource
    Allocation (dra), or both."""
    dra: Dra | None = None
    """How Dynamic Resource Allocation offers these devices, if advertise includes dra."""
    virtual: Virtual | None = None
    """Virtual devices."""
    glob: Annotated[Glob, not_empty()] | None = None
    """Real devices by path: one pattern, or a list of patterns whose i-th matches together form one device."""
    sysfs: Sysfs | None = None
    """Real devices by their attributes in sysfs."""
    usb: Usbs | None = None
    """Real USB devices by identity. With a list, one match of each item together form a device."""
    exclude: Annotated[list[PathPattern], one_or_many(PATH)] = []
    """For glob: patterns for paths to leave out."""
    group_by: Annotated[GroupBy, choice(GroupBy)] | None = None
    """For a list under glob or usb: which matches form a device. position: the i-th match of each item; name, for glob:
    those whose wildcards matched the same text; all: everything that is found. Default: position."""
    allow_dangerous: Flag = False
    """Whether paths that give a container power over the whole host, such as /dev/mem, are allowed."""
    shared: Flag = False
    """Whether this entry may have devices that another entry has too. Default: a device belongs to the first entry in
    the file that finds it."""
    container: Container = Container()
    """What each container gets besides the device list."""
    health: Health | None = None
    """How a device's health is checked. Default: a device that exists is healthy."""
    partitions: Partitions = {}
    """How devices are partitioned: for an index "0", a range "1-2" or "all", a list of profiles or the name of a
    layout. Or a label of the node selects the layout."""
    visible_devices_env: EnvName | None = None
    """Environment variable with the list of devices. Default: made from the resource's name."""
    labels: dict[LabelKey, LabelValue] = {}
    """Labels of the node, if node.labels is on. Values may have placeholders, but must be the same for all devices.
    They take precedence over labels of the devices' maker."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the node that follow the health of these devices, if node.conditions is on."""
    telemetry: EntryTelemetry | None = None
    """The load of the devices, for metrics, `vdev top` and the tools in containers. Default: busy, if telemetry is
    anywhere in the file; real devices have sensors only if this key is given."""
    smi: Flag | None = None
    """Whether containers get the tool of the devices' maker, nvidia-smi or amd-smi. Default: true for presets of NVIDIA
    and AMD, if telemetry is anywhere in the file."""
    exclude_topology: Flag = False
    """Whether NUMA nodes are hidden from the kubelet."""
    on_allocate: tuple[Action, ...] = ()
    """Actions that run once when a pod gets a device, before its first container with the device starts. A failure is
    only reported."""
    on_release: tuple[Action, ...] = ()
    """Actions that run once after a pod released a device, before a container of the next pod starts."""
    if_release_fails: Annotated[OnFailure, choice(OnFailure)] | None = None
    """What happens if an onRelease action fails. block: the device is Unhealthy until a retry succeeds; continue: the
    failure is only reported. Default: block."""
    pre_start: tuple[Action, ...] = ()
    """Actions that run before a container with such a device starts, within 25 seconds. If one fails, the container
    does not start."""
