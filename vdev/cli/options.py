"""The options of a process: each is declared once, with its flag, environment variables, type, default and help.

A flag takes precedence over the environment, the environment over the configuration file, and the file over the
default. Options that are also keys of the file (`FILE_OPTIONS`) have their type, default and help from the file's
models, and are given to `config.load` as overrides. Their flags and variables are those of NVIDIA/k8s-device-plugin
v0.20.0.
"""

import argparse
import functools
import itertools
import os
import platform
import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ..errors import ConfigError, UsageError
from ..intervals import PRODUCTION
from ..model.problem import Override, did_you_mean, listed
from ..model.scalars import HostPort
from ..model.section import PROBLEM
from ..model.spec import Spec
from ..model.virtual import NODE_DIRECTORY


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


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option, for the command line and the documentation."""

    group: Group
    variables: tuple[str, ...]  # the first one that is set counts
    flags: tuple[str, ...] = ()  # the first one is its name; declared only if they differ from the field's name
    metavar: str = ""  # declared only if the type does not say it
    default: str = ""  # as text; declared only if the default is empty or computed
    may_be_empty: bool = False  # whether an empty value counts
    key: str = ""  # its path in the configuration file, if it has one
    # From the field of the model:
    field: str = ""
    help: str = ""
    choices: tuple[str, ...] = ()
    is_list: bool = False
    is_boolean: bool = False


def _option(group: Group, *variables: str, **declared: Any) -> Option:
    """Declare an option. It annotates a field of `Settings`, whose docstring is its help."""
    return Option(group=group, variables=variables, **declared)


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
_key = functools.partial(_option, Group.PLUGIN)
FILE_OPTIONS = (
    _key("MIG_STRATEGY", key="flags.migStrategy"),
    _key("FAIL_ON_INIT_ERROR", key="flags.failOnInitError"),
    _key(
        "NVIDIA_DRIVER_ROOT",
        key="flags.nvidiaDriverRoot",
        flags=("driver-root", "nvidia-driver-root"),
        metavar="DIR",
    ),
    _key(
        "NVIDIA_DEV_ROOT",
        key="flags.nvidiaDevRoot",
        flags=("dev-root", "nvidia-dev-root"),
        metavar="DIR",
        default="the driver root",
    ),
    _key("MPS_ROOT", key="flags.mpsRoot", metavar="DIR", default="none"),
    _key("PASS_DEVICE_SPECS", key="flags.plugin.passDeviceSpecs"),
    _key("DEVICE_LIST_STRATEGY", key="flags.plugin.deviceListStrategy"),
    _key("DEVICE_ID_STRATEGY", key="flags.plugin.deviceIDStrategy"),
    _key("CDI_ANNOTATION_PREFIX", key="flags.plugin.cdiAnnotationPrefix", metavar="PREFIX"),
    _key("SHARED_DEVICES_ALLOCATION_POLICY", key="flags.plugin.sharedDevicesAllocationPolicy"),
    _key("GDRCOPY_ENABLED", key="flags.gdrcopyEnabled"),
    _key("GDS_ENABLED", key="flags.gdsEnabled"),
    _key("MOFED_ENABLED", key="flags.mofedEnabled"),
    _unused("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH", key="flags.plugin.nvidiaCTKPath", metavar="FILE"),
    _unused("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT", key="flags.plugin.containerDriverRoot", metavar="DIR"),
    _unused("DEVICE_DISCOVERY_STRATEGY", key="flags.deviceDiscoveryStrategy", metavar="auto|nvml|tegra"),
    _unused("IMEX_CHANNEL_IDS", key="imex.channelIDs"),
    _unused("IMEX_REQUIRED", key="imex.required"),
)
"""Options that replace values of the configuration file, by their keys there."""


class Settings(BaseModel):
    """The options of one process."""

    model_config = ConfigDict(
        frozen=True,
        use_attribute_docstrings=True,
        defer_build=True,  # --help needs no validators
    )

    sources: Mapping[str, str] = {}  # by field, what gave its value: `flag --node-name` or `env NODE_NAME`
    overrides: Mapping[str, Override] = {}  # the given options that are keys of the file, by their paths there
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
        str,
        AfterValidator(_node_name),
        _node("NODE_NAME", flags=("node-name", "node"), metavar="NAME", default="the host's name"),
    ]
    """name of this node, for onNodes"""
    host_root: Annotated[Path, _node("VDEV_HOST_ROOT", metavar="DIR")] = Path("/")
    """directory with the host's /dev and /sys; the kubelet still gets paths of the host"""
    cdi_dir: Annotated[Path, _node("VDEV_CDI_DIR", metavar="DIR")] = Path("/var/run/cdi")
    """directory for CDI specifications"""
    device_dir: Annotated[Path, _node("VDEV_DEVICE_DIR", metavar="DIR")] = Path(NODE_DIRECTORY)
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
    ]
    """directory for the state over a restart: what was advertised, and the last good configuration"""
    no_state: Annotated[Boolean, _node("VDEV_NO_STATE")] = False
    """keep no state over a restart: devices that pods hold may be given out again, and a bad file ends the start"""
    boot_wait: Annotated[float, BeforeValidator(_seconds), _node("VDEV_BOOT_WAIT", metavar="SECONDS")] = PRODUCTION.boot
    """as a systemd service: how long the kubelet's start waits for devices that were there in the last run"""

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
        Items,
        _process("VDEV_HTTP_HOSTS", metavar="NAME", default="none"),
    ] = ()
    """more host names that HTTP requests may use, such as vdev.example.com or *.example.com"""
    enable_fault_injection: Annotated[Boolean, _process("VDEV_ENABLE_FAULT_INJECTION")] = False
    """allow fault injection with vdev fault, vdev device and --fault-dir"""
    fault_dir: Annotated[Path | None, _process("VDEV_FAULT_DIR", metavar="DIR")] = None
    """directory of YAML files with fault rules, which apply while their file exists"""
    run_dir: Annotated[
        Path,
        _process("VDEV_RUN_DIR", metavar="DIR", default="/run/vdev, or a directory of the user's own without root"),
    ]
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


