"""The configuration file as a whole, and its sections `flags`, `sharing`, `resources` and `node`."""

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, TypeAdapter, WithJsonSchema, model_validator

from ..faults.rules import NO_RULES, Faults
from .entry import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, Entry, MigStrategy
from .fleet import NO_FLEET, Fleet
from .scalars import (
    MAX_COUNT,
    AbsolutePath,
    AsWritten,
    Constraint,
    Flag,
    ResourceName,
    ResourceTemplate,
    Shorthand,
    Text,
    Whole,
    Word,
    between,
    boolean,
    not_empty,
)
from .section import Placed, Plain, Section, described, refuse
from .telemetry import Telemetry

# --- NVIDIA's forms of values, and keys that need its driver ----------------------------------------------------------
# Source: NVIDIA/k8s-device-plugin v0.20.0, `api/config/v1`.

DOMAIN = "nvidia.com"


def prefixed(name: object) -> object:
    """Add the domain `nvidia.com` to a name without a domain, like NVIDIA's plugin."""
    return f"{DOMAIN}/{name}" if type(name) is str and name and "/" not in name else name


_REFERENCE = re.compile(r"[0-9]+(:[0-9]+)?|[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?")
_LONGEST = 63  # characters of a device id
EXPECTED_DEVICES = (
    "expected all, a count of devices, or a list of indices (3), partition indices ('0:1'), ids and entries"
)


def _references(value: object) -> int | tuple[str, ...] | None:
    """Parse `devices` of a shared resource: None for all, a count, or references."""
    if isinstance(value, (list, tuple)):
        return tuple(str(item) for item in _ITEMS.validate_python(value))
    if type(value) is str:
        if value == "all":
            return None
        return refuse(f"devices set as {value!r}, and the only word allowed is 'all'", EXPECTED_DEVICES)
    if isinstance(value, int) and not isinstance(value, bool):
        value = Plain(value)
    if not isinstance(value, Plain) or not re.fullmatch(r"[-+]?(0|[1-9][0-9]{0,8})", value):
        refuse(f"{described(value)} does not choose devices", EXPECTED_DEVICES)
    if int(value) < 1:
        refuse(f"a count of devices must be at least 1, got {value}", EXPECTED_DEVICES)
    return int(value)


def _reference(item: object) -> object:
    if len(str(item)) > _LONGEST:
        refuse(f"{described(item)} refers to no device: it is longer than any id or index", EXPECTED_DEVICES)
    is_whole = isinstance(item, int) and not isinstance(item, bool) and item >= 0
    is_index = is_whole or (isinstance(item, Plain) and re.fullmatch(r"0|[1-9][0-9]*", item))
    if not is_index and not (type(item) is str and _REFERENCE.fullmatch(item)):
        refuse(f"{described(item)} refers to no device", EXPECTED_DEVICES)
    return item


_ITEMS: TypeAdapter[list[object]] = TypeAdapter(list[Annotated[object, BeforeValidator(_reference)]])

_Written = Literal["all"] | Annotated[int, Field(ge=1)] | Annotated[set[str | int], Field(min_length=1)]
References = Annotated[int | tuple[str, ...] | None, BeforeValidator(_references, json_schema_input_type=_Written)]
"""Which devices of a resource are shared."""


def comma_list(value: object) -> list[object]:
    """Split a text at commas, like NVIDIA's flags and variables. Another value becomes a list with one item."""
    if type(value) is str:
        return [item.strip() for item in value.split(",")]
    return [value]


class Gfd(Section):
    """Options of GPU Feature Discovery. All are accepted, but only noTimestamp is used."""

    oneshot: Flag | None = None
    """Not used."""
    no_timestamp: Flag | None = None
    """Whether node.labels omits the label nvidia.com/gfd.timestamp."""
    sleep_interval: AsWritten | None = None
    """Not used."""
    output_file: Text | None = None
    """Not used."""
    machine_type_file: Text | None = None
    """Not used."""


def _channels_problem(value: list[int]) -> str:
    return "" if value in ([], [0]) else f"channelIDs must be [] or [0], got {value}"


class Imex(Section):
    """NVIDIA's IMEX channels; accepted and not used, because virtual devices have none."""

    channel_ids: Annotated[list[Whole], Constraint(_channels_problem), Field(alias="channelIDs")] = []
    """Not used; must be [] or [0]."""
    required: Flag = False
    """Not used."""


# --- flags -----------------------------------------------------------------------------------------------------------

ANNOTATION_PREFIX = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9._]*"
"""The form of `cdiAnnotationPrefix`; NVIDIA's plugin accepts any text."""

_STRATEGIES_JSON = {"type": "string", "pattern": "^[a-z-]+(, *[a-z-]+)*$"}


