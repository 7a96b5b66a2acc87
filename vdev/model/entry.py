"""An item of `devices`: the source of the devices, how they are advertised, and what containers get."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field

from . import names
from .device import IdStyle, RawDevice, facts
from .dra import ClaimApi, Dra
from .geometry import PIN, Geometry, PartitionChoice, Partitions
from .scalars import (
    NO_DEFAULT,
    AnnotationKey,
    ConditionType,
    Constraint,
    Count,
    Duration,
    EnvName,
    Flag,
    LabelKey,
    NodePattern,
    OneOrMany,
    PathPattern,
    PathTemplate,
    Permissions,
    ResourceTemplate,
    TemplateText,
    Text,
    Word,
    longer_than_nothing,
    matching,
    not_empty,
)
from .section import Placed, Resolved, Section
from .sources import Glob, GroupBy, Sysfs, Usb, Usbs
from .telemetry import EntryTelemetry, SmiTool
from .template import Template, parse
from .virtual import VirtualDevices


class MigStrategy(StrEnum):
    """How partitions are advertised: not at all, as the resource of their device, or by profile."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceListStrategy(StrEnum):
    """How the container runtime gets the list of allocated devices. The names are NVIDIA's."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"


CDI_STRATEGIES = frozenset({DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI})
"""The strategies that need a CDI specification file."""


class DeviceIdStrategy(StrEnum):
    """How a device is named inside the container: by its id (uuid) or by its index."""

    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """How replicas and partitions are chosen: spread over the physical devices, or packed onto few devices."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class ContainerPath(Section):
    """A host path that the container gets."""

    host_path: PathTemplate
    """Path on the host; may hold placeholders."""
    container_path: PathTemplate | None = None
    """Path in the container; may hold placeholders. Default: hostPath."""

    @property
    def inside(self) -> Template:
        return self.container_path or self.host_path


class ContainerNode(ContainerPath):
    """A device node for the container."""

    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""


class ContainerMount(ContainerPath):
    """A bind mount for the container."""

    read_only: Flag = False
    """Whether the container may only read it."""


class Container(Section):
    """What each container with a device of the entry gets, in addition to the device list."""

    env: dict[EnvName, TemplateText] = {}
    """Environment variables. Values may have placeholders. The values of several devices are joined with commas."""
    device_nodes: tuple[ContainerNode, ...] = ()
    """Additional device nodes."""
    mounts: tuple[ContainerMount, ...] = ()
    """Additional bind mounts."""
    annotations: dict[AnnotationKey, TemplateText] = {}
    """Annotations for the container runtime. Values may have placeholders."""


class Probe(StrEnum):
    """How the health of a device is checked."""

    EXISTS = "exists"
    OPEN = "open"
    FILE = "file"
    COMMAND = "command"


class HealthCheck(Section):
    """A probe of each device, which runs periodically and decides the health."""

    probe: Probe
    """When a device is healthy. exists: its paths exist; open: its nodes can be opened; file: a file has the content;
    command: the command exits with 0."""
    interval: Annotated[Duration, longer_than_nothing(86400, "24h")] = 5.0
    """Time between two probes, such as 5s."""
    timeout: Annotated[Duration, longer_than_nothing(86400, "24h")] = 2.0
    """Time after which a probe counts as failed."""
    path: PathTemplate | None = None
    """For probe file: the path of the file; may hold placeholders."""
    content: Text = ""
    """For probe file: the required content, without surrounding spaces. Default: the file only has to exist."""
    command: tuple[TemplateText, ...] = ()
    """For probe command: the program and its arguments; may hold placeholders."""
    unhealthy_threshold: Count = 1
    """Number of consecutive failed probes after which the device is unhealthy."""
    healthy_threshold: Count = 1
    """Number of consecutive successful probes after which the device is healthy again."""
    start_grace: Duration = 0.0
    """Time after a device appears during which failed probes are ignored."""


def _host_file_problem(parsed: Template) -> str:
    value = parsed.source
    if not value.startswith(("/", "{path}")):
        return f"{value!r} is not an absolute path; it must start with '/' or {{path}}"
    return f"{value!r} contains '..'; write the path without it" if ".." in value.split("/") else ""


HostFile = Annotated[TemplateText, Constraint(_host_file_problem, pattern=r"^(/|\{path\})")]
"""A path on the host, or the device's path as `{path}`."""


class Action(Section):
    """An action on a device: exactly one of command, truncate and chmod."""

    command: tuple[TemplateText, ...] = ()
    """A program and its arguments, run without a shell; may hold placeholders."""
    truncate: HostFile | None = None
    """A plain file of the host to empty; may hold placeholders."""
    chmod: HostFile | None = None
    """A plain file or device node on the host whose mode is changed; may hold placeholders."""
    mode: Annotated[Text, matching("0?[0-7]{3}", 'three octal digits in quotes, such as "0660"')] | None = None
    """For chmod: the mode, in octal. Default: "0660"."""
    timeout: Annotated[Duration, longer_than_nothing(3600, "1h")] | None = None
    """For command: the time after which it is killed, such as 10s. Default: 10s."""


