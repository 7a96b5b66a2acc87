"""The process's options: flags and environment to `Settings`, each value with where it came from.

A flag wins over the environment, which wins over the configuration file, which wins over the default. Options that the
file has too become `Override`s of it. `options` holds the table that everything here is made from.
"""

import argparse
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.model import virtual_node
from ..core.model.origin import Override
from ..core.model.problem import did_you_mean
from ..errors import UsageError
from .options import OPTIONS, Group, Kind, Option

__all__ = [
    "OPTIONS",
    "Group",
    "Settings",
    "add_arguments",
    "add_node_name",
    "add_plugin_flags",
    "add_run_dir",
    "from_arguments",
    "run_dir",
    "spelled_out",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of one process.

    `node_is_named`: the node's name was given, rather than taken from this host. `kubelet_socket` is None when nothing
    shall be registered; `state_dir` is None when nothing shall outlive the process; `http_address` is empty when off;
    `http_hosts` are names beside its own that the HTTP side answers to. `overrides` maps paths in the configuration
    file to values that stand over it.
    """

    config_files: tuple[Path, ...] = ()
    preset_dirs: tuple[Path, ...] = ()
    overrides: Mapping[str, Override] = field(default_factory=dict)
    node_name: str = ""
    node_is_named: bool = False
    host_root: Path = Path("/")
    cdi_dir: Path = Path("/var/run/cdi")
    device_dir: Path = Path(virtual_node.DIRECTORY)
    kubelet_dir: Path = Path("/var/lib/kubelet")
    kubelet_socket: Path | None = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
    log_level: str = "info"
    log_format: str = "auto"
    http_address: str = ""
    http_hosts: tuple[str, ...] = ()
    run_dir: Path = Path("/run/vdev")
    state_dir: Path | None = None
    enable_fault_injection: bool = False
    fault_dir: Path | None = None

    @property
    def plugin_dir(self) -> Path:
        """Where the plugin's own sockets go."""
        return self.kubelet_dir / "device-plugins"

    @property
    def pod_resources_socket(self) -> Path:
        """The kubelet's PodResources API."""
        return self.kubelet_dir / "pod-resources" / "kubelet.sock"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add every option, for the command that runs the plugin; `from_arguments` reads them."""
    _add(parser, list(Group))


def add_plugin_flags(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is advertised and injected, for the commands that only look at files."""
    _add(parser, [Group.PLUGIN, Group.PRESETS, Group.UNUSED])


def add_node_name(parser: argparse.ArgumentParser, use: str) -> None:
    """Add `--node-name` for a command that only looks at files; `use` says what for, and what its default is."""
    parser.add_argument(
        "--node-name", "--node", dest="node_name", metavar="NAME", help=f"{use.replace('%', '%%')} (env NODE_NAME)"
    )


def add_run_dir(parser: argparse.ArgumentParser) -> None:
    """Add `--run-dir`, for the commands that speak with the running plugin; `run_dir` reads it."""
    _add_option(parser, next(option for option in OPTIONS if option.name == "run-dir"))


def _add(parser: argparse.ArgumentParser, groups: Sequence[Group]) -> None:
    for group in groups:
        section = parser.add_argument_group(group.value)
        for option in OPTIONS:
            if option.group is group:
                _add_option(section, option)


def _add_option(parser: argparse._ActionsContainer, option: Option) -> None:
    parser.add_argument(
        option.flag,
        *(f"--{alias}" for alias in option.aliases),
        dest=option.dest,
        action="append" if option.kind in (Kind.LIST, Kind.PATHS) else "store",
        metavar=option.metavar or _metavar(option),
        help=_help(option),
    )


def spelled_out(arguments: Sequence[str]) -> list[str]:
    """The arguments as argparse reads them, where Go's flags, which NVIDIA's plugin has, are read otherwise.

    One dash does for two, and `--flag` of a boolean is `--flag=true`: it never takes the next argument.
    """
    booleans = {name for option in OPTIONS if option.kind is Kind.BOOLEAN for name in (option.name, *option.aliases)}
    names = {name for option in OPTIONS for name in (option.name, *option.aliases)}
    result: list[str] = []
    for number, argument in enumerate(arguments):
        if argument == "--":
            return result + list(arguments[number:])
        name, equals, _ = argument.lstrip("-").partition("=")
        dashes = len(argument) - len(argument.lstrip("-"))
        spelled = f"-{argument}" if dashes == 1 and name in names else argument
        result.append(f"{spelled}=true" if dashes in (1, 2) and name in booleans and not equals else spelled)
    return result


def run_dir(arguments: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Path:
    """The directory of the running plugin's socket. Raises UsageError."""
    return from_arguments(arguments, environ).run_dir


def from_arguments(arguments: argparse.Namespace, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of a command. Options that it does not have keep their defaults. Raises UsageError."""
    environ = os.environ if environ is None else environ
    given: dict[str, str | bool | tuple[str, ...]] = {}
    overrides: dict[str, Override] = {}
    for option in OPTIONS:
        if not hasattr(arguments, option.dest):
            continue
        found = _raw(option, getattr(arguments, option.dest), environ)
        if found is None:
            continue
        texts, source = found
        value = _parsed(option, texts, source)
        if option.key:
            overrides[option.key] = Override(value, source)
        else:
            given[option.dest] = value

    def text(name: str, default: str) -> str:
        return str(given.get(name, default))

    def several(name: str) -> tuple[str, ...]:
        value = given.get(name, ())
        return value if isinstance(value, tuple) else ()

    def paths(name: str) -> tuple[Path, ...]:
        return tuple(Path(each) for each in several(name))

    node = text("node_name", "")
    if not node.isprintable():
        raise UsageError(f"--node-name: {node!r} cannot be the name of a node")
    fault_dir, may_inject = text("fault_dir", ""), bool(given.get("enable_fault_injection", False))
    if fault_dir and not may_inject:
        raise UsageError("--fault-dir needs --enable-fault-injection: files in it make devices fail")
    kubelet_dir = Path(text("kubelet_dir", "/var/lib/kubelet"))
    socket = text("kubelet_socket", str(kubelet_dir / "device-plugins" / "kubelet.sock"))
    return Settings(
        config_files=paths("config_file"),
        preset_dirs=paths("presets_dir"),
        overrides=overrides,
        node_name=node or platform.node().lower(),
        node_is_named=bool(node),
        host_root=Path(text("host_root", "/")),
        cdi_dir=Path(text("cdi_dir", "/var/run/cdi")),
        device_dir=Path(text("device_dir", virtual_node.DIRECTORY)),
        kubelet_dir=kubelet_dir,
        kubelet_socket=Path(socket) if socket else None,
        log_level=text("log_level", "info"),
        log_format=text("log_format", "auto"),
        http_address=_address(text("http_address", "")),
        http_hosts=_hosts(several("http_hosts")),
        run_dir=Path(text("run_dir", "") or _own_run_dir(environ)),
        state_dir=None if given.get("no_state") else Path(text("state_dir", "") or _own_state_dir(environ)),
        enable_fault_injection=may_inject,
        fault_dir=Path(fault_dir) if fault_dir else None,
    )


# --- values ----------------------------------------------------------------------------------------------------------

_TRUE = ("1", "t", "T", "true", "True", "TRUE")  # Go's strconv.ParseBool, which NVIDIA's flags go through
_FALSE = ("0", "f", "F", "false", "False", "FALSE")
_MAX_PORT = 65535
_HOST = re.compile(r"[A-Za-z0-9*_-]+(\.[A-Za-z0-9*_-]+)*")


def _raw(option: Option, flag: object, environ: Mapping[str, str]) -> tuple[list[str], str] | None:
    """The texts that were given, and by what; None when nothing was. An empty variable counts as not set."""
    if flag is not None:
        return [str(each) for each in flag] if isinstance(flag, list) else [str(flag)], f"flag {option.flag}"
    for name in option.env:
        if environ.get(name) or (name in environ and option.name == "kubelet-socket"):
            return [environ[name]], f"env {name}"
    return None


def _parsed(option: Option, texts: list[str], source: str) -> str | bool | tuple[str, ...]:
    match option.kind:
        case Kind.BOOLEAN:
            if texts[-1] not in (*_TRUE, *_FALSE):
                raise UsageError(f"{source}: {texts[-1]!r} is no boolean; expected true or false")
            return texts[-1] in _TRUE
        case Kind.LIST:
            items = [item.strip() for text in texts for item in text.split(",")]
            return tuple(_chosen(option, item, source) for item in items)
        case Kind.PATHS:
            commas = [item for text in texts for item in text.split(",")]
            items = [item for text in commas for item in text.split(":")] if source.startswith("env") else texts
            if not all(item.strip() for item in items):
                raise UsageError(f"{source}: an empty path")
            return tuple(item.strip() for item in items)
        case Kind.TEXT:
            return _chosen(option, texts[-1], source)


def _chosen(option: Option, text: str, source: str) -> str:
    if option.choices and text not in option.choices:
        near = did_you_mean(text, option.choices)
        message = f"{source}: {text!r} is not allowed; expected one of {', '.join(option.choices)}"
        raise UsageError(f"{message}; {near}" if near else message)
    return text


def _address(text: str) -> str:
    if not text:
        return ""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and int(port) <= _MAX_PORT):
        raise UsageError(f"--http-address: {text!r} is no address; expected HOST:PORT, such as 127.0.0.1:8080")
    return f"{host}:{port}"


def _hosts(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _HOST.fullmatch(name):
            raise UsageError(
                f"--http-hosts: {name!r} is no host name; expected one such as vdev.example.com or *.example.com, "
                "without scheme and port"
            )
    return names


def _own_run_dir(environ: Mapping[str, str]) -> str:
    """A directory that this user may make a socket in."""
    if os.geteuid() == 0:
        return "/run/vdev"
    base = environ.get("XDG_RUNTIME_DIR")
    return f"{base}/vdev" if base else f"{environ.get('TMPDIR') or '/tmp'}/vdev-{os.geteuid()}"  # noqa: S108


def _own_state_dir(environ: Mapping[str, str]) -> str:
    """A directory of this user's that outlives a restart of the machine."""
    if os.geteuid() == 0:
        return "/var/lib/vdev"
    home = environ.get("HOME") or f"{environ.get('TMPDIR') or '/tmp'}/vdev-{os.geteuid()}"  # noqa: S108
    return f"{environ.get('XDG_STATE_HOME') or f'{home}/.local/state'}/vdev"


# --- help ------------------------------------------------------------------------------------------------------------


def _metavar(option: Option) -> str:
    if option.kind is Kind.BOOLEAN:
        return "BOOL"
    return "|".join(option.choices) if option.choices and option.kind is Kind.TEXT else option.name.upper()


def _help(option: Option) -> str:
    """One line: what it does, what is allowed, its default and its variable."""
    parts = [option.help]
    if option.kind is Kind.LIST and option.choices:
        parts.append("of " + ", ".join(option.choices))
    details = [f"default: {option.default}"] if option.default else []
    details += [f"env {' or '.join(option.env)}"] if option.env else []
    return f"{'; '.join(parts)} [{'; '.join(details)}]".replace("%", "%%")