class PluginFlags(Section):
    """How containers get their devices. The command-line flags have the same names."""

    pass_device_specs: Flag = False
    """Whether the kubelet also gets the device nodes, which the static CPU manager needs."""
    device_list_strategy: Annotated[
        tuple[DeviceListStrategy, ...],
        Shorthand((list, tuple), _STRATEGIES_JSON, comma_list),
        Field(json_schema_extra={"minItems": 1}),
    ] = (DeviceListStrategy.ENVVAR,)
    """How the container runtime gets the list of devices: one strategy, or several as a list or separated by commas."""
    device_id_strategy: Annotated[DeviceIdStrategy, Field(alias="deviceIDStrategy")] = DeviceIdStrategy.UUID
    """How a device is named inside the container: by its id (uuid) or by its index."""
    cdi_annotation_prefix: Annotated[Text, Field(json_schema_extra={"pattern": f"^(?:{ANNOTATION_PREFIX})$"})] = (
        "cdi.k8s.io/"
    )
    """Prefix of the annotation's key for the strategy cdi-annotations."""
    shared_devices_allocation_policy: AllocationPolicy = AllocationPolicy.DISTRIBUTED
    """Whether replicas and partitions are spread over the physical devices, or packed onto few."""
    nvidia_ctk_path: Annotated[Text | None, Field(alias="nvidiaCTKPath")] = None
    """NVIDIA's; accepted and not used."""
    container_driver_root: Text | None = None
    """NVIDIA's; accepted and not used."""


class Flags(Section):
    """Options of the plugin, with NVIDIA's names. Command-line flags and environment variables override the file."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    """How partitions are advertised: not at all, as the resource of their device, or by profile."""
    fail_on_init_error: Flag = True
    """Whether vdev exits at start if the configuration has an error. If false, only the invalid entry is left out."""
    mps_root: Text = ""
    """Directory of the MPS daemon on the host. Default with sharing.mps: /run/nvidia/mps, as in NVIDIA's Helm chart."""
    nvidia_driver_root: AbsolutePath = "/"
    """Prefix of the host paths of device nodes and mounts."""
    nvidia_dev_root: Text = ""
    """Prefix of the host paths of device nodes. Default: nvidiaDriverRoot."""
    plugin: PluginFlags = PluginFlags()
    gfd: Gfd | None = None
    """Options of GPU Feature Discovery; only noTimestamp is used."""
    gdrcopy_enabled: Flag = False
    """Whether containers with NVIDIA devices get NVIDIA_GDRCOPY=enabled, which asks the runtime for GDRCopy."""
    gds_enabled: Flag = False
    """Whether containers with NVIDIA devices get NVIDIA_GDS=enabled, which asks the runtime for GPUDirect Storage."""
    mofed_enabled: Flag = False
    """Whether containers with NVIDIA devices get NVIDIA_MOFED=enabled, which asks the runtime for MOFED."""
    use_node_feature_api: Annotated[Flag | None, Field(alias="useNodeFeatureAPI")] = None
    """NVIDIA's; accepted and not used."""
    device_discovery_strategy: Literal["auto", "nvml", "tegra"] | None = None
    """NVIDIA's; accepted and not used."""

    def with_plugin(self, **changes: object) -> Self:
        return self.model_copy(update={"plugin": self.plugin.model_copy(update=changes)})


DEFAULT_FLAGS = Flags()


# --- sharing ---------------------------------------------------------------------------------------------------------

Prefixed = Annotated[ResourceName, BeforeValidator(prefixed)]
"""The name of a resource. The default domain is nvidia.com."""


_HOW_TO_SHARE = "list what is shared: {name: <resource>, replicas: <number>}"


class SharedItem(Placed):
    """A resource that advertises each device several times."""

    name: Annotated[ResourceTemplate, BeforeValidator(prefixed), WithJsonSchema({"type": "string", "minLength": 1})]
    """The resource; the default domain is nvidia.com. A name with placeholders is written as in the entry."""
    replicas: Annotated[Whole, between(2, MAX_COUNT)]
    """How many times each device is advertised."""
    rename: Annotated[Prefixed, WithJsonSchema({"type": "string", "minLength": 1})] | None = None
    """The resource name of the replicas. Default: name, or <name>.shared with renameByDefault."""
    devices: References = None
    """Which devices are shared: all, a count, or a list of indices (3), partition indices ("0:1"), ids and names of
    entries. Default: all."""

    @property
    def for_nvidia(self) -> bool:
        """Whether the item is for an NVIDIA resource in a file for NVIDIA's plugin."""
        return self.where.for_nvidia and self.name.startswith(f"{DOMAIN}/")


class SharingKind(StrEnum):
    """The kinds of sharing that NVIDIA's plugin has."""

    TIME_SLICING = "time-slicing"
    MPS = "mps"


