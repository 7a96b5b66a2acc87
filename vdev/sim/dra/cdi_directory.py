"""Resolves CDI device names to container edits with the specifications of a directory, like a container runtime.

A runtime refuses a container if a name does not resolve. If two devices set a variable, the last value wins silently.
This is reported here, unless the last value is a list that contains all earlier values.
"""

import json
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import yaml

from ..api.kinds import Document
from ..lint import Finding, error
from ..objects import yaml_text
from ..objects.pods import DeviceNode, Edits, Mount

_SUFFIXES = {".json", ".yaml", ".yml"}
_BIND = {"bind", "rbind", "none"}  # mount types with a source on the host


def resolve(directory: Path, given: Edits) -> tuple[Edits, list[str], list[Finding]]:
    """Resolve the CDI names of a container's edits in order, and apply the edits that they stand for. Blocks.

    Also returns the names that no specification defines, and findings: overwritten variables, invalid files and
    useless mounts.
    """
    wanted = list(dict.fromkeys(given.cdi_devices))
    specs, problems = _specs(directory)
    found: dict[str, tuple[Document, Document]] = {}
    for spec in specs:
        for device in spec.get("devices") or []:
            name = f"{spec['kind']}={device['name']}"
            if name in found:
                problems.append(f"CDI device {name} is in two files, so the runtime uses neither")
            found[name] = spec, device

    env: dict[str, str] = {}
    setter: dict[str, str] = {}  # the last CDI name that sets each variable
    replaced: list[tuple[str, str]] = []  # overwritten values of variables
    nodes = {each.container_path: each for each in given.devices}
    mounts = {each.container_path: each for each in given.mounts}
    for name, edits in _in_order(found, wanted):
        for line in edits.get("env") or []:
            variable, _, value = str(line).partition("=")
            if env.get(variable, value) != value:
                replaced.append((variable, env[variable]))
            env[variable], setter[variable] = value, name
        for node in edits.get("deviceNodes") or []:
            host = node.get("hostPath") or node["path"]
            nodes[node["path"]] = DeviceNode(host, node["path"], node.get("permissions") or "rwm")
        for mount in edits.get("mounts") or []:
            options, source = mount.get("options") or [], mount["hostPath"]
            if (mount.get("type") or "bind") not in _BIND:
                source = mount["type"]
            elif why := _why_useless(source, options):
                problems.append(f"{name} mounts {source}, {why}")
            mounts[mount["containerPath"]] = Mount(source, mount["containerPath"], "ro" in options)
    findings = [error("cdi-spec", "", text) for text in problems]
    for variable, value in replaced:
        if not set(value.split(",")).issubset(env[variable].split(",")):
            text = f"{variable}: {setter[variable]} sets {env[variable]!r}, which hides {value!r}"
            findings.append(error("cdi-overwritten", "", text))
    envs = {**given.envs, **env}
    applied = Edits(envs, tuple(mounts.values()), tuple(nodes.values()), given.annotations, tuple(wanted))
    return applied, [name for name in wanted if name not in found], findings


def _in_order(found: Mapping[str, tuple[Document, Document]], names: Iterable[str]) -> Iterator[tuple[str, Document]]:
    """Yield the edits of each name. Edits of a whole specification come once, before its first device."""
    applied: set[int] = set()
    for name in names:
        if name in found:
            spec, device = found[name]
            if id(spec) not in applied:
                applied.add(id(spec))
                yield name, spec.get("containerEdits") or {}
            yield name, device.get("containerEdits") or {}


def _why_useless(source: str, options: Collection[str]) -> str:
    """Return why a container cannot use a mount, or an empty text if it can.

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
    """Return the specifications of a directory, and messages about files that a runtime ignores."""
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
            spec = json.loads(text) if path.suffix == ".json" else yaml_text.document(text)
            names = [device["name"] for device in spec["devices"]]
            valid = spec["cdiVersion"] and "/" in spec["kind"] and names
        except FileNotFoundError:
            continue  # deleted after it was listed
        except (OSError, ValueError, KeyError, TypeError, RecursionError, yaml.YAMLError) as failed:
            problems.append(f"{path.name} is not a CDI specification: {failed!r}")
            continue
        if valid:
            specs.append(spec)
        else:
            text = "expected cdiVersion, a kind of vendor/class, and devices"
            problems.append(f"{path.name} is not a CDI specification: {text}")
    return specs, problems