# --- the table of options ---------------------------------------------------------------------------------------------


def _of_model(option: Option, field: FieldInfo, name: str) -> Option:
    """The option with what its field of a model says: help, default and the values that are allowed."""
    flags = option.flags or tuple(each.lower().replace("_", "-") for each in ([name] if name else option.variables))
    choices, is_list = _choices(field.annotation), get_origin(field.annotation) in (tuple, list)
    text = " ".join((field.description or "").split()).removesuffix(".")
    return replace(
        option,
        field=name or flags[0].replace("-", "_"),
        help=text[:1].lower() + text[1:] if text[1:2].islower() else text,
        flags=tuple(f"--{flag}" for flag in flags),
        default=option.default or _shown(field.default),
        choices=choices,
        is_list=is_list,
        is_boolean=field.annotation is bool,
        metavar=option.metavar or ("|".join(choices) if choices and not is_list else flags[0].upper()),
    )


def _options() -> Iterator[Option]:
    for name, field in Settings.model_fields.items():
        for option in field.metadata:
            if isinstance(option, Option):
                yield _of_model(option, field, name)
    for option in FILE_OPTIONS:
        yield _of_model(option, _field_of(option.key), "")


def _field_of(key: str) -> FieldInfo:
    """The field of the file's models with this path."""
    model: Any = Spec
    for step in key.split("."):
        field: FieldInfo = next(each for each in model.model_fields.values() if each.alias == step)
        kinds = (field.annotation, *get_args(field.annotation))
        model = next((each for each in kinds if hasattr(each, "model_fields")), None)
    return field


