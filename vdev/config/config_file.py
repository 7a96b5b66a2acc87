"""The whole file, and its sections other than `devices` and `faults`: flags, sharing, names by pattern, node."""

import json
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ..faults.rules import Faults
from ..model.entry import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, MigStrategy
from ..model.entry import Flags as ModelFlags
from ..model.fleet import Fleet
from ..model.scalars import (
    MAX_COUNT,
    AbsolutePath,
    Flag,
    Plain,
    ResourceName,
    ResourceTemplate,
    Section,
    Shorthand,
    Text,
    Whole,
    Word,
    between,
    choice,
    described,
    matching,
    not_empty,
    refuse,
)
from ..model.telemetry import Telemetry
from .entry import Entry
from .nvidia_forms import DOMAIN, Gfd, Imex, References, comma_list, prefixed

# --- flags -----------------------------------------------------------------------------------------------------------

ANNOTATION_PREFIX = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9._]*"
"""What `cdiAnnotationPrefix` looks like; NVIDIA's plugin takes any text."""

_DEFAULTS = ModelFlags()  # written once, there
_STRATEGIES_JSON = (("type", "string"), ("pattern", "^[a-z-]+(, *[a-z-]+)*$"))


class PluginFlags(Section):
    """How containers get their devices; the same as the command-line flags."""

    pass_device_specs: Flag = _DEFAULTS.pass_device_specs
    """Whether the kubelet also gets the device nodes, which the static CPU manager needs."""
    device_list_strategy: Annotated[
        list[Annotated[DeviceListStrategy, choice(DeviceListStrategy)]],
        Shorthand((list, tuple), _STRATEGIES_JSON, comma_list),
        Field(json_schema_extra={"minItems": 1}),
    ] = [*_DEFAULTS.device_list_strategies]
    """How the container runtime gets the list of devices: one strategy, or several as a list or separated by commas."""
    device_id_strategy: Annotated[
        Annotated[DeviceIdStrategy, choice(DeviceIdStrategy)], Field(alias="deviceIDStrategy")
    ] = _DEFAULTS.device_id_strategy
    """How a device is named inside the container: by its id (uuid) or by its index."""
    cdi_annotation_prefix: Annotated[Text, Field(json_schema_extra={"pattern": f"^(?:{ANNOTATION_PREFIX})$"})] = (
        _DEFAULTS.cdi_annotation_prefix
    )
    """Prefix of the annotation's key for the strategy cdi-annotations."""
    shared_devices_allocation_policy: Annotated[AllocationPolicy, choice(AllocationPolicy)] = (
        _DEFAULTS.shared_devices_allocation_policy
    )
    """Whether replicas and partitions are spread over the physical devices, or packed onto few."""
    nvidia_ctk_path: Annotated[Text | None, Field(alias="nvidiaCTKPath")] = None
    """NVIDIA's; accepted and not used."""
    container_driver_root: Text | None = None
    """NVIDIA's; accepted and not used."""


class Flags(Section):
    """Options of the plugin, with NVIDIA's names. A command-line flag or an environment variable wins over the file."""

    mig_strategy: Annotated[MigStrategy, choice(MigStrategy)] = _DEFAULTS.mig_strategy
    """How partitions are advertised: not at all, as the resource of their device, or by profile."""
    fail_on_init_error: Flag = _DEFAULTS.fail_on_init_error
    """Whether an error in the configuration ends the start. If false, only the entry with the error is left out."""
    mps_root: Text = _DEFAULTS.mps_root
    """Directory of the MPS daemon on the host. Default with sharing.mps: /run/nvidia/mps, as NVIDIA's Helm chart."""
    nvidia_driver_root: AbsolutePath = _DEFAULTS.driver_root
    """Prefix of the host paths of device nodes and mounts."""
    nvidia_dev_root: Text = ""
    """Prefix of the host paths of device nodes. Default: nvidiaDriverRoot."""
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


# --- sharing ---------------------------------------------------------------------------------------------------------

Prefixed = Annotated[ResourceName, BeforeValidator(prefixed)]
"""A resource's name; without a domain it is one of nvidia.com."""


_HOW_TO_SHARE = "list what is shared: {name: <resource>, replicas: <number>}"


class SharedItem(Section):
    """A resource whose devices are advertised several times."""

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
    def is_nvidias(self) -> bool:
        """Whether NVIDIA's plugin could have the resource."""
        return self.name.startswith(f"{DOMAIN}/")