RENEW = Action()
"""Recreates the placeholder node of a virtual device. The file cannot have this action."""


class OnFailure(StrEnum):
    """What happens if a release fails: the device is Unhealthy until a retry succeeds, or free for the next pod."""

    BLOCK = "block"
    CONTINUE = "continue"


PRE_START_LIMIT = 25.0
"""Seconds for all actions before a container starts. The kubelet's limit is 30 s."""


class TrueWhen(StrEnum):
    """When a condition is True: while all devices of its entry are healthy, or while one is unhealthy."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


def _label_problem(value: Template) -> str:
    return names.value_problem(value.render(dict.fromkeys(value.names, "x")))


LabelValue = Annotated[TemplateText, Constraint(_label_problem)]
"""The value of a label. It may have placeholders."""


class Condition(Section):
    """A condition of the Node that follows the health of the entry's devices."""

    type: ConditionType
    """Type of the condition, such as GpuHealthy."""
    true_when: TrueWhen = TrueWhen.HEALTHY
    """When the condition is True: while all devices are healthy, or while one is unhealthy."""
    reason: Annotated[Word, Constraint(names.condition_reason_problem)] | None = None
    """Reason while a device is unhealthy, one word such as GpuLost. Default: made from the device's reason."""
    message: Text | None = None
    """Message while a device is unhealthy. Default: the devices and their reasons."""


_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")  # in a resource name; smarter-device-manager has the same rule
_TOOLS = {"nvidia.com/gpu": SmiTool.NVIDIA, "amd.com/gpu": SmiTool.AMD}
"""Vendor tools by the resource of the vendor's device plugin."""
_WITHOUT_NODE: dict[str, object] = {"labels": {}, "conditions": (), "dra": None, "telemetry": None}


EntryName = Annotated[
    Text,
    matching(
        f"(?=.{{1,63}}$){names.ENTRY_NAME.pattern}",
        "1 to 63 lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
    ),
]
SOURCES = ("virtual", "glob", "sysfs", "usb")


