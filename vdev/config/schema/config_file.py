"""The schema of the configuration file, section by section: shapes and single values; next: `checks`."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ...core import spec
from ...core.model.names import ENTRY_NAME
from ...core.spec import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, GroupBy, MigStrategy, Probe
from ..document.parser import Plain
from .fault_section import Faults
from .lifecycle_actions import Action
from .nvidia_forms import Gfd, Imex, References, comma_list, prefixed
from .scalars import (
    PATH,
    STRING,
    AbsolutePath,
    AnnotationKey,
    Duration,
    EnvName,
    Fault,
    Flag,
    NodePattern,
    OneOrMany,
    PathPattern,
    PathTemplate,
    Permissions,
    ResourceName,
    Rule,
    Section,
    TemplateText,
    Text,
    Whole,
    Word,
    between,
    choice,
    described,
    matching,
    refuse,
    refuse_all,
)
from .sources import MAX_COUNT, Count, Glob, Sysfs, Usb, Virtual

# --- flags -----------------------------------------------------------------------------------------------------------

_PREFIX = matching(
    "[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9._]*", "the beginning of an annotation's key, such as cdi.k8s.io/"
)
_DEFAULTS = spec.Flags()  # written once, there
_STRATEGIES_JSON = (("type", "string"), ("pattern", "^[a-z-]+(, *[a-z-]+)*$"))


def _some(value: list[object]) -> tuple[str, str]:
    return ("", "") if value else ("the list is empty", "name at least one, or leave the key out")


class PluginFlags(Section):
    """How containers get their devices; the same as the command-line flags."""

    pass_device_specs: Flag = _DEFAULTS.pass_device_specs
    """Hand the real device nodes to the container as well, which the static CPU manager needs."""
    device_list_strategy: Annotated[
        list[Annotated[DeviceListStrategy, choice(DeviceListStrategy)]],
        OneOrMany(_STRATEGIES_JSON, comma_list),
        Rule(_some, (("minItems", 1),)),
    ] = [*_DEFAULTS.device_list_strategies]
    """How the list of devices reaches the container's runtime: one or several, as a list or a text with commas."""
    device_id_strategy: Annotated[
        Annotated[DeviceIdStrategy, choice(DeviceIdStrategy)], Field(alias="deviceIDStrategy")
    ] = _DEFAULTS.device_id_strategy
    """What names a device inside the container: its id or its index."""
    cdi_annotation_prefix: Annotated[Text, _PREFIX] = _DEFAULTS.cdi_annotation_prefix
    """Prefix of the annotation's key under cdi-annotations."""
    shared_devices_allocation_policy: Annotated[AllocationPolicy, choice(AllocationPolicy)] = (
        _DEFAULTS.shared_devices_allocation_policy
    )
    """Whether replicas and partitions are preferred spread over the physical devices, or packed onto few."""
    nvidia_ctk_path: Annotated[Text | None, Field(alias="nvidiaCTKPath")] = None
    """NVIDIA's; accepted and not used."""
    container_driver_root: Text | None = None
    """NVIDIA's; accepted and not used."""


class Flags(Section):
    """Options of the plugin, with NVIDIA's names. A command-line flag or an environment variable wins over the file."""

    mig_strategy: Annotated[MigStrategy, choice(MigStrategy)] = _DEFAULTS.mig_strategy
    """How partitions are advertised: not at all, as the device's own resource, or under names of their own."""
    fail_on_init_error: Flag = _DEFAULTS.fail_on_init_error
    """Whether start-up fails on an error, rather than serving what is right."""
    mps_root: Text = _DEFAULTS.mps_root
    """Directory of the MPS daemon on the host; needed for sharing.mps."""
    nvidia_driver_root: AbsolutePath = _DEFAULTS.driver_root
    """What stands before the host's side of device nodes and mounts."""
    nvidia_dev_root: Text = ""
    """What stands before the host's side of device nodes. Default: nvidiaDriverRoot."""
    plugin: PluginFlags = PluginFlags()
    gfd: Gfd | None = None
    """NVIDIA's; accepted and not used."""
    gdrcopy_enabled: Flag = _DEFAULTS.gdrcopy_enabled
    """Whether containers with NVIDIA devices get NVIDIA_GDRCOPY=enabled, which asks the runtime for GDRCopy."""
    gds_enabled: Flag = _DEFAULTS.gds_enabled
    """Whether containers with NVIDIA devices get NVIDIA_GDS=enabled, which asks the runtime for GPUDirect Storage."""
    mofed_enabled: Flag = _DEFAULTS.mofed_enabled
    """Whether containers with NVIDIA devices get NVIDIA_MOFED=enabled, which asks the runtime for MOFED."""
    use_node_feature_api: Annotated[Flag | None, Field(alias="useNodeFeatureAPI")] = None
    """NVIDIA's; accepted and not used."""
    device_discovery_strategy: Annotated[Text, matching("auto|nvml|tegra", "auto, nvml or tegra")] | None = None
    """NVIDIA's; accepted and not used."""


