"""An item of `devices`: where they come from, what containers get, how their health is checked."""

from typing import Annotated

from ..model.dra import ClaimApi
from ..model.entry import Action, Condition, Container, GroupBy, Health, LabelKey, LabelValue, OnFailure
from ..model.names import ENTRY_NAME
from ..model.scalars import (
    PATH,
    STRING,
    EnvName,
    Flag,
    NodePattern,
    PathPattern,
    ResourceTemplate,
    Section,
    Text,
    choice,
    matching,
    not_empty,
    one_or_many,
)
from ..model.telemetry import EntryTelemetry
from .dra_block import Advertise, Dra
from .partitions_block import Partitions
from .sources import Glob, Sysfs, Usbs, Virtual

EntryName = Annotated[
    Text,
    matching(
        f"(?=.{{1,63}}$){ENTRY_NAME.pattern}",
        "1 to 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    ),
]
_SOURCES = ("virtual", "glob", "sysfs", "usb")


class Entry(Section):
    """A group of devices of one kind: exactly one of virtual, glob, sysfs and usb says where they come from."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": [source]} for source in _SOURCES]}}

    name: EntryName
    """Name of the entry, unique in the configuration. Device ids begin with it, so a new name makes new devices."""
    resource: ResourceTemplate
    """The extended resource that pods ask for, <domain>/<name>. With placeholders in its name, such as {index} or
    {attributes.X}, each device is of the resource that they make for it; there, any character but letters, digits, '-'
    and '_' becomes '_'."""
    on_nodes: Annotated[list[NodePattern], one_or_many(STRING)] = []
    """Patterns for names of nodes that have these devices. Default: every node."""
    advertise: Advertise = [ClaimApi.DEVICE_PLUGIN]
    """How pods can ask for these devices: as an extended resource of the device plugin, by claims of Dynamic Resource
    Allocation (dra), or both."""
    dra: Dra | None = None
    """How Dynamic Resource Allocation offers these devices, where advertise has dra."""
    virtual: Virtual | None = None
    """Virtual devices."""
    glob: Annotated[Glob, not_empty()] | None = None
    """Real devices by path: one pattern, or a list of patterns of which the i-th matches form one device."""
    sysfs: Sysfs | None = None
    """Real devices by their attributes in sysfs."""
    usb: Usbs | None = None
    """Real USB devices by identity; of a list, one of each form a device."""
    exclude: Annotated[list[PathPattern], one_or_many(PATH)] = []
    """For glob: patterns for paths to leave out."""
    group_by: Annotated[GroupBy, choice(GroupBy)] | None = None
    """For a list under glob or usb, which matches form a device: the i-th of each (position), for glob those in which *
    matched the same text (name), or everything that is found (all). Default: position."""
    allow_dangerous: Flag = False
    """Whether paths that give a container power over the whole host, such as /dev/mem, are allowed."""
    shared: Flag = False
    """Whether devices may belong to this entry although they belong to another one too. Default: a device belongs to
    the first entry in the file that finds it."""
    container: Container = Container()
    """What each container gets besides the device list."""
    health: Health | None = None
    """How a device's health is checked. Default: a device that exists is healthy."""
    partitions: Partitions = {}
    """How devices are partitioned: by index "0", range "1-2" or "all", a list of profiles or a layout's name; or as a
    label of the node says."""
    visible_devices_env: EnvName | None = None
    """Environment variable with the list of devices. Default: made from the resource's name."""
    labels: dict[LabelKey, LabelValue] = {}
    """Labels of the node, under node.labels; values may hold placeholders, and must come to the same for all devices.
    They win over those of the devices' maker."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the node that follow the health of these devices, under node.conditions."""
    telemetry: EntryTelemetry | None = None
    """How the devices are loaded, for metrics, `vdev top` and the tools in containers. Default: busy, once telemetry is
    given anywhere in the file; real devices measure nothing without it."""
    smi: Flag | None = None
    """Whether containers get the tool of the devices' maker, nvidia-smi or amd-smi. Default: true for presets of NVIDIA
    and AMD, once telemetry is given anywhere in the file."""
    exclude_topology: Flag = False
    """Whether NUMA nodes are hidden from the kubelet."""
    on_allocate: tuple[Action, ...] = ()
    """What is done once when a pod was given a device, before its first container with it starts; a failure is reported
    and stops nothing."""
    on_release: tuple[Action, ...] = ()
    """What is done once after a pod released a device, before a container of the next pod starts."""
    if_release_fails: Annotated[OnFailure, choice(OnFailure)] | None = None
    """What happens when an onRelease fails: the device is Unhealthy until it succeeds, and it is tried again (block),
    or the failure is reported and stops nothing (continue). Default: block."""
    pre_start: tuple[Action, ...] = ()
    """What is done before a container with such a device starts, within 25 seconds; if it fails, the container does not
    start."""
