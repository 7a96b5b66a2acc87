"""The four probes, made anew for each look. `run` blocks and says what is wrong; `abort` ends what can be ended.

    exists   all nodes and mounted paths of the device are there, and what should be a node is one
    open     every node can be opened as the container may open it; EBUSY counts as healthy: who holds it, has it
    file     a file holds the expected word, or just is there; as this process sees it, below no host root
    command  a program exits with 0

Opening has side effects: a serial line's DTR goes up, which resets an Arduino. `exists` is the probe to begin with.
"""

import contextlib
import errno
import os
import posixpath
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, assert_never

from ..core.device import DeviceNode, RawDevice
from ..core.facts import facts
from ..core.health import Outcome
from ..core.spec import HealthSpec, Probe
from ..errors import HostError
from ..hostfs import HostRoot

_TAIL = 4096  # bytes of a command's output that are kept
_SHOWN = 160  # characters of it that fit in a reason
_OK = Outcome(ok=True)


class Prober(Protocol):
    """One look at one device."""

    def run(self) -> Outcome:
        """Probe once; blocks, for ever at worst."""

    def abort(self) -> None:
        """End a `run` in another thread if that is possible; never blocks."""

    def directories(self) -> frozenset[Path]:
        """Directories whose changes may change the outcome; blocks."""


def prober(spec: HealthSpec, device: RawDevice, resource: str, host: HostRoot) -> Prober:
    """The probe that the specification asks for."""
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
                return Outcome(ok=False, reason=f"{path} is no device node any more")
        return _OK

    def abort(self) -> None:
        """A look at a file cannot be ended."""

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
                    return Outcome(ok=False, reason=f"cannot open {node.host_path}: {cause.strerror}")
        return _OK

    def abort(self) -> None:
        """An open that hangs in the kernel cannot be ended."""

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
        self._here = HostRoot()

    def run(self) -> Outcome:
        try:
            text = self._here.read_text(self._path)
        except HostError as broken:
            return Outcome(ok=False, reason=str(broken))
        if text is None:
            return Outcome(ok=False, reason=f"{self._path} is missing")
        if self._content and text != self._content:
            return Outcome(ok=False, reason=f"{self._path} holds {_shown(text)!r}, not {self._content!r}")
        return _OK

    def abort(self) -> None:
        """Reading a file cannot be ended."""

    def directories(self) -> frozenset[Path]:
        return _directories(self._here, [self._path])


class _Command:
    """The program has a session of its own, so that its children end with it, and no environment but PATH."""

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = argv
        self._process: subprocess.Popen[bytes] | None = None
        self._aborted = False

    def run(self) -> Outcome:
        try:
            process = self._process = subprocess.Popen(  # noqa: S603 - the configuration's own command, no shell
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
            )
        except (OSError, ValueError) as cause:
            return Outcome(ok=False, reason=f"cannot run {self._argv[0]}: {getattr(cause, 'strerror', None) or cause}")
        if self._aborted:  # in the moment before there was a process
            self._kill(process)
        with process:
            tail = b""
            assert process.stdout is not None
            while chunk := os.read(process.stdout.fileno(), 65536):
                tail = (tail + chunk)[-_TAIL:]
            code = process.wait()
        return _OK if code == 0 else Outcome(ok=False, reason=_ending(self._argv[0], code, tail))

    def abort(self) -> None:
        self._aborted = True
        if self._process is not None:
            self._kill(self._process)

    def _kill(self, process: "subprocess.Popen[bytes]") -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def directories(self) -> frozenset[Path]:
        return frozenset()


def _ending(program: str, code: int, output: bytes) -> str:
    how = f"exited with {code}" if code > 0 else f"was ended by {signal.Signals(-code).name}"
    last = _shown(output.decode(errors="replace").strip().rpartition("\n")[2])
    return f"{posixpath.basename(program)} {how}" + (f": {last}" if last else "")


def _shown(text: str) -> str:
    """A text that fits in a reason: one line, printable, not long."""
    line = "".join(character if character.isprintable() else " " for character in text).strip()
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _directories(host: HostRoot, paths: Sequence[str]) -> frozenset[Path]:
    directories = set()
    for path in paths:
        try:
            directories.add(host.path(posixpath.dirname(path)))
        except HostError:
            continue
    return frozenset(directories)
