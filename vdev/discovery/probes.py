"""The four probes, and the directories to watch for them. Everything here blocks.

    exists   all nodes and mounted paths of the device are there, and the nodes are device nodes
    open     every node can be opened with the container's permissions; EBUSY is healthy, because the device is in use
    file     a file has the expected content, or exists; a path of this process, not below the host root
    command  a program exits with 0

Opening a device may change it: a serial line raises DTR, which resets an Arduino. Begin with `exists`.
"""

import contextlib
import errno
import os
import posixpath
from pathlib import Path
from typing import NamedTuple, assert_never

from ..aio.program import Program, shown
from ..errors import HostError, reason_of
from ..hostfs import HostRoot
from ..model.device import RawDevice, facts
from ..model.entry import HealthCheck, Probe

_HERE = HostRoot()
_ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY}


class Target(NamedTuple):
    """A device to probe."""

    spec: HealthCheck
    device: RawDevice
    resource: str = ""


def program_of(target: Target) -> Program:
    """The program of the probe `command`; `Program.abort` ends it."""
    values = facts(target.device, target.resource)
    return Program([argument.render(values) for argument in target.spec.command])


def failure(target: Target, host: HostRoot, program: Program) -> str:
    """Why the probe fails; empty if it succeeds. Blocks, in the worst case forever."""
    spec, device, _ = target
    try:
        match spec.probe:
            case Probe.EXISTS:
                return _missing(device, host)
            case Probe.OPEN:
                return _not_opened(device, host)
            case Probe.FILE:
                return _other_content(_file(target), spec.content.strip())
            case Probe.COMMAND:
                return program.run()
            case _:
                assert_never(spec.probe)
    except HostError as broken:
        return str(broken)


def directories(target: Target, host: HostRoot) -> frozenset[Path]:
    """The directories whose changes may change the result of the probe."""
    spec, device, _ = target
    if spec.probe is Probe.COMMAND:
        return frozenset()
    paths = [*(node.host_path for node in device.nodes), *(mount.host_path for mount in device.mounts)]
    if spec.probe is Probe.FILE:
        host, paths = _HERE, [_file(target)]
    found = set()
    for path in paths:
        with contextlib.suppress(HostError):
            found.add(host.path(posixpath.dirname(path)))
    return frozenset(found)


def _missing(device: RawDevice, host: HostRoot) -> str:
    nodes = {node.host_path for node in device.nodes}
    for path in (*sorted(nodes), *(mount.host_path for mount in device.mounts)):
        info = host.info(path)
        if info is None:
            return f"{path} is gone"
        if path in nodes and not info.is_device:
            return f"{path} is no longer a device node"
    return ""


def _not_opened(device: RawDevice, host: HostRoot) -> str:
    for node in device.nodes:
        path = host.path(node.host_path)
        try:
            access = _ACCESS.get(node.permissions.replace("m", ""), os.O_RDWR)
            os.close(os.open(path, access | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
        except OSError as cause:
            if cause.errno != errno.EBUSY:
                return f"cannot open {node.host_path}: {reason_of(cause)}"
    return ""


def _file(target: Target) -> str:
    return target.spec.path.render(facts(target.device, target.resource)) if target.spec.path else ""


def _other_content(path: str, wanted: str) -> str:
    text = _HERE.read_text(path)
    if text is None:
        return f"{path} is missing"
    if wanted and text != wanted:
        return f"{path} holds {shown(text)!r}, not {wanted!r}"
    return ""
