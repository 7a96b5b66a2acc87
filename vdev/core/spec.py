"""What the configuration says, after validation: the core's view of the file, free of YAML and pydantic.

`config.compile.entry_spec` makes these values; discovery reads the sources, `inventory` the rest. `where` fields name
the place in the file, for problems that only the node can tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import chain
from typing import TypeVar

from .model.device import EMPTY, IdStyle
from .model.dra import DraSpec
from .model.faults.fault_rules import NO_RULES, FaultSpec
from .model.syntax.template import Template
from .model.virtual_node import StandIn
from .partitions.choice import PartitionChoice
from .partitions.geometry import PIN, Geometry

_Part = TypeVar("_Part")


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
        return self in (DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI)


class DeviceIdStrategy(StrEnum):
    """What names a device inside the container: its id or its index."""

    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """How shared devices and partitions are preferred: spread over their parents, or filling one after the other."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"


class SharingKind(StrEnum):
    """NVIDIA's two kinds of sharing."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


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


# --- where devices come from ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSource:
    """Devices that exist only in the file (or as a preset's data).

    `numa` holds one value per device, or one for all, or none. `links` maps pairs of indices to a score (NVIDIA's
    scale: 100 per NVLink), symmetric. `driver_nodes` are templates of the nodes that the real device has, `node` is
    what a container gets in its stead. `maker_resource` is the resource under which the maker's own plugin advertises
    devices of the preset.
    """

    count: int
    memory: int = 0
    numa: tuple[int, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    links: Mapping[tuple[int, int], int] = field(default_factory=dict)
    id_style: IdStyle = IdStyle.NAME
    preset: str = ""
    maker_resource: str = ""
    driver_nodes: tuple["NodeTemplate", ...] = ()
    partition_nodes: tuple["NodeTemplate", ...] = ()
    node: StandIn | None = None


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
    """How the matches of several patterns form devices: the i-th with the i-th, or by the text that `*` captured."""

    POSITION = "position"
    NAME = "name"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobSource:
    """Devices found by path patterns below the host root; several patterns together form one device."""

    paths: tuple[GlobPath, ...]
    exclude: tuple[str, ...] = ()
    group_by: GroupBy = GroupBy.POSITION
    allow_dangerous: bool = False


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


@dataclass(frozen=True, slots=True, kw_only=True)
class UsbSource:
    """USB devices by identity. Ids are four lower-case hexadecimal digits; `serial` and `port` are globs; "" matches
    all.
    """

    vendor: str = ""
    product: str = ""
    serial: str = ""
    port: str = ""
    device_class: str = ""
    children: tuple[str, ...] = ()
    container_path: str = ""
    permissions: str = "rw"


Source = VirtualSource | GlobSource | SysfsSource | UsbSource

# --- what a container gets ------------------------------------------------------------------------------------------


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


# --- health ---------------------------------------------------------------------------------------------------------


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


# --- actions --------------------------------------------------------------------------------------------------------


class ActionKind(StrEnum):
    """What an action does: run a program, or one of two things that need none."""

    COMMAND = "command"
    TRUNCATE = "truncate"
    CHMOD = "chmod"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """Something to do to a device when its holder changes, or before its container starts.

    COMMAND runs `command` (argv templates, no shell, no environment but PATH) and waits at most `timeout` seconds;
    TRUNCATE empties the file at `path`; CHMOD gives it `mode`.
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


# --- what the node says about itself ---------------------------------------------------------------------------------


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


# --- entries, sharing, names ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySpec:
    """One item of `devices`."""

    name: str
    resource: str
    source: Source
    where: str = field(default="", compare=False)  # a moved line is no change
    on_nodes: tuple[str, ...] = ()
    container: ContainerSpec = ContainerSpec()
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
    gpu_names: tuple[str, ...] = ()  # what `resources.gpus` patterns are matched against; empty: not an NVIDIA device

    @property
    def acts_on_handovers(self) -> bool:
        """Whether anything is done when a device changes hands."""
        return bool(self.on_allocate or self.on_release)

    @property
    def is_nvidia(self) -> bool:
        """Whether its devices answer in the NVIDIA plugin's exact wire form: those of NVIDIA presets do."""
        return isinstance(self.source, VirtualSource) and self.source.id_style is IdStyle.NVIDIA

    @property
    def without_node(self) -> "EntrySpec":
        """The entry without what the node says of it, which changes no device and nothing that a container gets."""
        said = self.labels or self.conditions or self.dra
        return replace(self, labels=(), conditions=(), dra=None) if said else self

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedResource:
    """One item of `sharing.*.resources`.

    `devices` is None for all, a count (lowest indices first), or references: `"3"`, `"0:1"`, or ids.
    """

    name: str
    replicas: int
    rename: str = ""
    devices: int | tuple[str, ...] | None = None
    where: str = field(default="", compare=False)  # a moved line is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingSpec:
    """The `timeSlicing` or `mps` block."""

    kind: SharingKind
    resources: tuple[SharedResource, ...]
    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NamePattern:
    """One item of `resources.gpus` or `resources.mig`: a whole-string pattern where `*` is any run of characters."""

    pattern: str
    name: str
    where: str = field(default="", compare=False)  # a moved line is no change


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """Everything the configuration says."""

    entries: tuple[EntrySpec, ...] = ()
    flags: Flags = Flags()
    sharing: SharingSpec | None = None
    gpu_patterns: tuple[NamePattern, ...] = ()
    mig_patterns: tuple[NamePattern, ...] = ()
    faults: FaultSpec = NO_RULES
    node: NodeSpec = NodeSpec()

    def after(self, before: "Spec") -> "Spec":
        """The same, of the objects of `before` as far as these say it, so that what follows from them is kept."""
        known = {entry.name: entry for entry in before.entries}
        return replace(
            self,
            entries=tuple(_kept(known.get(entry.name), entry) for entry in self.entries),
            flags=_kept(before.flags, self.flags),
            sharing=_kept(before.sharing, self.sharing),
            gpu_patterns=_kept(before.gpu_patterns, self.gpu_patterns),
            mig_patterns=_kept(before.mig_patterns, self.mig_patterns),
        )

    def on_node(self, node: str) -> tuple[EntrySpec, ...]:
        """The entries that concern that node."""
        return tuple(entry for entry in self.entries if entry.is_on(node))


def _kept(old: _Part | None, new: _Part) -> _Part:
    """The old part where the new one says the same, also of its place in the file, which messages name."""
    return old if old == new and old is not None and _places(old) == _places(new) else new


def _places(part: object) -> tuple[str, ...]:
    match part:
        case EntrySpec() | SharedResource() | NamePattern():
            return (part.where,)
        case SharingSpec():
            return tuple(each.where for each in part.resources)
        case tuple():
            return tuple(chain.from_iterable(map(_places, part)))
        case _:
            return ()