def _choices(kind: Any) -> tuple[str, ...]:
    """The words that a type allows; empty if it allows any text."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(str(each.value) for each in kind)
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(word for inner in get_args(kind) for word in _choices(inner))


def _shown(default: Any) -> str:
    match default:
        case bool():
            return str(default).lower()
        case float():
            return f"{default:g}"
        case tuple() | list():
            return ",".join(map(str, default))
        case str() | Path():
            return str(default)
    return ""


OPTIONS = tuple(sorted(_options(), key=lambda option: [*Group].index(option.group)))
"""All options in the order of the help."""


# --- parsers ---------------------------------------------------------------------------------------------------------


def add_all(parser: argparse.ArgumentParser, groups: Container[Group] = tuple(Group)) -> None:
    """Add the options of these groups, for `read`."""
    for group, options in itertools.groupby(OPTIONS, key=lambda option: option.group):
        if group in groups:
            section = parser.add_argument_group(group.value)
            for option in options:
                _add(section, option, _help(option))


def add(parser: argparse.ArgumentParser, *fields: str, **helps: str) -> None:
    """Add the options of these fields; `helps` are fields with the help text that they have for this command."""
    known = {option.field: option for option in OPTIONS}
    for field in fields:
        _add(parser, known[field], _help(known[field]))
    for field, text in helps.items():
        _add(parser, known[field], f"{text} (env {' or '.join(known[field].variables)})")


def _add(parser: argparse._ActionsContainer, option: Option, help_: str) -> None:
    form: dict[str, Any] = {"nargs": "?", "const": "true", "metavar": "BOOL"} if option.is_boolean else {}
    form = form or {"action": "append" if option.is_list else "store", "metavar": option.metavar}
    parser.add_argument(*option.flags, dest=option.field, help=help_.replace("%", "%%"), **form)


def _help(option: Option) -> str:
    words = ", ".join(option.choices) if option.is_list else ""
    allowed = words and f"; {'of' if len(option.choices) > 1 else 'only'} {words}"
    default = f"default: {option.default}; " if option.default else ""
    return f"{option.help}{allowed} [{default}env {' or '.join(option.variables)}]"


# --- reading ---------------------------------------------------------------------------------------------------------


def read(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a command. Options that the command does not have keep their defaults, even if the environment
    sets them. Raises UsageError with all errors.
    """
    values: dict[str, Any] = _own(environ)
    sources: dict[str, str] = {}
    overrides: dict[str, Override] = {}
    for option in OPTIONS:
        if not hasattr(arguments, option.field):
            continue
        value, source = _given(option, getattr(arguments, option.field), environ)
        if not source:
            continue
        if option.key:
            overrides[option.key] = Override(_file_value(option, value), source)
        else:
            values[option.field], sources[option.field] = value, source
    problems = _refused(overrides) if overrides else []
    try:
        settings = Settings(**values, sources=sources, overrides=overrides)
    except ValidationError as invalid:
        problems += [_problem(each, sources) for each in invalid.errors()]
    if problems:
        raise UsageError("\n".join(problems))
    return settings


def _given(option: Option, flag: Any, environ: Mapping[str, str]) -> tuple[Any, str]:
    """The value of an option and its source; the source is empty if there is neither a flag nor a variable."""
    if flag is not None and (flag != "" or option.may_be_empty or option.key):
        return flag, f"flag {option.flags[0]}"
    for name in option.variables:
        if name in environ and (environ[name] or option.may_be_empty):
            return environ[name], f"env {name}"
    return None, ""


def _file_value(option: Option, given: str | list[str]) -> str | bool | tuple[str, ...]:
    """The value as the file would have it. The file's model checks it."""
    if option.is_list:
        return tuple(items(given))
    return BOOLEANS.get(str(given), str(given)) if option.is_boolean else str(given)


def _refused(overrides: Mapping[str, Override]) -> list[str]:
    """The errors in values of the file, by the file's own checks."""
    from .. import config  # not needed without such options

    try:
        config.load_text("version: v1", overrides=overrides)
    except ConfigError as bad:
        return [str(each) for each in bad.problems if each.is_error]
    return []


def _own(environ: Mapping[str, str]) -> dict[str, Any]:
    """The defaults that depend on the host and the user: the node's name, and directories that the user may write."""
    run_dir, state_dir = "/run/vdev", "/var/lib/vdev"
    if os.geteuid() != 0:
        own = f"{environ.get('TMPDIR') or '/tmp'}/vdev-{os.geteuid()}"  # for this user only
        run_dir = f"{environ['XDG_RUNTIME_DIR']}/vdev" if environ.get("XDG_RUNTIME_DIR") else own
        state = environ.get("XDG_STATE_HOME") or f"{environ.get('HOME') or own}/.local/state"
        state_dir = f"{state}/vdev"
    return {"node_name": platform.node().lower(), "run_dir": run_dir, "state_dir": state_dir}


def _problem(error: ErrorDetails, sources: Mapping[str, str]) -> str:
    """One line: where the value is from, what is wrong, and what is allowed."""
    field = str(next(iter(error["loc"]), ""))
    source = f"{sources[field]}: " if field else ""
    if error["type"] == "value_error":
        return f"{source}{error['ctx']['error']}"
    if error["type"] == PROBLEM:
        return f"{source}{error['ctx']['message']}; {error['ctx']['hint']}"
    choices = next(option.choices for option in OPTIONS if option.field == field)
    if not choices:
        return f"{source}{error['input']!r}: {error['msg']}"
    hint = listed(choices, lead="expected one of", near=did_you_mean(error["input"], choices))
    return f"{source}{error['input']!r} is not allowed; {hint}"
