"""The options that shape what is advertised and injected."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Self

from pydantic import model_validator

from . import names
from .device import IdStyle, RawDevice, facts
from .dra import DraSpec
from .geometry import PIN, Geometry, PartitionChoice
from .scalars import (
    AnnotationKey,
    ConditionType,
    Count,
    Duration,
    EnvName,
    Flag,
    PathTemplate,
    Permissions,
    Section,
    TemplateText,
    Text,
    Word,
    choice,
    longer_than_nothing,
    matching,
    without_problem,
)
from .sources import Source, VirtualSource
from .telemetry import Measured, SmiTool
from .template import Template


class MigStrategy(StrEnum):
    """How partitions are advertised: not at all, as the resource of their device, or by profile."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceListStrategy(StrEnum):
    """How the container runtime gets the list of allocated devices; the names are NVIDIA's."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        """Whether a CDI specification file must exist for it."""
        return self is DeviceListStrategy.CDI_ANNOTATIONS or self is DeviceListStrategy.CDI_CRI


class DeviceIdStrategy(StrEnum):
    """How a device is named inside the container: by its id (uuid) or by its index."""

    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """How replicas and partitions are chosen: spread over the physical devices, or one device after the other."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The options that shape what is advertised and injected; NVIDIA's names, defaults and meaning."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    driver_root: str = "/"
    dev_root: str = "/"
    mps_root: str = ""
    pass_device_specs: bool = False
    device_list_strategies: tuple[DeviceListStrategy, ...] = (DeviceListStrategy.ENVVAR,)
    device_id_strategy: DeviceIdStrategy = DeviceIdStrategy.UUID
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    gdrcopy_enabled: bool = False
    gds_enabled: bool = False
    mofed_enabled: bool = False
    shared_devices_allocation_policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED


DEFAULT_FLAGS = Flags()


class ContainerPath(Section):
    """A path of the host that the container gets."""

    host_path: PathTemplate
    """Path on the host; may hold placeholders."""
    container_path: PathTemplate | None = None
    """Path in the container; may hold placeholders. Default: hostPath."""

    @property
    def inside(self) -> Template:
        """Its path in the container."""
        return self.container_path or self.host_path

    @model_validator(mode="after")
    def _fill(self) -> Self:
        return self.filled(container_path=self.inside)


class ContainerNode(ContainerPath):
    """A device node for the container."""

    permissions: Permissions = "rw"
    """One or more of r (read), w (write) and m (mknod)."""


class ContainerMount(ContainerPath):
    """A bind mount for the container."""

    read_only: Flag = False
    """Whether the container may only read it."""


class Container(Section):
    """What each container with such a device gets besides the device list."""

    env: dict[EnvName, TemplateText] = {}
    """Environment variables; values may hold placeholders, and those of several devices are joined with commas."""
    device_nodes: tuple[ContainerNode, ...] = ()
    """Device nodes."""
    mounts: tuple[ContainerMount, ...] = ()
    """Bind mounts."""
    annotations: dict[AnnotationKey, TemplateText] = {}
    """Annotations for the container's runtime; values may hold placeholders."""


class Probe(StrEnum):
    """How the health of a device is checked."""

    EXISTS = "exists"
    OPEN = "open"
    FILE = "file"
    COMMAND = "command"


class Health(Section):
    """A probe that is repeated over time."""

    probe: Annotated[Probe, choice(Probe)]
    """When a device is healthy. exists: its paths exist; open: its nodes can be opened; file: a file has the content;
    command: it exits with 0."""
    interval: Annotated[Duration, longer_than_nothing(86400, "24h")] = 5.0
    """Time between two probes, such as 5s."""
    timeout: Annotated[Duration, longer_than_nothing(86400, "24h")] = 2.0
    """How long a probe may take."""
    path: PathTemplate | None = None
    """For probe file: the file; may hold placeholders."""
    content: Text = ""
    """For probe file: the content that it must have, apart from surrounding spaces. Default: it only has to exist."""
    command: tuple[TemplateText, ...] = ()
    """For probe command: the program and its arguments; may hold placeholders."""
    unhealthy_threshold: Count = 1
    """How many probes in a row must fail before the device counts as unhealthy."""
    healthy_threshold: Count = 1
    """How many probes in a row must succeed before it counts as healthy again."""
    start_grace: Duration = 0.0
    """Time after a device appears during which failed probes do not count."""


