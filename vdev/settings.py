"""The options of a process: a field for each, with its flag, environment variables, default and help.

A flag takes precedence over the environment, the environment over the configuration file, and the file over the
default. Options that are also keys of the file (`FILE_OPTIONS`) are declared by the file's models, and given to
`config.load` as overrides. Their flags and variables are those of NVIDIA/k8s-device-plugin v0.20.0.

`cli.options` makes the command line from the fields, and reads it.
"""

import functools
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from .intervals import PRODUCTION
from .model.problem import Override
from .model.scalars import HostPort
from .model.virtual import NODE_DIRECTORY


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
        metavar: the placeholder for its value in the help.
        unset: the text in the help for a default that is empty or computed.
        may_be_empty: whether an empty variable counts as set.
        default: as in pydantic's `Field`.
    """
    names: dict[str, Any] = {"variables": list(variables), "flags": list(flags)}
    shown: dict[str, Any] = {"group": group.name, "metavar": metavar, "unset": unset, "may_be_empty": may_be_empty}
    return Field(json_schema_extra=names | shown, **default)


# --- values ----------------------------------------------------------------------------------------------------------

BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "False", "FALSE"), False
)
"""The values of Go's strconv.ParseBool, as for NVIDIA's flags."""
_HOST = re.compile(r"[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*")
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?s?")


def _boolean(text: str) -> bool:
    if text not in BOOLEANS:
        raise ValueError(f"{text!r} is not a boolean; expected true or false")
    return BOOLEANS[text]


def items(given: str | list[str]) -> list[str]:
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
Items = BeforeValidator(items)
Paths = Annotated[tuple[Path, ...], BeforeValidator(_paths)]
_files = functools.partial(_option, Group.FILES)
_presets = functools.partial(_option, Group.PRESETS)
_unused = functools.partial(_option, Group.UNUSED)
_node = functools.partial(_option, Group.NODE)
_kubelet = functools.partial(_option, Group.KUBELET)
_api = functools.partial(_option, Group.API)
_process = functools.partial(_option, Group.PROCESS)


class FileOption(NamedTuple):
    """An option that replaces a value of the configuration file, whose model has its type, default and meaning."""

    key: str
    """Its path in the file."""
    variables: tuple[str, ...]
    flags: tuple[str, ...] = ()
    """Default: made from the variables."""
    metavar: str = ""
    unset: str = ""


FILE_OPTIONS = (
    FileOption("flags.migStrategy", ("MIG_STRATEGY",)),
    FileOption("flags.failOnInitError", ("FAIL_ON_INIT_ERROR",)),
    FileOption("flags.nvidiaDriverRoot", ("NVIDIA_DRIVER_ROOT",), ("driver-root", "nvidia-driver-root"), "DIR"),
    FileOption(
        "flags.nvidiaDevRoot", ("NVIDIA_DEV_ROOT",), ("dev-root", "nvidia-dev-root"), "DIR", unset="the driver root"
    ),
    FileOption("flags.mpsRoot", ("MPS_ROOT",), metavar="DIR", unset="none"),
    FileOption("flags.plugin.passDeviceSpecs", ("PASS_DEVICE_SPECS",)),
    FileOption("flags.plugin.deviceListStrategy", ("DEVICE_LIST_STRATEGY",)),
    FileOption("flags.plugin.deviceIDStrategy", ("DEVICE_ID_STRATEGY",)),
    FileOption("flags.plugin.cdiAnnotationPrefix", ("CDI_ANNOTATION_PREFIX",), metavar="PREFIX"),
    FileOption("flags.plugin.sharedDevicesAllocationPolicy", ("SHARED_DEVICES_ALLOCATION_POLICY",)),
    FileOption("flags.gdrcopyEnabled", ("GDRCOPY_ENABLED",)),
    FileOption("flags.gdsEnabled", ("GDS_ENABLED",)),
    FileOption("flags.mofedEnabled", ("MOFED_ENABLED",)),
)
UNUSED_OPTIONS = (
    FileOption("flags.plugin.nvidiaCTKPath", ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"), metavar="FILE"),
    FileOption("flags.plugin.containerDriverRoot", ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"), metavar="DIR"),
    FileOption("flags.deviceDiscoveryStrategy", ("DEVICE_DISCOVERY_STRATEGY",), metavar="auto|nvml|tegra"),
    FileOption("imex.channelIDs", ("IMEX_CHANNEL_IDS",)),
    FileOption("imex.required", ("IMEX_REQUIRED",)),
)


class Settings(BaseModel):
    """The options of one process."""

    model_config = ConfigDict(
        frozen=True,
        use_attribute_docstrings=True,
        defer_build=True,  # --help needs no validators
    )

    sources: Mapping[str, str] = {}  # by field, what gave its value: `flag --node-name` or `env NODE_NAME`
    overrides: Mapping[str, Override] = {}  # the given options that are keys of the file, by their paths there
    config_files: Paths = _files("CONFIG_FILE", "VDEV_CONFIG_FILE", default=(), flags=("config-file",), metavar="FILE")
    """configuration file, or a directory with a file for each node; may be repeated to join files by section"""
    preset_dirs: Paths = _presets("VDEV_PRESETS_DIR", default=(), flags=("presets-dir",), metavar="DIR")
    """directory with your own presets, in addition to the file's presetsDir; may be repeated"""

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
    device_dir: Path = _node("VDEV_DEVICE_DIR", default=Path(NODE_DIRECTORY), metavar="DIR")
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
