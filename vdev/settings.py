"""The options of a process: a field for each, with its flag, environment variables, default, help and key in the file.

A flag takes precedence over the environment, the environment over the configuration file, and the file over the
default. Options that are also keys of the file are given to `config.load` as `overrides`. Flags, aliases and variables
of the plugin are those of NVIDIA/k8s-device-plugin v0.20.0.

`cli.options` makes the command line from the fields, and reads it.
"""

import functools
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, AliasChoices, BeforeValidator, Field, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, SettingsConfigDict

from .intervals import PRODUCTION
from .model import virtual_node
from .model.entry import AllocationPolicy, DeviceIdStrategy, DeviceListStrategy, MigStrategy
from .model.problem import Override
from .model.scalars import HostPort
from .model.spec import DEFAULT_FLAGS


class Group(Enum):
    """Groups of options; the value is the heading in the help."""

    FILES = "configuration files"
    PRESETS = "presets"
    PLUGIN = "what is advertised and injected (also keys of the file; the flag wins)"
    UNUSED = "accepted because NVIDIA's plugin has them, and ignored"
    NODE = "the node"
    KUBELET = "the kubelet"
    API = "the API server (asked only if something in the configuration needs it)"
    PROCESS = "the process"


def _option(
    group: Group,
    *variables: str,
    flags: tuple[str, ...] = (),
    key: str = "",
    metavar: str = "",
    unset: str = "",
    may_be_empty: bool = False,
    **default: Any,
) -> Any:
    """Declare a field of `Settings`, whose docstring is its text in the help.

    Args:
        group: its heading in the help.
        variables: environment variables; the first one that is set counts.
        flags: its names on the command line, without dashes. Default: made from the field's name.
        key: its path in the configuration file, if it has one.
        metavar: the placeholder for its value in the help.
        unset: the text in the help for a default that is empty or computed.
        may_be_empty: whether an empty variable counts as set.
        default: as in pydantic's `Field`.
    """
    shown: dict[str, Any] = {"metavar": metavar, "unset": unset}
    extra = shown | {"group": group.name, "flags": list(flags), "key": key, "may_be_empty": may_be_empty}
    return Field(validation_alias=AliasChoices(*variables), json_schema_extra=extra, **default)


def declared(field: FieldInfo) -> dict[str, Any]:
    """Return what `_option` recorded for a field in addition to pydantic's own attributes."""
    return dict(field.json_schema_extra) if isinstance(field.json_schema_extra, Mapping) else {}


# --- values ----------------------------------------------------------------------------------------------------------

_TRUE = ("1", "t", "T", "true", "True", "TRUE")  # Go's strconv.ParseBool, which NVIDIA's flags go through
_FALSE = ("0", "f", "F", "false", "False", "FALSE")
_HOST = re.compile(r"[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*")
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?s?")


def _boolean(text: str) -> bool:
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(f"{text!r} is not a boolean; expected true or false")
    return text in _TRUE


def _items(given: str | list[str]) -> list[str]:
    """Split lists. A flag may be repeated; in a flag and in the environment, commas separate items."""
    texts = [given] if isinstance(given, str) else given
    return [item.strip() for text in texts for item in text.split(",")]


def _paths(given: str | list[str]) -> list[str]:
    """Split paths. A flag may be repeated, with one path each time; in a variable, commas or colons separate paths."""
    items = [item.strip() for item in (re.split("[,:]", given) if isinstance(given, str) else given)]
    if not all(items):
        raise ValueError("an empty path")
    return items


def _host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a host name; expected one such as vdev.example.com or *.example.com, without scheme and "
            "port"
        )
    return name


def _node_name(name: str) -> str:
    if not name.isprintable():
        raise ValueError(f"{name!r} cannot be the name of a node")
    return name


def _seconds(text: str) -> float:
    if not _SECONDS.fullmatch(text):
        raise ValueError(f"{text!r} is not a number of seconds; expected one such as 30, 30s or 0")
    return float(text.removesuffix("s"))


