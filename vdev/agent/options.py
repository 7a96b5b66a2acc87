"""The options of a process: each is declared once, with its environment variables, type, default and help.

`cli/options.py` makes flags of them, and reads them. All paths are as this process sees them; times are in seconds.
"""

import functools
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..aio.clock import SYSTEM, Clock, Timing
from ..api_server import NO_SERVER, ApiServerAddress, find_server
from ..errors import UsageError
from ..hostfs.root import HostRoot, boot_id
from ..intervals import PRODUCTION, Intervals
from ..model.problem import Override
from ..model.scalars import Duration, HostPort
from ..model.section import Plain
from ..model.virtual import NODE_DIRECTORY

if TYPE_CHECKING:
    from ..config import FileText, Loaded
    from .service_manager import ServiceManager


class Group(Enum):
    FILES = "configuration files"
    PRESETS = "presets"
    PLUGIN = "what is advertised and injected (also keys of the file; the flag wins)"
    UNUSED = "accepted because NVIDIA's plugin has them, and ignored"
    NODE = "the node"
    KUBELET = "the kubelet"
    API = "the API server (asked only if something in the configuration needs it)"
    PROCESS = "the process"


@dataclass(frozen=True)
class Option:
    """An option of the command line. It annotates a field of `Options`, whose docstring is its help."""

    group: Group
    variables: tuple[str, ...]  # the first one that is set counts
    flags: tuple[str, ...] = ()  # the first one is its name; declared only if they differ from the field's name
    metavar: str = ""  # declared only if it does not follow from the type
    default: str = ""  # as text; declared only if the default is empty or computed
    may_be_empty: bool = False  # whether an empty value counts
    key: str = ""  # its path in the configuration file, if it has one
    # From the field of the model:
    field: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_boolean: bool = False


def declare(group: Group, *variables: str, **declared: Any) -> Option:
    return Option(group, variables, **declared)


# --- values ----------------------------------------------------------------------------------------------------------

BOOLEANS = dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True) | dict.fromkeys(
    ("0", "f", "F", "false", "False", "FALSE"), False
)
"""The values of Go's strconv.ParseBool, as for NVIDIA's flags."""
_HOST = re.compile(r"[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*")


def _boolean(given: str | bool) -> bool:
    if str(given) not in BOOLEANS:
        raise ValueError(f"{given!r} is not a boolean; expected true or false")
    return BOOLEANS[str(given)]


def items(given: str | list[str]) -> list[str]:
    """Split lists. A flag may be repeated; in a flag and in the environment, commas separate items."""
    texts = [given] if isinstance(given, str) else given
    return [item.strip() for text in texts for item in text.split(",")]


def _paths(given: str | Sequence[str | Path]) -> list[str]:
    """Split paths. A flag may be repeated, with one path each time; in a variable, commas or colons separate paths."""
    items = [str(item).strip() for item in (re.split("[,:]", given) if isinstance(given, str) else given)]
    if not all(items):
        raise ValueError("an empty path")
    return items


def _unquoted(given: str | float) -> str | float:
    """Convert the text of a number to the type that it has in the file without quotes."""
    return Plain(given) if isinstance(given, str) and re.fullmatch("[-0-9.]+", given) else given


def _host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ValueError(
            f"{name!r} is not a host name; expected one such as vdev.example.com or *.example.com, without scheme and "
            "port"
        )
    return name


def _run_dir() -> Path:
    """A directory that the user may write; below /tmp, its name has the user's id."""
    if os.geteuid() == 0:
        return Path("/run/vdev")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "vdev") if runtime else Path(os.environ.get("TMPDIR") or "/tmp", f"vdev-{os.geteuid()}")


def _state_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/vdev")
    return Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "vdev")


Boolean = Annotated[bool, BeforeValidator(_boolean)]
Paths = Annotated[tuple[Path, ...], BeforeValidator(_paths)]
_files = functools.partial(declare, Group.FILES)
_presets = functools.partial(declare, Group.PRESETS)
_unused = functools.partial(declare, Group.UNUSED)
_node = functools.partial(declare, Group.NODE)
_kubelet = functools.partial(declare, Group.KUBELET)
_api = functools.partial(declare, Group.API)
_process = functools.partial(declare, Group.PROCESS)