# --- devices ---------------------------------------------------------------------------------------------------------


class ContainerPath(Section):
    """A path of the host that the container gets."""

    host_path: PathTemplate
    """Path on the host; may hold placeholders."""
    container_path: PathTemplate | None = None
    """Path in the container; may hold placeholders. Default: hostPath."""


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
    device_nodes: list[ContainerNode] = []
    """Device nodes."""
    mounts: list[ContainerMount] = []
    """Bind mounts."""
    annotations: dict[AnnotationKey, TemplateText] = {}
    """Annotations for the container's runtime; values may hold placeholders."""


_DAY = 86400.0


def _useful(value: float) -> tuple[str, str]:
    return ("", "") if 0 < value <= _DAY else (f"{value:g} seconds are out of range", "more than nothing, at most 24h")


class Health(Section):
    """A probe that is repeated over time."""

    probe: Annotated[Probe, choice(Probe)]
    """exists: its paths are there; open: its nodes open; file: a file has its content; command: it exits with 0."""
    interval: Annotated[Duration, Rule(_useful)] = 5.0
    """Time between two probes, such as 5s."""
    timeout: Annotated[Duration, Rule(_useful)] = 2.0
    """How long a probe may take."""
    path: PathTemplate | None = None
    """For probe file: the file; may hold placeholders."""
    content: Text = ""
    """For probe file: what the file must hold, spaces around it aside. Default: it only has to exist."""
    command: list[TemplateText] = []
    """For probe command: the program and its arguments; may hold placeholders."""
    unhealthy_threshold: Count = 1
    """How many probes in a row must fail before the device counts as unhealthy."""
    healthy_threshold: Count = 1
    """How many probes in a row must succeed before it counts as healthy again."""
    start_grace: Duration = 0.0
    """How long after the device appeared failures do not count."""


def _layout(value: object) -> str | tuple[str, ...]:
    """A named layout, or a list of profiles."""
    if type(value) is str and value:
        return value
    if isinstance(value, (list, tuple)):
        faults = [
            Fault((index,), f"expected a profile's name, got {described(item)}", "", item)
            for index, item in enumerate(value)
            if type(item) is not str or not item
        ]
        return refuse_all("partitions", faults) if faults else tuple(value)
    hint = f'write it in quotes: "{value}"' if isinstance(value, Plain) else ""
    return refuse(f"expected a list of profiles or a layout's name, got {described(value)}", hint)


_LAYOUT_JSON = {
    "anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "string", "minLength": 1}}]
}
Layout = Annotated[str | tuple[str, ...], BeforeValidator(_layout), WithJsonSchema(_LAYOUT_JSON)]
DeviceRange = Annotated[
    Text, matching(r"\*|all|(0|[1-9]\d{0,5})(-(0|[1-9]\d{0,5}))?", 'an index "0", a range "1-2", or "all"')
]
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
    """Name of the entry, unique in the configuration. Device ids begin with it, so changing it makes other devices."""
    resource: ResourceName
    """The extended resource that pods ask for, <domain>/<name>."""
    on_nodes: Annotated[list[NodePattern], OneOrMany(STRING)] = []
    """Patterns for names of nodes that have these devices. Default: every node."""
    virtual: Virtual | None = None
    """Devices that exist only here."""
    glob: Annotated[Glob, Rule(_some, (("minItems", 1),))] | None = None
    """Real devices by path: one pattern, or a list of patterns of which the i-th matches form one device."""
    sysfs: Sysfs | None = None
    """Real devices by their attributes in sysfs."""
    usb: Usb | None = None
    """Real USB devices by identity."""
    exclude: Annotated[list[PathPattern], OneOrMany(PATH)] = []
    """For glob: patterns of paths that are left out."""
    group_by: Annotated[GroupBy, choice(GroupBy)] | None = None
    """For glob with several patterns: the i-th match goes with the i-th (position), or those in which * matched the
    same text belong together (name). Default: position."""
    allow_dangerous: Flag = False
    """Whether paths that give a container power over the whole host, such as /dev/mem, may be handed out."""
    shared: Flag = False
    """Whether a device may be handed out here although another entry has it, too. Default: the first entry in the file
    has it, alone."""
    container: Container = Container()
    """What each container gets besides the device list."""
    health: Health | None = None
    """How a device's health is found out. Default: by its presence alone."""
    partitions: dict[DeviceRange, Layout] = {}
    """How devices are cut: an index "0", a range "1-2" or "all", to a list of profiles or the name of a layout."""
    visible_devices_env: EnvName | None = None
    """Environment variable with the list of devices. Default: made from the resource's name."""
    exclude_topology: Flag = False
    """Whether NUMA nodes are kept from the kubelet."""
    on_allocate: list[Action] = []
    """What is done once when a pod got a device; a failure is told and stops nothing."""
    on_release: list[Action] = []
    """What is done once when a pod gave a device back; a failure is told and stops nothing."""
    pre_start: list[Action] = []
    """What is done before a container with such a device starts, in 25 seconds; a failure keeps it from starting."""