class ActionKind(StrEnum):
    """What an action does: run a program, or one of three things that need none. RENEW is in no configuration."""

    COMMAND = "command"
    TRUNCATE = "truncate"
    CHMOD = "chmod"
    RENEW = "renew"


def _host_file_problem(parsed: Template) -> str:
    value = parsed.source
    if not value.startswith(("/", "{path}")):
        return f"{value!r} is not an absolute path; it must start with '/' or {{path}}"
    return f"{value!r} contains '..'; write the path without it" if ".." in value.split("/") else ""


HostFile = Annotated[TemplateText, without_problem(_host_file_problem, pattern=r"^(/|\{path\})")]
"""A path of the host, or the device's own."""


class Action(Section):
    """An action on a device: exactly one of command, truncate and chmod."""

    command: tuple[TemplateText, ...] = ()
    """A program and its arguments, run without a shell; may hold placeholders."""
    truncate: HostFile | None = None
    """A plain file of the host to empty; may hold placeholders."""
    chmod: HostFile | None = None
    """A plain file or device node of the host whose mode is set; may hold placeholders."""
    mode: Annotated[Text, matching("0?[0-7]{3}", 'three octal digits in quotes, such as "0660"')] | None = None
    """For chmod: the mode, in octal. Default: "0660"."""
    timeout: Annotated[Duration, longer_than_nothing(3600, "1h")] | None = None
    """For command: how long it may take, such as 10s, before it is killed. Default: 10s."""

    @property
    def kind(self) -> ActionKind:
        if self.command:
            return ActionKind.COMMAND
        if self.truncate is not None:
            return ActionKind.TRUNCATE
        return ActionKind.RENEW if self.chmod is None else ActionKind.CHMOD

    @property
    def path(self) -> Template | None:
        """The file that is emptied or whose mode is set."""
        return self.truncate or self.chmod

    @property
    def permissions(self) -> int:
        """The mode that chmod sets."""
        return int(self.mode or "0660", 8)

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return self.timeout or 10.0

    @model_validator(mode="after")
    def _fill(self) -> Self:
        if self.kind is ActionKind.COMMAND:
            return self.filled(timeout=self.seconds)
        return self.filled(mode="0660") if self.kind is ActionKind.CHMOD else self


RENEW = Action()
"""Makes what stands in for the device anew."""


class OnFailure(StrEnum):
    """What happens to a device whose release failed: Unhealthy until the release succeeds, or given to the next pod."""

    BLOCK = "block"
    CONTINUE = "continue"


PRE_START_LIMIT = 25.0
"""Seconds for all that is done before one container starts; the kubelet waits 30."""


class LabelOutput(StrEnum):
    """Where the node's labels go: nowhere, to the Node object, or to a file for Node Feature Discovery."""

    OFF = "off"
    NODE = "node"
    NFD = "nfd"


