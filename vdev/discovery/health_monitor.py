"""Probes the health of devices, with a task for each device, and applies thresholds to the results.

    exists   all nodes and mounted paths of the device are there, and the nodes are device nodes
    open     every node can be opened with the container's permissions; EBUSY is healthy, because the device is in use
    file     a file has the expected content, or exists; a path of this process, not below the host root
    command  a program exits with 0

Opening a device may change it: a serial line raises DTR, which resets an Arduino. Begin with `exists`.
"""

import asyncio
import contextlib
import errno
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, assert_never

from ..aio.clock import SYSTEM, Clock
from ..aio.program import Program, shown
from ..aio.tasks import BlockingCalls
from ..errors import HostError, reason_of
from ..hostfs import HostRoot
from ..model.device import HEALTHY, Health, RawDevice, facts
from ..model.entry import HealthCheck, Probe
from ..observe.metrics import Metrics

# --- probes, which block ----------------------------------------------------------------------------------------------

_HERE = HostRoot()
_ACCESS = {"r": os.O_RDONLY, "w": os.O_WRONLY}


class Target(NamedTuple):
    spec: HealthCheck
    device: RawDevice
    resource: str = ""


def _failure(target: Target, host: HostRoot, program: Program) -> str:
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


def _directories(target: Target, host: HostRoot) -> frozenset[Path]:
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


# --- thresholds -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """The state of one device between probes. It is healthy until a probe fails. Times are monotonic."""

    appeared: float
    health: Health = HEALTHY
    ok: bool = True
    """The last result."""
    run: int = 0
    """The number of consecutive scheduled results that equal it."""
    run_since: float = 0.0
    """Since when results equal it."""
    recovered: float | None = None
    """When the device last became healthy again."""
    is_flapping: bool = False
    """Whether it failed within one interval of its recovery: the next recovery takes a whole interval of successes."""


def after_probe(track: Track, spec: HealthCheck, reason: str, now: float, *, is_scheduled: bool = True) -> Track:
    """The track after one more result; the `reason` of a failure, or an empty text for a success.

    A probe that an event brought forward can end a run of results but not lengthen it, because thresholds stand for
    time. A flapping device is healthy again only after an interval of successes, because it is worse to hand out a
    dead device than to withhold a working one.
    """
    ok = not reason
    if not ok and now - track.appeared < spec.start_grace:
        return track
    run, run_since = (track.run + is_scheduled, track.run_since) if ok == track.ok else (1, now)
    after = replace(track, ok=ok, run=run, run_since=run_since)
    if not ok:
        failed = Health(healthy=False, reason=reason)
        if not track.health.healthy:
            return replace(after, health=failed)
        if run < spec.unhealthy_threshold:
            return after
        is_flapping = track.recovered is not None and now - track.recovered < spec.interval
        return replace(after, health=failed, is_flapping=is_flapping)
    is_steady = not track.is_flapping or now - run_since >= spec.interval
    if not track.health.healthy and run >= spec.healthy_threshold and is_steady:
        return replace(after, health=HEALTHY, recovered=now, is_flapping=False)
    return after


@dataclass(slots=True)
class _Probed:
    target: Target
    track: Track
    task: asyncio.Task[None] | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    directories: frozenset[Path] = frozenset()
    is_running: bool = False
    """Whether a thread has not returned from the last probe."""


class HealthMonitor:
    """Probes devices while `run` runs. All methods must be called on the event loop's thread."""

    def __init__(
        self, host: HostRoot, metrics: Metrics, clock: Clock = SYSTEM, *, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.verdicts: dict[str, Health] = {}  # of every device that was probed at least once, by id
        self.flaps: Counter[str] = Counter()  # how often each device disappeared or its probe began to fail
        self._host = host
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        self._calls = BlockingCalls(clock)
        self._probed: dict[str, _Probed] = {}
        self._updated = asyncio.Event()

    @property
    def directories(self) -> Mapping[Path, bool]:
        """Directories whose changes should call `wake`, as paths of this process, and whether writes matter there."""
        found: dict[Path, bool] = {}
        for each in self._probed.values():
            for directory in each.directories:
                found[directory] = found.get(directory, False) or each.target.spec.probe is Probe.FILE
        return found

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._updated.clear()
                for key, probed in self._probed.items():
                    if probed.task is None or probed.task.done():
                        probed.task = group.create_task(self._follow(key, probed), name=f"probe {key}")
                await self._updated.wait()

    def update(self, targets: Mapping[str, Target]) -> None:
        """Probe these devices, by id, and no others.

        Probes of unchanged devices continue. A device with the same probe but other nodes keeps its history.
        """
        before, self._probed = self._probed, {}
        for key, target in targets.items():
            old = before.get(key)
            if old is not None and old.target == target:
                self._probed[key] = before.pop(key)
            else:
                track = Track(appeared=self._clock.now())
                if old is not None and old.target.spec == target.spec:
                    track = old.track
                self._probed[key] = _Probed(target, track)
        for key, probed in before.items():
            if probed.task is not None:
                probed.task.cancel()
            if key not in targets:
                self.verdicts.pop(key, None)
        self._updated.set()

    def wake(self, directories: Iterable[Path]) -> None:
        """Immediately probe the devices that a change of these directories may affect."""
        changed = frozenset(directories)
        for probed in self._probed.values():
            if probed.directories & changed:
                probed.wake.set()

    def count_flap(self, device: str, resource: str) -> None:
        self.flaps[device] += 1
        self._metrics.flaps.labels(resource).inc()

    async def _follow(self, key: str, probed: _Probed) -> None:
        """Probe one device repeatedly: at its interval, and when woken."""
        spec = probed.target.spec
        due = self._clock.now()
        while True:
            probed.wake.clear()
            is_scheduled = self._clock.now() >= due
            reason = await self._probe(probed)
            before = probed.track
            probed.track = after_probe(before, spec, reason, self._clock.now(), is_scheduled=is_scheduled)
            if before.ok and not probed.track.ok:
                self.count_flap(key, probed.target.resource)
            old, self.verdicts[key] = self.verdicts.get(key), probed.track.health
            if old != probed.track.health:
                self._on_change()
            if is_scheduled:
                due = self._clock.now() + spec.interval
            # `wake` does not postpone the next scheduled probe.
            await self._clock.wait(probed.wake, max(0.0, due - self._clock.now()))

    async def _probe(self, probed: _Probed) -> str:
        """Why the probe fails; empty if it succeeds."""
        target = probed.target
        if probed.is_running:
            return "the probe hangs"

        def call() -> tuple[frozenset[Path], str]:
            probed.is_running = True
            try:
                reason = _failure(target, self._host, program)
                return _directories(target, self._host), reason
            finally:
                probed.is_running = False

        try:
            values = facts(target.device, target.resource)
            program = Program([argument.render(values) for argument in target.spec.command])
            probed.directories, reason = await self._calls.run(call, within=target.spec.timeout, abort=program.abort)
        except TimeoutError:
            reason = f"the probe took longer than {target.spec.timeout:g} s"
        except Exception as error:  # a bug in a probe must only affect its device
            reason = f"the probe failed: {error!r}"
        return reason