# --- sharing ---------------------------------------------------------------------------------------------------------

Prefixed = Annotated[ResourceName, BeforeValidator(prefixed)]
"""A resource's name; without a domain it is one of nvidia.com."""


class SharedItem(Section):
    """A resource whose devices are offered several times."""

    name: Annotated[Prefixed, WithJsonSchema({"type": "string", "minLength": 1})]
    """The resource; without a domain it is one of nvidia.com."""
    replicas: Annotated[Whole, between(2, MAX_COUNT)]
    """How many times each device is offered."""
    rename: Annotated[Prefixed, WithJsonSchema({"type": "string", "minLength": 1})] | None = None
    """The resource that the replicas are offered as. Default: name, or name with .shared under renameByDefault."""
    devices: References = None
    """Which devices are shared: all, a count, or a list of indices (3), partition indices ("0:1") and ids.
    Default: all."""


def _shared_some(value: list[object]) -> tuple[str, str]:
    return (
        ("", "") if value else ("no resources specified", "list what is shared: {name: <resource>, replicas: <number>}")
    )


class TimeSlicing(Section):
    """Devices that several containers use in turn."""

    rename_by_default: Flag = False
    """Whether replicas are offered as <name>.shared."""
    fail_requests_greater_than_one: Flag = False
    """Whether a container that asks for more than one replica is refused."""
    resources: Annotated[list[SharedItem], Rule(_shared_some, (("minItems", 1),))]
    """What is shared."""


class Mps(TimeSlicing):
    """Devices that several containers use at once, each with its share of memory and threads."""

    fail_requests_greater_than_one: Flag = True
    """Whether a container that asks for more than one replica is refused."""


class Sharing(Section):
    """Devices that are offered several times: one of timeSlicing and mps."""

    model_config = {"json_schema_extra": {"not": {"required": ["timeSlicing", "mps"]}}}

    time_slicing: TimeSlicing | None = None
    """Containers use a device in turn."""
    mps: Mps | None = None
    """Containers use a device at once, each with its share."""

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, data: Any) -> Any:
        """A block without a value is an empty one, which then lacks its resources."""
        return {key: {} if value is None else value for key, value in data.items()} if isinstance(data, dict) else data


# --- resources -------------------------------------------------------------------------------------------------------


class PatternItem(Section):
    """A pattern and the resource that what matches is advertised as."""

    pattern: Word
    """Pattern for the whole name, where * is any run of characters."""
    name: Annotated[Prefixed, WithJsonSchema({"type": "string", "minLength": 1})]
    """The resource; without a domain it is one of nvidia.com."""


class Resources(Section):
    """Names for NVIDIA devices and partitions by pattern; the first match wins."""

    gpus: list[PatternItem] = []
    """Whole devices, by the model's name."""
    mig: list[PatternItem] = []
    """Partitions, by the profile's name."""


# --- the file --------------------------------------------------------------------------------------------------------


def _version(value: object) -> str:
    if value in ("v1", ""):
        return "v1"
    return refuse(f"unknown version: {value}", "the only version is v1")


class ConfigFile(Section):
    """A vdev configuration, version v1."""

    version: Annotated[str, BeforeValidator(_version), WithJsonSchema({"const": "v1"})] = "v1"
    """Version of the file's form."""
    flags: Flags = Flags()
    devices: list[Entry] = []
    """What exists, on which nodes, as which extended resource."""
    sharing: Sharing = Sharing()
    faults: Faults = Faults()
    resources: Resources = Resources()
    imex: Imex | None = None
    """NVIDIA's; accepted and not used."""
    presets_dir: Word | None = None
    """Directory with preset files of one's own, relative to this file."""
