"""The options that shape what is advertised and injected."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase

from .device import EMPTY, IdStyle, RawDevice, facts
from .dra import DraSpec
from .geometry import PIN, Geometry, PartitionChoice
from .telemetry import Measured, SmiTool
from .template import Template
from .virtual_node import PlainDirectory, PlainFile, StandIn


class MigStrategy(StrEnum):
    """How partitions are advertised: not at all, as the device's own resource, or under names of their own."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceListStrategy(StrEnum):
    """How the list of allocated devices reaches the container's runtime; NVIDIA's names."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        """Whether a CDI specification file must exist for it."""
        return self is DeviceListStrategy.CDI_ANNOTATIONS or self is DeviceListStrategy.CDI_CRI


class DeviceIdStrategy(StrEnum):
    """What names a device inside the container: its id or its index."""

    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """How shared devices and partitions are preferred: spread over their parents, or filling one after the other."""

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


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """A device node whose paths are rendered per device, with `{index}` counting from `first_index`."""

    host_path: Template
    container_path: Template
    permissions: str = "rw"
    first_index: int = 0


@dataclass(frozen=True, slots=True)
class MountTemplate:
    """A bind mount whose paths are rendered per device."""

    host_path: Template
    container_path: Template
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What each container gets besides the device list."""

    env: tuple[tuple[str, Template], ...] = ()
    nodes: tuple[NodeTemplate, ...] = ()
    mounts: tuple[MountTemplate, ...] = ()
    annotations: tuple[tuple[str, Template], ...] = ()


NOTHING_MORE = ContainerSpec()


class Probe(StrEnum):
    """How a device's health is found out."""

    EXISTS = "exists"
    OPEN = "open"
    FILE = "file"
    COMMAND = "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSpec:
    """A probe over time. Times are in seconds; thresholds count successive equal results.

    FILE: the file at `path` (a template) must hold `content` (stripped; "" = it only has to exist). COMMAND: `command`
    (argv templates) must exit 0 within `timeout`. `start_grace`: failures this soon after the device appeared do not
    count.
    """

    probe: Probe
    interval: float = 5.0
    timeout: float = 2.0
    path: Template | None = None
    content: str = ""
    command: tuple[Template, ...] = ()
    unhealthy_threshold: int = 1
    healthy_threshold: int = 1
    start_grace: float = 0.0


class ActionKind(StrEnum):
    """What an action does: run a program, or one of three things that need none. RENEW is in no configuration."""

    COMMAND = "command"
    TRUNCATE = "truncate"
    CHMOD = "chmod"
    RENEW = "renew"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """Something to do to a device when its holder changes, or before its container starts.

    COMMAND runs `command` (argv templates, no shell, no environment but PATH) and waits at most `timeout` seconds;
    TRUNCATE empties the file at `path`; CHMOD gives it `mode`; RENEW makes what stands in for the device anew.
    """

    kind: ActionKind
    command: tuple[Template, ...] = ()
    path: Template | None = None
    mode: int = 0o660
    timeout: float = 10.0


class OnFailure(StrEnum):
    """What happens to a device whose release failed: it is kept back until it succeeds, or handed on."""

    BLOCK = "block"
    CONTINUE = "continue"


PRE_START_LIMIT = 25.0
"""Seconds for all that is done before one container starts; the kubelet waits 30."""


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


class LabelOutput(StrEnum):
    """Where the node's labels go: nowhere, to the Node object, or to a file for Node Feature Discovery."""

    OFF = "off"
    NODE = "node"
    NFD = "nfd"


class TrueWhen(StrEnum):
    """When a condition is True: while all devices of its entry are healthy, or while one of them is not."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionSpec:
    """A condition of the Node that follows the health of an entry's devices.

    `reason` and `message` are for when a device is unhealthy; "" = made from what is wrong with it.
    """

    type: str
    true_when: TrueWhen = TrueWhen.HEALTHY
    reason: str = ""
    message: str = ""


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
    container: ContainerSpec = NOTHING_MORE
    health: HealthSpec | None = None
    visible_devices_env: str = ""  # "" = made from the resource's name
    geometry: Geometry | None = None
    partitions: Mapping[int, tuple[str, ...]] = field(
        default_factory=dict
    )  # device index -> profiles, layouts resolved; with a choice, those of a node without the label
    choice: PartitionChoice | None = None  # a label of the node says how the devices are cut
    exclude_topology: bool = False
    shared: bool = False  # its devices may be nodes that devices of other entries are, too
    pre_start: tuple[ActionSpec, ...] = ()
    on_allocate: tuple[ActionSpec, ...] = ()
    on_release: tuple[ActionSpec, ...] = ()
    if_release_fails: OnFailure = OnFailure.BLOCK
    labels: tuple[tuple[str, Template], ...] = ()  # of the node, beside those of the devices' maker
    conditions: tuple[ConditionSpec, ...] = ()
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
        return isinstance(node, PlainFile | PlainDirectory) and not node.read_only

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
        return replace(self, labels=(), conditions=(), dra=None, telemetry=None) if said else self

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
