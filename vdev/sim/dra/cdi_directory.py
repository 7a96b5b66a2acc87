"""What CDI device names put into a container, by the specs of a directory, as a container runtime resolves them.

The runtime refuses a container if a name does not resolve. Where two devices set a variable, the last one wins without
a word; here that is named, unless the last value is a list that has all of the earlier one.
"""

import stat
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import yaml

from ...json_text import parse_json
from ..objects import yaml_text
from ..objects.container_edits import DeviceNode, Edits, Mount

_SUFFIXES = {".json", ".yaml", ".yml"}
_BIND = {"bind", "rbind", "none"}  # types of mounts that have a source on the host
_Document: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a container gets. `missing` are names that no spec has, `overwritten` says which variables differ."""

    edits: Edits = field(default_factory=Edits)
    missing: tuple[str, ...] = ()
    overwritten: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def resolve(directory: Path, names: Iterable[str]) -> Resolved:
    """Resolve qualified names in order. Blocks."""
    wanted = list(dict.fromkeys(names))
    specs, problems = _specs(directory)
    found: dict[str, tuple[_Document, _Document]] = {}
    for spec in specs:
        for device in spec.get("devices") or []:
            name = f"{spec['kind']}={device['name']}"
            if name in found:
                problems.append(f"CDI device {name} is in two files, so that neither counts")
            found[name] = spec, device
    collected = _Collected()
    begun: set[int] = set()
    for name in wanted:
        if name in found:
            spec, device = found[name]
            if id(spec) not in begun:  # what a spec has for all its devices comes once, before the first
                begun.add(id(spec))
                collected.add(name, spec.get("containerEdits") or {})
            collected.add(name, device.get("containerEdits") or {})
    problems += collected.useless
    missing = tuple(name for name in wanted if name not in found)
    return Resolved(collected.edits(wanted), missing, tuple(collected.overwritten), tuple(problems))


@dataclass(slots=True)
class _Collected:
    """Edits of one container, as they come."""

    env: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    was: list[tuple[str, str]] = field(default_factory=list)  # variables with values that others replaced
    setter: dict[str, str] = field(default_factory=dict)
    useless: list[str] = field(default_factory=list)  # mounts that do not work, in sentences

    @property
    def overwritten(self) -> list[str]:
        """What is lost of variables, in sentences."""
        return [
            f"{variable}: {self.setter[variable]} sets {self.env[variable]!r}, which hides {value!r}"
            for variable, value in self.was
            if not set(value.split(",")).issubset(self.env[variable].split(","))
        ]

    def add(self, name: str, edits: _Document) -> None:
        """Those of one device, or of all devices of its spec."""
        for line in edits.get("env") or []:
            variable, _, value = str(line).partition("=")
            if self.env.get(variable, value) != value:
                self.was.append((variable, self.env[variable]))
            self.env[variable], self.setter[variable] = value, name
        for node in edits.get("deviceNodes") or []:
            host = node.get("hostPath") or node["path"]
            self.nodes[node["path"]] = DeviceNode(host, node["path"], node.get("permissions") or "rwm")
        for mount in edits.get("mounts") or []:
            options = mount.get("options") or []
            read_only = "ro" in options
            is_bind = (mount.get("type") or "bind") in _BIND
            if is_bind and (why := _why_useless(mount["hostPath"], options)):
                self.useless.append(f"{name} mounts {mount['hostPath']}, {why}")
            source = mount["hostPath"] if is_bind else mount["type"]
            self.mounts[mount["containerPath"]] = Mount(source, mount["containerPath"], read_only)

    def edits(self, names: Iterable[str]) -> Edits:
        """All of them."""
        return Edits(
            envs=MappingProxyType(self.env),
            mounts=tuple(self.mounts.values()),
            devices=tuple(self.nodes.values()),
            cdi_devices=tuple(names),
        )


def _why_useless(source: str, options: Collection[str]) -> str:
    """What is wrong with a mount of the host's: the runtime makes no source, and sees nothing wrong with `nodev`."""
    try:
        mode = Path(source).stat().st_mode if source.startswith("/") else 0
    except (FileNotFoundError, NotADirectoryError):
        return "which does not exist: no runtime starts such a container"
    except (OSError, ValueError):
        return ""
    is_device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    return "a device, with nodev: the container cannot open it" if is_device and "nodev" in options else ""


def _specs(directory: Path) -> tuple[list[_Document], list[str]]:
    """The specs of a directory, and what is wrong with files that the runtime would not read."""
    specs, problems = [], []
    try:
        files = sorted(directory.iterdir())
    except OSError:
        return [], []
    for path in files:
        if path.suffix not in _SUFFIXES or path.name.startswith("."):
            continue
        try:
            text = path.read_text()
            spec = parse_json(text) if path.suffix == ".json" else yaml_text.document(text)
            names = [device["name"] for device in spec["devices"]]
            sound = spec["cdiVersion"] and "/" in spec["kind"] and names
        except FileNotFoundError:
            continue  # it went while we looked
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            problems.append(f"{path.name} is no CDI spec: {error!r}")
            continue
        if sound:
            specs.append(spec)
        else:
            problems.append(f"{path.name} is no CDI spec: expected cdiVersion, a kind of vendor/class, and devices")
    return specs, problems