class TimeSlicing(Section):
    """Devices that several containers use in turn."""

    rename_by_default: Flag = False
    """Whether replicas are advertised as <name>.shared."""
    fail_requests_greater_than_one: Flag = False
    """Whether a container that asks for more than one replica is refused."""
    resources: Annotated[list[SharedItem], not_empty("no resources specified", _HOW_TO_SHARE)]
    """What is shared."""


class Mps(TimeSlicing):
    """Devices that several containers use at the same time, each with its share of memory and threads."""

    fail_requests_greater_than_one: Flag = True
    """Whether a container that asks for more than one replica is refused."""


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
        """A block without a value counts as an empty one, so that its missing resources are reported."""
        return {key: {} if value is None else value for key, value in data.items()} if isinstance(data, dict) else data


# --- resources -------------------------------------------------------------------------------------------------------


class PatternItem(Section):
    """A pattern, and the resource under which its matches are advertised."""

    pattern: Word
    """Pattern for the whole name, where * is any run of characters."""
    name: Annotated[Prefixed, WithJsonSchema({"type": "string", "minLength": 1})]
    """The resource; the default domain is nvidia.com."""


class Resources(Section):
    """Names for NVIDIA devices and partitions by pattern; the first match wins."""

    gpus: list[PatternItem] = []
    """Whole devices, by the model's name."""
    mig: list[PatternItem] = []
    """Partitions, by the profile's name."""


# --- node -------------------------------------------------------------------------------------------------------------

NFD = "nfd"


def _labels(value: object) -> object:
    if isinstance(value, bool) or (type(value) is str and value == NFD):
        return value
    if isinstance(value, Plain) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    hint = "take the quotes off" if isinstance(value, str) and value.lower() in ("true", "false") else ""
    return refuse(f"expected true, false or {NFD}, got {described(value)}", hint)


Labels = Annotated[
    bool | Literal["nfd"],
    BeforeValidator(_labels),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"const": NFD}]}),
]
"""Whether and how labels are written."""


class Node(Section):
    """What vdev writes about its node: labels, Events, conditions and capacity. Each key needs its own permissions."""

    labels: Labels = False
    """Whether the node gets the labels that the makers' labelers write, and those of the entries. true: on the Node
    object; nfd: through a file for Node Feature Discovery, which needs no access to the API server."""
    events: Flag = False
    """Whether vdev writes Events about devices on the Node."""
    conditions: Flag = False
    """Whether the conditions of the entries are written into the Node's status."""
    status: Flag = False
    """Whether extended resources are written into the Node's status, for a node without a device plugin."""


# --- the file --------------------------------------------------------------------------------------------------------


def _version(value: object) -> str:
    if value in ("v1", ""):
        return "v1"
    return refuse(f"unknown version: {value}", "the only version is v1")


class ConfigFile(Section):
    """A vdev configuration, version v1."""

    version: Annotated[str, BeforeValidator(_version), WithJsonSchema({"const": "v1"})] = "v1"
    """Version of the file format."""
    flags: Flags = Flags()
    devices: list[Entry] = []
    """The devices, the nodes that have them, and the extended resources that advertise them."""
    sharing: Sharing = Sharing()
    faults: Faults = Faults()
    resources: Resources = Resources()
    node: Node = Node()
    telemetry: Telemetry | None = None
    """Sensors of devices, and where their metrics are served. Default: no sensors."""
    fleet: Fleet | None = None
    """Nodes without a kubelet; only for `vdev fleet`."""
    imex: Imex | None = None
    """NVIDIA's; accepted and not used."""
    presets_dir: Word | None = None
    """Directory with your own preset files, relative to this file."""


# --- its JSON Schema, for editors -------------------------------------------------------------------------------------

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """JSON Schema 2020-12 of the configuration file."""
    return {**_closed(ConfigFile.model_json_schema()), "$schema": DIALECT, "title": "vdev configuration"}


def _closed(schema: Any) -> Any:
    """Forbid other keys in mappings whose keys follow a pattern; pydantic leaves that open."""
    match schema:
        case dict():
            inner = {key: _closed(value) for key, value in schema.items()}
            return {"additionalProperties": False, **inner} if "patternProperties" in inner else inner
        case list():
            return [_closed(item) for item in schema]
        case _:
            return schema


def json_schema_text() -> str:
    """The JSON Schema as text, the same on every run."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
