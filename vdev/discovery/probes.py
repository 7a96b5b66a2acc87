"""The four probes. Each is made again for every run; `run` blocks and says what is wrong, `abort` ends it if possible.

    exists   all nodes and mounted paths of the device are there, and the nodes are device nodes
    open     every node can be opened the way the container may open it; EBUSY is healthy, because somebody is using it
    file     a file has the expected content, or exists; a path of this process, not below the host root
    command  a program exits with 0

Opening a device may change it: a serial line raises DTR, which resets an Arduino. Begin with `exists`.
"""

import errno
import os
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, assert_never

from ..aio.program import Program, shown
from ..errors import HostError, reason_of
from ..hostfs import HostRoot
from ..model.device import DeviceNode, RawDevice, facts
from ..model.entry import Health as HealthPolicy
from ..model.entry import Probe
from ..planning.health import Outcome

_OK = Outcome(ok=True)
_HERE = HostRoot()


class Prober(Protocol):
    def run(self) -> Outcome:
        """Probe once. Blocks, in the worst case forever."""

    def abort(self) -> None:
        """End a `run` in another thread if that is possible; never blocks."""

    def directories(self) -> frozenset[Path]:
        """Directories whose changes may change the outcome; blocks. After `run`, which has found the way to them."""


def prober(spec: HealthPolicy, device: RawDevice, resource: str, host: HostRoot) -> Prober:
    values = facts(device, resource)
    match spec.probe:
        case Probe.EXISTS:
            return _Exists(device, host)
        case Probe.OPEN:
            return _Open(device, host)
        case Probe.FILE:
            return _File(spec.path.render(values) if spec.path else "", spec.content)
        case Probe.COMMAND:
            return _Command([argument.render(values) for argument in spec.command])
        case _:
            assert_never(spec.probe)


class _Exists:
    def __init__(self, device: RawDevice, host: HostRoot) -> None:
        self._nodes = frozenset(node.host_path for node in device.nodes)
        self._paths = [*sorted(self._nodes), *(mount.host_path for mount in device.mounts)]
        self._host = host

    def run(self) -> Outcome:
        for path in self._paths:
            try:
                info = self._host.info(path)
            except HostError as broken:
                return Outcome(ok=False, reason=str(broken))
            if info is None:
                return Outcome(ok=False, reason=f"{path} is gone")
            if path in self._nodes and not info.is_device:
                return Outcome(ok=False, reason=f"{path} is no longer a device node")
        return _OK

    def abort(self) -> None:
        """Looking at a file cannot be interrupted."""

    def directories(self) -> frozenset[Path]:
        return _directories(self._host, self._paths)


class _Open:
    def __init__(self, device: RawDevice, host: HostRoot) -> None:
        self._nodes = device.nodes
        self._host = host

    def run(self) -> Outcome:
        for node in self._nodes:
            try:
                path = self._host.path(node.host_path)
                os.close(os.open(path, _access(node) | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
            except HostError as broken:
                return Outcome(ok=False, reason=str(broken))
            except OSError as cause:
                if cause.errno != errno.EBUSY:
                    return Outcome(ok=False, reason=f"cannot open {node.host_path}: {reason_of(cause)}")
        return _OK

    def abort(self) -> None:
        """An open that hangs in the kernel cannot be interrupted."""

    def directories(self) -> frozenset[Path]:
        return _directories(self._host, [node.host_path for node in self._nodes])


def _access(node: DeviceNode) -> int:
    match "r" in node.permissions, "w" in node.permissions:
        case True, False:
            return os.O_RDONLY
        case False, True:
            return os.O_WRONLY
        case _:
            return os.O_RDWR


class _File:
    def __init__(self, path: str, content: str) -> None:
        self._path = path
        self._content = content.strip()

    def run(self) -> Outcome:
        try:
            text = _HERE.read_text(self._path)
        except HostError as broken:
            return Outcome(ok=False, reason=str(broken))
        if text is None:
            return Outcome(ok=False, reason=f"{self._path} is missing")
        if self._content and text != self._content:
            return Outcome(ok=False, reason=f"{self._path} holds {shown(text)!r}, not {self._content!r}")
        return _OK

    def abort(self) -> None:
        """Reading a file cannot be interrupted."""

    def directories(self) -> frozenset[Path]:
        return _directories(_HERE, [self._path])


class _Command:
    def __init__(self, argv: Sequence[str]) -> None:
        self._program = Program(argv)

    def run(self) -> Outcome:
        reason = self._program.run()
        return Outcome(ok=not reason, reason=reason)

    def abort(self) -> None:
        self._program.abort()

    def directories(self) -> frozenset[Path]:
        return frozenset()


def _directories(host: HostRoot, paths: Sequence[str]) -> frozenset[Path]:
    directories = set()
    for path in paths:
        try:
            directories.add(host.path(posixpath.dirname(path)))
        except HostError:
            continue
    return frozenset(directories)