class TimeSlicing(Section):
    """Devices that several containers use in turn."""

    rename_by_default: Flag = False
    """Whether replicas are advertised as <name>.shared."""
    fail_requests_greater_than_one: Flag = False
    """Whether a container that requests more than one replica is refused."""
    resources: Annotated[tuple[SharedItem, ...], not_empty("no resources specified", _HOW_TO_SHARE)]
    """The shared resources."""

    def default_name(self, item: SharedItem) -> str:
        """Return the resource of an item's replicas if it has no `rename`."""
        return f"{item.name}.shared" if self.rename_by_default else item.name

    @property
    def kind(self) -> SharingKind:
        return SharingKind.MPS if isinstance(self, Mps) else SharingKind.TIME_SLICING


class Mps(TimeSlicing):
    """Devices that several containers use at the same time, each with its share of memory and threads."""

    fail_requests_greater_than_one: Flag = True
    """Whether a container that requests more than one replica is refused."""


class Sharing(Section):
    """Devices that several containers may use: one of timeSlicing and mps."""

    model_config = {"json_schema_extra": {"not": {"required": ["timeSlicing", "mps"]}}}

    time_slicing: TimeSlicing | None = None
    """Containers use a device in turn."""
    mps: Mps | None = None
    """Containers use a device at the same time, each with its share."""

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        """Treat a block without a value as an empty block, so that its missing resources are reported."""
        return {key: {} if value is None else value for key, value in data.items()} if isinstance(data, dict) else data

    @property
    def blocks(self) -> tuple[TimeSlicing, ...]:
        """The blocks in the file. The first one applies."""
        return tuple(filter(None, (self.mps, self.time_slicing)))


# --- resources -------------------------------------------------------------------------------------------------------


class PatternItem(Placed):
    """A pattern, and the resource under which its matches are advertised."""

    pattern: Word
    """Pattern for the whole name; * matches any characters."""
    name: Annotated[Prefixed, WithJsonSchema({"type": "string", "minLength": 1})]
    """The resource; the default domain is nvidia.com."""


class Resources(Section):
    """Names for NVIDIA devices and partitions by pattern; the first match wins."""

    gpus: tuple[PatternItem, ...] = ()
    """Whole devices, by the model's name."""
    mig: tuple[PatternItem, ...] = ()
    """Partitions, by the profile's name."""


# --- node -------------------------------------------------------------------------------------------------------------

NFD = "nfd"


def _labels(value: object) -> object:
    return value if value == NFD else boolean(value, f"true, false or {NFD}")


Labels = Annotated[bool | Literal["nfd"], BeforeValidator(_labels)]
"""How labels are written: not at all, to the Node, or through Node Feature Discovery."""


class Node(Section):
    """What vdev writes to the API server about its node. Each key needs its own permissions."""

    labels: Labels = False
    """Whether the node gets the labels of the vendors' labelers and of the entries. true: on the Node object; nfd: with
    a file for Node Feature Discovery, which needs no access to the API server."""
    events: Flag = False
    """Whether vdev writes Events about devices on the Node."""
    conditions: Flag = False
    """Whether the conditions of the entries are written into the Node's status."""
    status: Flag = False
    """Whether extended resources are written into the Node's status, for a node without a device plugin."""


# --- all of it --------------------------------------------------------------------------------------------------------


def _version(value: object) -> str:
    if value in ("v1", ""):
        return "v1"
    return refuse(f"unknown version: {value}", "the only version is v1")


class Spec(Section):
    """A vdev configuration, version v1."""

    version: Annotated[str, BeforeValidator(_version), WithJsonSchema({"const": "v1"})] = "v1"
    """Version of the file format."""
    flags: Flags = DEFAULT_FLAGS
    entries: Annotated[tuple[Entry, ...], Field(alias="devices")] = ()
    """The devices, the nodes that have them, and the extended resources that advertise them."""
    sharing_blocks: Annotated[Sharing, Field(alias="sharing")] = Sharing()
    faults: Faults = NO_RULES
    resources: Resources = Resources()
    node: Node = Node()
    telemetry: Telemetry | None = None
    """Sensors of devices, and where their metrics are served. Default: no sensors."""
    fleet_nodes: Annotated[Fleet | None, Field(alias="fleet")] = None
    """Nodes without a kubelet; only for `vdev fleet`."""
    imex: Imex | None = None
    """NVIDIA's; accepted and not used."""
    presets_dir: Word | None = None
    """Directory with your own preset files, relative to this file."""

    @property
    def sharing(self) -> TimeSlicing | None:
        """The sharing that applies: `mps` if it is set, else `timeSlicing`."""
        return self.sharing_blocks.mps or self.sharing_blocks.time_slicing

    @property
    def fleet(self) -> Fleet:
        return self.fleet_nodes or NO_FLEET

    def on_node(self, node: str) -> tuple[Entry, ...]:
        """The entries whose devices the node of that name has."""
        return tuple(
            entry
            for entry in self.entries
            if not entry.on_nodes or any(fnmatchcase(node, pattern) for pattern in entry.on_nodes)
        )