class TrueWhen(StrEnum):
    """When a condition is True: while all devices of its entry are healthy, or while one of them is not."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


def _literals_problem(value: Template) -> str:
    return names.literals_problem(value.literals)


LabelKey = Annotated[Word, without_problem(names.key_problem)]
"""The key of a label, as Kubernetes takes it."""

LabelValue = Annotated[TemplateText, without_problem(_literals_problem)]
"""The value of a label, with placeholders."""


class Condition(Section):
    """A condition of the Node that follows the health of the entry's devices."""

    type: ConditionType
    """Type of the condition, such as GpuHealthy."""
    true_when: Annotated[TrueWhen, choice(TrueWhen)] = TrueWhen.HEALTHY
    """When the condition is True: while all devices are healthy, or while one is unhealthy."""
    reason: Annotated[Word, without_problem(names.condition_reason_problem)] | None = None
    """Reason while a device is unhealthy, one word such as GpuLost. Default: made from the device's reason."""
    message: Text | None = None
    """Message while a device is unhealthy. Default: the devices and their reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """What the plugin says about its node beside the device plugin API; nothing, unless it is asked for.

    `timestamp`: NVIDIA's labels tell when they were first made.
    """

    labels: LabelOutput = LabelOutput.OFF
    timestamp: bool = True
    events: bool = False
    conditions: bool = False
    status: bool = False


SAYS_NOTHING = NodeSpec()


_NOT_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")  # of a resource; smarter-device-manager's rule


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySpec:
    """One item of `devices`."""

    name: str
    resource: str  # with a template: as it is written
    source: Source
    template: Template | None = None  # of the resource's name, where each device has its own
    where: str = field(default="", compare=False)  # a moved line is no change
    on_nodes: tuple[str, ...] = ()
    container: Container = Container()
    health: Health | None = None
    visible_devices_env: str = ""  # "" = made from the resource's name
    geometry: Geometry | None = None
    partitions: Mapping[int, tuple[str, ...]] = field(
        default_factory=dict
    )  # device index -> profiles, layouts resolved; with a choice, those of a node without the label
    choice: PartitionChoice | None = None  # a label of the node says how the devices are cut
    allow_dangerous: bool = False  # nodes with power over the whole host may be handed out
    exclude_topology: bool = False
    shared: bool = False  # its devices may be nodes that devices of other entries are, too
    pre_start: tuple[Action, ...] = ()
    on_allocate: tuple[Action, ...] = ()
    on_release: tuple[Action, ...] = ()
    if_release_fails: OnFailure = OnFailure.BLOCK
    labels: Mapping[str, Template] = field(default_factory=dict)  # of the node, beside those of the devices' maker
    conditions: tuple[Condition, ...] = ()
    listed: bool = True  # by a device plugin
    dra: DraSpec | None = None  # published for Dynamic Resource Allocation
    telemetry: Measured | None = None  # None: nobody asks
    smi: SmiTool | None = None
    gpu_names: tuple[str, ...] = ()  # what `resources.gpus` patterns are matched against; empty: not an NVIDIA device

    @property
    def acts_on_handovers(self) -> bool:
        """Whether anything is done when a device changes hands."""
        return bool(self.on_allocate or self.on_release or self.is_writable)

    @property
    def is_writable(self) -> bool:
        """Whether pods can write into the file or directory that stands in for a device."""
        node = self.source.node if isinstance(self.source, VirtualSource) else None
        return node is not None and node.is_writable

    @property
    def is_nvidia(self) -> bool:
        """Whether its devices answer in the NVIDIA plugin's exact wire form: those of NVIDIA presets do."""
        return isinstance(self.source, VirtualSource) and self.source.id_style is IdStyle.NVIDIA

    def resource_of(self, raw: RawDevice) -> str:
        """The resource of one of its devices. What no name may hold is written '_'."""
        if self.template is None:
            return self.resource
        values = facts(raw, self.resource).items()
        return self.template.render({key: _NOT_IN_NAME.sub("_", value) for key, value in values})

    @property
    def without_node(self) -> "EntrySpec":
        """The entry without what the node says of it, which changes no device and nothing that a container gets."""
        said = self.labels or self.conditions or self.dra or self.telemetry
        return replace(self, labels={}, conditions=(), dra=None, telemetry=None) if said else self

    @property
    def possible_profiles(self) -> frozenset[str]:
        """The profiles that its devices have, or may be given by a label of the node."""
        cut = [*self.partitions.values(), (self.geometry.first_mode,) if self.geometry else ()]
        layouts = self.choice.layouts.values() if self.choice else ()
        cut += (parts for layout in layouts if not layout.refusal for parts in layout.parts.values() if parts)
        return frozenset(profile.partition(PIN)[0] for parts in cut for profile in parts) - {""}

    def parts(self, index: int) -> tuple[str, ...] | None:
        """The profiles that a device is cut into, or None for a device that stays whole."""
        if self.geometry and self.geometry.first_mode:
            return self.partitions.get(index, (self.geometry.first_mode,))
        return self.partitions.get(index)

    def is_on(self, node: str) -> bool:
        """Whether the entry concerns the node of that name."""
        return not self.on_nodes or any(fnmatchcase(node, pattern) for pattern in self.on_nodes)