class Entry(Placed):
    """A group of devices of one kind. Exactly one of virtual, glob, sysfs and usb is their source."""

    model_config = {"json_schema_extra": {"oneOf": [{"required": [source]} for source in SOURCES]}}

    name: EntryName
    """Name of the entry, unique in the configuration. Device ids begin with it, so renaming an entry changes them."""
    resource: ResourceTemplate
    """The extended resource that pods request, <domain>/<name>. If the name has placeholders, such as {index} or
    {attributes.X}, each device has the resource with its own values. In values, any character except letters, digits,
    '-' and '_' becomes '_'."""
    on_nodes: Annotated[tuple[NodePattern, ...], OneOrMany()] = ()
    """Patterns for the names of the nodes that have these devices. Default: every node."""
    advertise: Annotated[list[ClaimApi], not_empty(), OneOrMany()] = [ClaimApi.DEVICE_PLUGIN]
    """How pods can request these devices: as an extended resource of the device plugin, with claims of Dynamic Resource
    Allocation (dra), or both."""
    dra: Dra | None = None
    """How Dynamic Resource Allocation offers these devices, if advertise includes dra."""
    virtual: VirtualDevices | None = None
    """Virtual devices: how many, and of which model."""
    glob: Annotated[Glob, not_empty(), NO_DEFAULT] = ()
    """Real devices by path: one pattern, or a list of patterns. With a list, the i-th matches form one device."""
    sysfs: Sysfs | None = None
    """Real devices by their attributes in sysfs."""
    usb: Annotated[Usbs, NO_DEFAULT] = ()
    """Real USB devices by identity. With a list, one match of each item forms a device."""
    exclude: Annotated[tuple[PathPattern, ...], OneOrMany()] = ()
    """For glob: patterns for paths to leave out."""
    group_by: GroupBy = GroupBy.POSITION
    """For a list under glob or usb: which matches form a device. position: the i-th match of each item; name, for glob:
    matches whose wildcards match the same text; all: all matches."""
    allow_dangerous: Flag = False
    """Whether paths that give a container control over the whole host, such as /dev/mem, are allowed."""
    shared: Flag = False
    """Whether this entry may have devices that another entry also has. Default: a device belongs to the first entry in
    the file that finds it."""
    container: Container = Container()
    """What each container gets in addition to the device list."""
    health: HealthCheck | None = None
    """How a device's health is checked. Default: a device that exists is healthy."""
    wanted_partitions: Annotated[Partitions, Field(alias="partitions")] = {}
    """How devices are partitioned: for an index "0", a range "1-2" or "all", a list of profiles or the name of a
    layout. With fromLabel, a label of the node selects the layout."""
    visible_devices_env: Annotated[EnvName, NO_DEFAULT] = ""
    """Environment variable with the list of devices. Default: derived from the resource's name."""
    labels: dict[LabelKey, LabelValue] = {}
    """Labels of the node, if node.labels is on. Values may have placeholders, but must be the same for all devices.
    They take precedence over the vendor's labels."""
    conditions: tuple[Condition, ...] = ()
    """Conditions of the node that follow the health of these devices, if node.conditions is on."""
    telemetry: EntryTelemetry | None = None
    """The load of the devices, for metrics, `vdev top` and the tools in containers. Default: busy, if the file has
    `telemetry` anywhere. Real devices have sensors only if this key is set."""
    smi: Flag | None = None
    """Whether containers get the vendor's tool, nvidia-smi or amd-smi. Default: true for presets of NVIDIA and AMD, if
    the file has `telemetry` anywhere."""
    exclude_topology: Flag = False
    """Whether NUMA nodes are hidden from the kubelet."""
    on_allocate: tuple[Action, ...] = ()
    """Actions that run once when a pod gets a device, before its first container with the device starts. A failure is
    only reported."""
    on_release: tuple[Action, ...] = ()
    """Actions that run once after a pod has released a device, before a container of the next pod starts."""
    if_release_fails: OnFailure = OnFailure.BLOCK
    """What happens if an onRelease action fails. block: the device is Unhealthy until a retry succeeds; continue: the
    failure is only reported."""
    pre_start: tuple[Action, ...] = ()
    """Actions that run before a container with a device of the entry starts, within 25 seconds. If one fails, the
    container does not start."""
    partitions: Resolved[Mapping[int, tuple[str, ...]]] = {}
    """Profiles of partitioned devices, by index. With a choice, the profiles for a node without the label."""

    @property
    def choice(self) -> PartitionChoice | None:
        """The node label that selects the layout, or None."""
        return self.wanted_partitions if isinstance(self.wanted_partitions, PartitionChoice) else None

    @property
    def by_attributes(self) -> tuple[Sysfs | Usb, ...]:
        """The sources that find devices by their attributes in sysfs."""
        return self.usb if self.sysfs is None else (self.sysfs,)

    @property
    def attribute_names(self) -> frozenset[str]:
        """The possible attributes of the devices, for templates."""
        if self.virtual is not None:
            return self.virtual.attribute_names
        if self.glob:
            return frozenset({"base", "target", "match", "below"})
        return frozenset[str]().union(*(each.attribute_names for each in self.by_attributes))

    @property
    def geometry(self) -> Geometry | None:
        return self.virtual.partitioning if self.virtual else None

    @property
    def listed(self) -> bool:
        """Whether the device plugin advertises the devices."""
        return ClaimApi.DEVICE_PLUGIN in self.advertise

    @property
    def smi_tool(self) -> SmiTool | None:
        """The vendor tool that containers get, or None."""
        return self.vendor if self.smi else None

    @property
    def vendor(self) -> SmiTool | None:
        """The vendor of the preset, if it has such a tool."""
        return _TOOLS.get(self.virtual.model.resource) if self.virtual else None

    @property
    def acts_on_handovers(self) -> bool:
        """Whether vdev runs actions or renews a placeholder when a device passes from one pod to the next."""
        return bool(self.on_allocate or self.on_release or self.is_writable)

    @property
    def is_writable(self) -> bool:
        """Whether pods can write into the placeholder file or directory of a device."""
        node = self.virtual.node if self.virtual else None
        return node is not None and node.is_writable

    @property
    def is_nvidia(self) -> bool:
        """Whether the preset is NVIDIA's, so that responses have the exact form of NVIDIA's plugin."""
        return self.virtual is not None and self.virtual.model.id_style is IdStyle.NVIDIA

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The names that `resources.gpus` patterns match: the NVIDIA model in NVML and in the product label."""
        known = self.virtual.attributes if self.virtual and self.is_nvidia else {}
        return tuple(known[key] for key in ("model", "product") if key in known)

    @property
    def is_templated(self) -> bool:
        """Whether the resource's name has placeholders, so that devices may have different resources."""
        return "{" in self.resource

    def resource_of(self, raw: RawDevice) -> str:
        """Return the resource of a device. Placeholder characters that a name does not allow become '_'."""
        if not self.is_templated:
            return self.resource
        values = facts(raw, self.resource).items()
        return parse(self.resource).render({key: _NOT_IN_NAME.sub("_", value) for key, value in values})

    @property
    def without_node(self) -> Self:
        """The entry without labels, conditions, claims and sensors, which do not affect devices or containers."""
        has_any = self.labels or self.conditions or self.dra or self.telemetry
        return self.model_copy(update=_WITHOUT_NODE) if has_any else self

    @property
    def possible_profiles(self) -> frozenset[str]:
        """All profiles of partitions, including those of layouts that the node's label can select."""
        lists = [*self.partitions.values(), (self.geometry.first_mode,) if self.geometry else ()]
        layouts = self.choice.layouts.values() if self.choice else ()
        lists += (parts for layout in layouts if not layout.refusal for parts in layout.parts.values() if parts)
        return frozenset(profile.partition(PIN)[0] for parts in lists for profile in parts) - {""}

    def parts(self, index: int) -> tuple[str, ...] | None:
        """Return the profiles of a device's partitions, or None for a whole device."""
        if self.geometry and self.geometry.first_mode:
            return self.partitions.get(index, (self.geometry.first_mode,))
        return self.partitions.get(index)
