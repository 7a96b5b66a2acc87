"""The edits that CDI device names make to a container, by the specifications of a directory, as a runtime applies them.

A runtime refuses a container if a name does not resolve. If two devices set a variable, the last value wins silently.
This is reported here, unless the last value is a list that contains all earlier values.
"""

import stat
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import yaml

from ...json_text import parse_json
from ..api.kinds import Document
from ..objects import yaml_text
from ..objects.container_edits import DeviceNode, Edits, Mount

_SUFFIXES = {".json", ".yaml", ".yml"}
_BIND = {"bind", "rbind", "none"}  # types of mounts that have a source on the host


@dataclass(frozen=True, slots=True)
class Resolved:
    """The edits of a container, and what is wrong with them."""

    edits: Edits = field(default_factory=Edits)
    missing: tuple[str, ...] = ()  # names that no specification defines
    overwritten: tuple[str, ...] = ()  # lost values of variables, in sentences
    problems: tuple[str, ...] = ()  # invalid files and useless mounts


def resolve(directory: Path, names: Iterable[str]) -> Resolved:
    """Resolve qualified names in order. Blocks."""
    wanted = list(dict.fromkeys(names))
    specs, problems = _specs(directory)
    found: dict[str, tuple[Document, Document]] = {}
    for spec in specs:
        for device in spec.get("devices") or []:
            name = f"{spec['kind']}={device['name']}"
            if name in found:
                problems.append(f"CDI device {name} is in two files, so the runtime uses neither")
            found[name] = spec, device
    collected = _Collected()
    applied: set[int] = set()
    for name in (name for name in wanted if name in found):
        spec, device = found[name]
        if id(spec) not in applied:  # the edits for all devices of a specification are applied once, before the first
            applied.add(id(spec))
            collected.add(name, spec.get("containerEdits") or {})
        collected.add(name, device.get("containerEdits") or {})
    missing = tuple(name for name in wanted if name not in found)
    problems += collected.useless
    return Resolved(collected.edits(wanted), missing, tuple(collected.overwritten()), tuple(problems))


@dataclass(slots=True)
class _Collected:
    """The edits of one container, while they are collected."""

    env: dict[str, str] = field(default_factory=dict)
    setter: dict[str, str] = field(default_factory=dict)  # the CDI name that set each variable last
    replaced: list[tuple[str, str]] = field(default_factory=list)  # earlier values of variables
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    mounts: dict[str, Mount] = field(default_factory=dict)
    useless: list[str] = field(default_factory=list)  # mounts that do not work, in sentences

    def add(self, name: str, edits: Document) -> None:
        for line in edits.get("env") or []:
            variable, _, value = str(line).partition("=")
            if self.env.get(variable, value) != value:
                self.replaced.append((variable, self.env[variable]))
            self.env[variable], self.setter[variable] = value, name
        for node in edits.get("deviceNodes") or []:
            host = node.get("hostPath") or node["path"]
            self.nodes[node["path"]] = DeviceNode(host, node["path"], node.get("permissions") or "rwm")
        for mount in edits.get("mounts") or []:
            options, source = mount.get("options") or [], mount["hostPath"]
            if (mount.get("type") or "bind") not in _BIND:
                source = mount["type"]
            elif why := _why_useless(source, options):
                self.useless.append(f"{name} mounts {source}, {why}")
            self.mounts[mount["containerPath"]] = Mount(source, mount["containerPath"], "ro" in options)

    def overwritten(self) -> list[str]:
        return [
            f"{variable}: {self.setter[variable]} sets {self.env[variable]!r}, which hides {value!r}"
            for variable, value in self.replaced
            if not set(value.split(",")).issubset(self.env[variable].split(","))
        ]

    def edits(self, names: Iterable[str]) -> Edits:
        return Edits(
            envs=MappingProxyType(self.env),
            mounts=tuple(self.mounts.values()),
            devices=tuple(self.nodes.values()),
            cdi_devices=tuple(names),
        )


def _why_useless(source: str, options: Collection[str]) -> str:
    """Why a container cannot use a mount of the host; empty if it can.

    A runtime does not create the source of a CDI mount, and accepts `nodev` for a device.
    """
    try:
        mode = Path(source).stat().st_mode if source.startswith("/") else 0
    except (FileNotFoundError, NotADirectoryError):
        return "which does not exist: no runtime starts such a container"
    except (OSError, ValueError):
        return ""
    is_device = stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
    return "a device, with nodev: the container cannot open it" if is_device and "nodev" in options else ""


def _specs(directory: Path) -> tuple[list[Document], list[str]]:
    """The specifications of a directory, and the files that a runtime would not read, with the reason."""
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
            valid = spec["cdiVersion"] and "/" in spec["kind"] and names
        except FileNotFoundError:
            continue  # deleted in the meantime
        except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            problems.append(f"{path.name} is not a CDI specification: {error!r}")
            continue
        if valid:
            specs.append(spec)
        else:
            text = "expected cdiVersion, a kind of vendor/class, and devices"
            problems.append(f"{path.name} is not a CDI specification: {text}")
    return specs, problems