Boolean = Annotated[bool, BeforeValidator(_boolean)]
Items = BeforeValidator(_items)
Paths = Annotated[tuple[Path, ...], BeforeValidator(_paths)]
_files = functools.partial(_option, Group.FILES)
_presets = functools.partial(_option, Group.PRESETS)
_unused = functools.partial(_option, Group.UNUSED)
_node = functools.partial(_option, Group.NODE)
_kubelet = functools.partial(_option, Group.KUBELET)
_api = functools.partial(_option, Group.API)
_process = functools.partial(_option, Group.PROCESS)


def _plugin(key: str, *variables: str, **shown: Any) -> Any:
    """Declare an option that is also a key of the file, with the default that it has there."""
    default: Any = DEFAULT_FLAGS
    for step in key.split(".")[1:]:
        default = default.by_key[step]
    return _option(Group.PLUGIN, *variables, key=key, default=default, **shown)


class Settings(BaseSettings):
    """The options of one process.

    A field that is also a key of the file does not have the file's value: see `overrides`.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        use_attribute_docstrings=True,
        case_sensitive=True,
        validate_default=False,
        enable_decoding=False,  # lists are not written as JSON
        loc_by_alias=False,
        defer_build=True,  # --help needs no validators
    )

    sources: Mapping[str, str] = {}  # by field, what gave its value: `flag --mig-strategy` or `env MIG_STRATEGY`
    config_files: Paths = _files("CONFIG_FILE", "VDEV_CONFIG_FILE", default=(), flags=("config-file",), metavar="FILE")
    """configuration file, or a directory with a file for each node; may be repeated to join files by section"""
    preset_dirs: Paths = _presets("VDEV_PRESETS_DIR", default=(), flags=("presets-dir",), metavar="DIR")
    """directory with your own presets, in addition to the file's presetsDir; may be repeated"""

    mig_strategy: MigStrategy = _plugin("flags.migStrategy", "MIG_STRATEGY")
    """how partitions are advertised"""
    fail_on_init_error: Boolean = _plugin("flags.failOnInitError", "FAIL_ON_INIT_ERROR")
    """exit if anything is wrong at start-up, instead of serving the rest"""
    driver_root: str = _plugin(
        "flags.nvidiaDriverRoot", "NVIDIA_DRIVER_ROOT", flags=("driver-root", "nvidia-driver-root"), metavar="DIR"
    )
    """prefix of the host's paths of device nodes and mounts"""
    dev_root: str = _plugin(
        "flags.nvidiaDevRoot",
        "NVIDIA_DEV_ROOT",
        flags=("dev-root", "nvidia-dev-root"),
        metavar="DIR",
        unset="the driver root",
    )
    """prefix of the host's paths of device nodes"""
    mps_root: str = _plugin("flags.mpsRoot", "MPS_ROOT", metavar="DIR", unset="none")
    """directory of the MPS daemon on the host; sharing.mps uses NVIDIA's /run/nvidia/mps by default"""
    pass_device_specs: Boolean = _plugin("flags.plugin.passDeviceSpecs", "PASS_DEVICE_SPECS")
    """also give the device nodes to the kubelet"""
    device_list_strategy: Annotated[tuple[DeviceListStrategy, ...], Items] = _plugin(
        "flags.plugin.deviceListStrategy", "DEVICE_LIST_STRATEGY"
    )
    """how the runtime gets the list of devices; several with commas, or repeated"""
    device_id_strategy: DeviceIdStrategy = _plugin("flags.plugin.deviceIDStrategy", "DEVICE_ID_STRATEGY")
    """how a device is named inside the container"""
    cdi_annotation_prefix: str = _plugin("flags.plugin.cdiAnnotationPrefix", "CDI_ANNOTATION_PREFIX", metavar="PREFIX")
    """prefix of the annotation's key, for the strategy cdi-annotations"""
    shared_devices_allocation_policy: AllocationPolicy = _plugin(
        "flags.plugin.sharedDevicesAllocationPolicy", "SHARED_DEVICES_ALLOCATION_POLICY"
    )
    """whether to spread replicas and partitions over the devices, or to fill one device after the other"""
    gdrcopy_enabled: Boolean = _plugin("flags.gdrcopyEnabled", "GDRCOPY_ENABLED")
    """set NVIDIA_GDRCOPY=enabled in containers with NVIDIA devices"""
    gds_enabled: Boolean = _plugin("flags.gdsEnabled", "GDS_ENABLED")
    """set NVIDIA_GDS=enabled in containers with NVIDIA devices"""
    mofed_enabled: Boolean = _plugin("flags.mofedEnabled", "MOFED_ENABLED")
    """set NVIDIA_MOFED=enabled in containers with NVIDIA devices"""

    nvidia_ctk_path: str = _unused(
        "NVIDIA_CDI_HOOK_PATH",
        "NVIDIA_CTK_PATH",
        default="",
        flags=("nvidia-cdi-hook-path", "nvidia-ctk-path"),
        key="flags.plugin.nvidiaCTKPath",
        metavar="FILE",
    )
    """the program for CDI hooks"""
    container_driver_root: str = _unused(
        "DRIVER_ROOT_CTR_PATH",
        "CONTAINER_DRIVER_ROOT",
        default="",
        flags=("driver-root-ctr-path", "container-driver-root"),
        key="flags.plugin.containerDriverRoot",
        metavar="DIR",
    )
    """the driver root inside the plugin's container"""
    device_discovery_strategy: Literal["auto", "nvml", "tegra"] | None = _unused(
        "DEVICE_DISCOVERY_STRATEGY", default=None, key="flags.deviceDiscoveryStrategy"
    )
    """how devices are found"""
    imex_channel_ids: Annotated[tuple[Literal["0"], ...], Items] = _unused(
        "IMEX_CHANNEL_IDS", default=(), key="imex.channelIDs"
    )
    """IMEX channels"""
    imex_required: Boolean = _unused("IMEX_REQUIRED", default=False, key="imex.required")
    """whether the IMEX channels must exist"""
    cdi_feature_flags: str = _unused("CDI_FEATURE_FLAGS", default="")
    """options of the CDI library"""
    cdi_disable_hooks: str = _unused("CDI_DISABLE_HOOKS", default="")
    """CDI hooks to leave out"""

    node_name: Annotated[str, AfterValidator(_node_name)] = _node(
        "NODE_NAME", flags=("node-name", "node"), metavar="NAME", unset="the host's name"
    )
    """name of this node, for onNodes"""
    host_root: Path = _node("VDEV_HOST_ROOT", default=Path("/"), metavar="DIR")
    """directory with the host's /dev and /sys; the kubelet still gets paths of the host"""
    cdi_dir: Path = _node("VDEV_CDI_DIR", default=Path("/var/run/cdi"), metavar="DIR")
    """directory for CDI specifications"""
    device_dir: Path = _node("VDEV_DEVICE_DIR", default=Path(virtual_node.DIRECTORY), metavar="DIR")
    """directory for the nodes and files of virtual devices; the runtime must see it under the same path"""
    features_dir: Path = _node(
        "VDEV_FEATURES_DIR", default=Path("/etc/kubernetes/node-feature-discovery/features.d"), metavar="DIR"
    )
    """directory for the file with the node's labels, under node.labels: nfd"""
    state_dir: Path = _node(
        "VDEV_STATE_DIR", metavar="DIR", unset="/var/lib/vdev, or $XDG_STATE_HOME/vdev for other users than root"
    )
    """directory for the state over a restart: what was advertised, and the last good configuration"""
    no_state: Boolean = _node("VDEV_NO_STATE", default=False)
    """keep no state over a restart: devices that pods hold may be given out again, and a bad file ends the start"""
    boot_wait: Annotated[float, BeforeValidator(_seconds)] = _node(
        "VDEV_BOOT_WAIT", default=PRODUCTION.boot, metavar="SECONDS"
    )
    """as a systemd service: how long the kubelet's start waits for devices that were there in the last run"""

    kubelet_dir: Path = _kubelet("VDEV_KUBELET_DIR", default=Path("/var/lib/kubelet"), metavar="DIR")
    """the kubelet's root directory, with device-plugins/ and pod-resources/"""
    kubelet_socket: Annotated[Path | None, BeforeValidator(lambda text: text or None)] = _kubelet(
        "KUBELET_SOCKET",
        default=None,
        metavar="FILE",
        unset="device-plugins/kubelet.sock below --kubelet-dir",
        may_be_empty=True,
    )
    """the socket to register at; '' to serve without registration"""

    kubeconfig: Path | None = _api("KUBECONFIG", default=None, metavar="FILE", unset="the pod's service account")
    """the kubeconfig file with the API server and the user"""
    context: str = _api("VDEV_CONTEXT", default="", metavar="NAME", unset="the file's current one")
    """the context of the kubeconfig file"""

    log_level: Literal["debug", "info", "warning", "error"] = _process("VDEV_LOG_LEVEL", default="info")
    """the lowest level to log"""
    log_format: Literal["auto", "console", "json"] = _process("VDEV_LOG_FORMAT", default="auto")
    """format of the log; auto is console on a terminal, else json"""
    http_address: HostPort = _process("VDEV_HTTP_ADDRESS", default="", metavar="HOST:PORT", unset="off")
    """serve a live page, /metrics, /healthz, /readyz and /status here, such as 127.0.0.1:8080"""
    http_hosts: Annotated[tuple[Annotated[str, AfterValidator(_host)], ...], Items] = _process(
        "VDEV_HTTP_HOSTS", default=(), metavar="NAME", unset="none"
    )
    """more host names that HTTP requests may use, such as vdev.example.com or *.example.com"""
    enable_fault_injection: Boolean = _process("VDEV_ENABLE_FAULT_INJECTION", default=False)
    """allow fault injection with vdev fault, vdev device and --fault-dir"""
    fault_dir: Path | None = _process("VDEV_FAULT_DIR", default=None, metavar="DIR")
    """directory of YAML files with fault rules, which apply while their file exists"""
    run_dir: Path = _process(
        "VDEV_RUN_DIR", metavar="DIR", unset="/run/vdev, or a directory of the user's own without root"
    )
    """directory of the socket on which the plugin serves vdev status and other commands"""

    @model_validator(mode="after")
    def _faults_are_allowed(self) -> Self:
        if self.fault_dir and not self.enable_fault_injection:
            raise ValueError("--fault-dir needs --enable-fault-injection: files in it make devices fail")
        return self

    @model_validator(mode="after")
    def _the_context_is_in_a_file(self) -> Self:
        if self.context and not self.kubeconfig:
            raise ValueError("--context needs the file that it is in: --kubeconfig FILE (env KUBECONFIG)")
        return self

    @property
    def overrides(self) -> dict[str, Override]:
        """The given options that are also keys of the configuration file, by their paths there."""
        keys = {name: declared(type(self).model_fields[name])["key"] for name in self.sources}
        return {key: Override(_plain(getattr(self, name)), self.sources[name]) for name, key in keys.items() if key}

    @property
    def named_node(self) -> str:
        """The node's name if it was given; empty if it is the host's name."""
        return self.node_name if "node_name" in self.sources else ""

    @property
    def plugin_dir(self) -> Path:
        """The directory of the plugin's own sockets."""
        return self.kubelet_dir / "device-plugins"

    @property
    def registration_socket(self) -> Path | None:
        """The socket to register at, or None."""
        return self.kubelet_socket if "kubelet_socket" in self.sources else self.plugin_dir / "kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"


def _plain(value: Any) -> str | bool | tuple[str, ...]:
    """Return the value as the file would have it."""
    if isinstance(value, tuple):
        return tuple(str(each) for each in value)
    return value if isinstance(value, bool) else str(value)