class Options(BaseModel):
    """The options of all commands; each command has some of them.

    Tests replace fields and derived values with `model_copy(update={...})`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        arbitrary_types_allowed=True,
        defer_build=True,  # --help needs no validators
    )

    overrides: Mapping[str, Override] = {}  # the given options that are keys of the file, by their paths there
    intervals: Intervals = PRODUCTION
    clock: Clock = SYSTEM
    exit: Callable[[int], object] = os._exit  # ends the process because of a fault rule

    config_files: Annotated[
        Paths, _files("CONFIG_FILE", "VDEV_CONFIG_FILE", flags=("config-file",), metavar="FILE")
    ] = ()
    """configuration file, or a directory with a file for each node; may be repeated to join files by section"""
    preset_dirs: Annotated[Paths, _presets("VDEV_PRESETS_DIR", flags=("presets-dir",), metavar="DIR")] = ()
    """directory with your own presets, in addition to the file's presetsDir; may be repeated"""

    cdi_feature_flags: Annotated[str, _unused("CDI_FEATURE_FLAGS")] = ""
    """options of the CDI library"""
    cdi_disable_hooks: Annotated[str, _unused("CDI_DISABLE_HOOKS")] = ""
    """CDI hooks to leave out"""

    node_name: Annotated[
        str, _node("NODE_NAME", flags=("node-name", "node"), metavar="NAME", default="the host's name")
    ] = Field(default_factory=lambda: platform.node().lower())
    """name of this node, for onNodes"""
    host_root: Annotated[Path, _node("VDEV_HOST_ROOT", metavar="DIR")] = Path("/")
    """directory with the host's /dev and /sys; the kubelet still gets paths of the host"""
    cdi_dir: Annotated[Path, _node("VDEV_CDI_DIR", metavar="DIR")] = Path("/var/run/cdi")
    """directory for CDI specifications"""
    device_dir: Annotated[Path, AfterValidator(Path.absolute), _node("VDEV_DEVICE_DIR", metavar="DIR")] = Path(
        NODE_DIRECTORY
    )
    """directory for the nodes and files of virtual devices; the runtime must see it under the same path"""
    features_dir: Annotated[Path, _node("VDEV_FEATURES_DIR", metavar="DIR")] = Path(
        "/etc/kubernetes/node-feature-discovery/features.d"
    )
    """directory for the file with the node's labels, under node.labels: nfd"""
    state_dir: Annotated[
        Path,
        _node(
            "VDEV_STATE_DIR", metavar="DIR", default="/var/lib/vdev, or $XDG_STATE_HOME/vdev for other users than root"
        ),
    ] = Field(default_factory=_state_dir)
    """directory for the state that is kept across restarts: what was advertised, and the last good configuration"""
    no_state: Annotated[Boolean, _node("VDEV_NO_STATE")] = False
    """keep no state across restarts: devices that pods hold may be given out again, and a bad file prevents a start"""
    boot_wait: Annotated[Duration, BeforeValidator(_unquoted), _node("VDEV_BOOT_WAIT", metavar="DURATION")] = (
        PRODUCTION.boot
    )
    """as a systemd service: how long the kubelet's start waits for devices that were there in the last run; a number of
    seconds, or a duration such as 1m30s"""

    kubelet_dir: Annotated[Path, _kubelet("VDEV_KUBELET_DIR", metavar="DIR")] = Path("/var/lib/kubelet")
    """the kubelet's root directory, with device-plugins/ and pod-resources/"""
    kubelet_socket: Annotated[
        Path | None,
        BeforeValidator(lambda text: text or None),
        _kubelet(
            "KUBELET_SOCKET",
            metavar="FILE",
            default="device-plugins/kubelet.sock below --kubelet-dir",
            may_be_empty=True,
        ),
    ] = None
    """the socket to register at; '' to serve without registration"""

    kubeconfig: Annotated[Path | None, _api("KUBECONFIG", metavar="FILE", default="the pod's service account")] = None
    """the kubeconfig file with the API server and the user"""
    context: Annotated[str, _api("VDEV_CONTEXT", metavar="NAME", default="the file's current one")] = ""
    """the context of the kubeconfig file"""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], _process("VDEV_LOG_LEVEL")] = "info"
    """the lowest level to log"""
    log_format: Annotated[Literal["auto", "console", "json"], _process("VDEV_LOG_FORMAT")] = "auto"
    """format of the log; auto is console on a terminal, else json"""
    http_address: Annotated[HostPort, _process("VDEV_HTTP_ADDRESS", metavar="HOST:PORT", default="off")] = ""
    """serve a live page, /metrics, /healthz, /readyz and /status here, such as 127.0.0.1:8080"""
    http_hosts: Annotated[
        tuple[Annotated[str, AfterValidator(_host)], ...],
        BeforeValidator(items),
        _process("VDEV_HTTP_HOSTS", metavar="NAME", default="none"),
    ] = ()
    """more host names that HTTP requests may use, such as vdev.example.com or *.example.com"""
    fault_injection: Annotated[Boolean, _process("VDEV_ENABLE_FAULT_INJECTION", flags=("enable-fault-injection",))] = (
        False
    )
    """allow fault injection with vdev fault, vdev device and --fault-dir"""
    fault_dir: Annotated[Path | None, _process("VDEV_FAULT_DIR", metavar="DIR")] = None
    """directory of YAML files with fault rules, which apply while their file exists"""
    run_dir: Annotated[
        Path,
        _process("VDEV_RUN_DIR", metavar="DIR", default="/run/vdev, or a directory of the user's own without root"),
    ] = Field(default_factory=_run_dir)
    """directory of the socket on which the plugin serves vdev status and other commands"""

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        if self.fault_dir and not self.fault_injection:
            raise ValueError("--fault-dir needs --enable-fault-injection: files in it make devices fail")
        if self.context and not self.kubeconfig:
            raise ValueError("--context needs the file that it is in: --kubeconfig FILE (env KUBECONFIG)")
        return self

    def load(self, files: "Sequence[FileText | Path | str]", **how: Any) -> "Loaded":
        """Load configuration files with the overrides and presets of this process."""
        from .. import config  # not needed for --help

        return config.load(files, overrides=self.overrides, preset_dirs=self.preset_dirs, **how)

    @property
    def named_node(self) -> str:
        """The node's name if it was given; empty if it is the host's name."""
        return self.node_name if "node_name" in self.model_fields_set else ""

    @cached_property
    def plugin_dir(self) -> Path:
        return self.kubelet_dir / "device-plugins"

    @cached_property
    def registration_socket(self) -> Path | None:
        given = "kubelet_socket" in self.model_fields_set
        return self.kubelet_socket if given else self.plugin_dir / "kubelet.sock"

    @cached_property
    def pod_resources_socket(self) -> Path:
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"

    @cached_property
    def smi_dir(self) -> Path:
        """The directory for the vendors' tools, which the runtime mounts from it."""
        return self.state_dir.absolute() / "smi" / self.node_name

    @cached_property
    def host(self) -> HostRoot:
        return HostRoot(self.host_root)

    @cached_property
    def api_server(self) -> ApiServerAddress | None:
        return find_server(kubeconfig=self.kubeconfig, context=self.context)

    @property
    def needed_api_server(self) -> ApiServerAddress:
        """The API server. Raises UsageError if there is none."""
        if self.kubeconfig and not self.kubeconfig.exists():
            raise UsageError(f"the kubeconfig file {self.kubeconfig} does not exist")
        if self.api_server is None:
            raise UsageError(NO_SERVER)
        return self.api_server

    @cached_property
    def service_manager(self) -> "ServiceManager | None":
        from . import service_manager

        return service_manager.from_environment(os.environ)

    @cached_property
    def boot_id(self) -> str:
        """The id of this boot of the machine, empty if it is unknown."""
        return boot_id()

    @property
    def timing(self) -> Timing:
        return Timing(self.intervals, self.clock)
