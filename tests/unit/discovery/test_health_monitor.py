"""HealthMonitor: independent probes over time, and from their results to a verdict."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev.discovery.health_monitor import HealthMonitor, Target, Track, after_probe
from vdev.hostfs import HostRoot
from vdev.model import template
from vdev.model.device import DeviceNode, Mount, RawDevice
from vdev.model.entry import HealthCheck, Probe
from vdev.model.sources import NodeKind
from vdev.observe.metrics import Metrics

TIMEOUT = 20.0


def every_file_is_a_node(path: str) -> tuple[NodeKind, int, int]:
    os.lstat(path)
    return NodeKind.CHAR, 1, 3


@pytest.fixture
def host(tmp_path: Path) -> HostRoot:
    (tmp_path / "dev").mkdir()
    return HostRoot(tmp_path, inspect=every_file_is_a_node)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def monitor(host: HostRoot, metrics: Metrics) -> AsyncIterator[HealthMonitor]:
    async with running(HealthMonitor(host, metrics)) as monitor:
        yield monitor


@asynccontextmanager
async def running(monitor: HealthMonitor) -> AsyncIterator[HealthMonitor]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(monitor.run())
        yield monitor
        task.cancel()


def device(*paths: str, name: str = "uart-0", permissions: str = "rw") -> RawDevice:
    nodes = tuple(DeviceNode(path, path, permissions) for path in paths)
    return RawDevice(id=name, entry="uart", index=0, nodes=nodes, paths=paths, attributes={"colour": "red"})


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(TIMEOUT):
        while not condition():
            await asyncio.sleep(0.005)


async def verdict(monitor: HealthMonitor, target: Target) -> str:
    """The reason after the first probe; empty for Healthy."""
    monitor.update({"x": target})
    await until(lambda: "x" in monitor.verdicts)
    return monitor.verdicts["x"].reason


def command(*argv: str, timeout: float = 10.0) -> HealthCheck:
    return HealthCheck(probe=Probe.COMMAND, command=tuple(map(template.parse, argv)), timeout=timeout)


EXISTS = HealthCheck(probe=Probe.EXISTS, interval=0.02)


async def test_a_device_that_vanishes_fails_and_recovers(
    monitor: HealthMonitor, metrics: Metrics, host: HostRoot
) -> None:
    """It is Unhealthy with a reason, then Healthy again, and the change counts as a flap."""
    node = host.root / "dev/ttyUSB0"
    node.touch()
    monitor.update({"x": Target(EXISTS, device("/dev/ttyUSB0"), "acme.dev/uart")})
    await until(lambda: "x" in monitor.verdicts and monitor.verdicts["x"].healthy)
    node.unlink()
    await until(lambda: not monitor.verdicts["x"].healthy)
    assert "/dev/ttyUSB0 is gone" == monitor.verdicts["x"].reason
    node.touch()
    await until(lambda: monitor.verdicts["x"].healthy)
    assert 1 == monitor.flaps["x"]
    assert 1 == metrics.registry.get_sample_value("vdev_device_flaps_total", {"resource": "acme.dev/uart"})


async def test_mounted_paths_must_exist_too(monitor: HealthMonitor) -> None:
    mounted = replace(device(), mounts=(Mount("/opt/firmware", "/firmware"),))
    assert "/opt/firmware is gone" == await verdict(monitor, Target(EXISTS, mounted))


@pytest.mark.parametrize(("permissions", "mode"), [("rw", os.O_RDWR), ("r", os.O_RDONLY), ("wm", os.O_WRONLY)])
async def test_open_uses_the_permissions_of_the_container(
    monitor: HealthMonitor, host: HostRoot, monkeypatch: pytest.MonkeyPatch, permissions: str, mode: int
) -> None:
    """It never blocks, and the node never becomes the controlling terminal."""
    (host.root / "dev/x").touch()
    seen = []
    real = os.open

    def note(path: Path, flags: int) -> int:
        seen.append(flags)
        return real(path, flags)

    monkeypatch.setattr(os, "open", note)
    assert "" == await verdict(
        monitor, Target(HealthCheck(probe=Probe.OPEN), device("/dev/x", permissions=permissions))
    )
    assert mode | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC == seen[0]


@pytest.mark.parametrize(
    ("code", "reason"),
    [(16, ""), (6, "cannot open /dev/x: No such device or address"), (13, "cannot open /dev/x: Permission denied")],
)
async def test_busy_is_healthy_other_errors_are_not(
    monitor: HealthMonitor, monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    """EBUSY means that another process holds the device."""

    def refuse(_path: Path, _flags: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)
    assert reason == await verdict(monitor, Target(HealthCheck(probe=Probe.OPEN), device("/dev/x")))


async def test_file_probe(monitor: HealthMonitor, tmp_path: Path) -> None:
    """A sidecar writes the file; surrounding spaces are ignored."""
    path = tmp_path / "uart-0.state"
    spec = HealthCheck(probe=Probe.FILE, path=template.parse(f"{tmp_path}/{{id}}.state"), content="ok", interval=0.02)
    assert f"{path} is missing" == await verdict(monitor, Target(spec, device()))
    path.write_text("  ok\n")
    await until(lambda: monitor.verdicts["x"].healthy)
    path.write_text("burnt")
    await until(lambda: monitor.verdicts["x"].reason == f"{path} holds 'burnt', not 'ok'")


async def test_a_command_that_exits_with_zero_is_healthy(monitor: HealthMonitor) -> None:
    """Placeholders in its arguments are replaced, and its environment has only PATH."""
    script = 'test "$1 $2" = "uart-0 red" && test "$(env | grep -vE "^(PATH|PWD|SHLVL|_)=")" = ""'
    spec = command("sh", "-c", script, "probe", "{id}", "{attributes.colour}")
    assert "" == await verdict(monitor, Target(spec, device()))


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (("sh", "-c", "echo first; echo no link >&2; exit 3"), "sh exited with 3: no link"),
        (("sh", "-c", "kill -9 $$"), "sh was ended by SIGKILL"),
        (("sh", "-c", "kill -40 $$"), "sh was ended by signal 40"),
        (("/nonexistent/probe",), "cannot run /nonexistent/probe: No such file or directory"),
        (("sh", "-c", "yes | head -c 1000000; exit 1"), "sh exited with 1: y"),
    ],
)
async def test_reasons_of_a_failing_command(monitor: HealthMonitor, argv: tuple[str, ...], reason: str) -> None:
    """The exit code and the last line of its output."""
    assert reason == await verdict(monitor, Target(command(*argv), device()))


async def test_a_command_that_never_ends_is_killed_with_its_children(monitor: HealthMonitor, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    spec = command("sh", "-c", f"sleep 1000 & echo $! > {pid_file}; wait", timeout=0.5)
    assert "the probe took longer than 0.5 s" == await verdict(monitor, Target(spec, device()))
    child = int(await asyncio.to_thread(pid_file.read_text))
    await until(lambda: not is_alive(child))


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_hanging_probes_do_not_delay_others(host: HostRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred opens never return: each takes one thread, and other devices are still probed."""
    release = threading.Event()
    (host.root / "dev/good").touch()

    def hang(path: Path, flags: int) -> int:
        if "/dev/hang" in str(path):
            release.wait()
        return real(path, flags)

    real = os.open
    monkeypatch.setattr(os, "open", hang)
    spec = HealthCheck(probe=Probe.OPEN, interval=0.2, timeout=0.5)
    hanging = {f"h{number}": Target(spec, device(f"/dev/hang{number}")) for number in range(100)}
    try:
        async with running(HealthMonitor(host, Metrics())) as monitor:
            monitor.update({**hanging, "good": Target(spec, device("/dev/good"))})
            await until(lambda: len(monitor.verdicts) == 101)
            await until(lambda: all(monitor.verdicts[key].reason == "the probe hangs" for key in hanging))
            await until(lambda: monitor.verdicts["good"].healthy)
            assert 100 <= [thread.name for thread in threading.enumerate()].count("blocking call") <= 101
            (host.root / "dev/good").unlink()
            await until(lambda: not monitor.verdicts["good"].healthy)
    finally:
        release.set()


# --- thresholds, start grace, flapping -------------------------------------------------------------------------------

GOOD, BAD = "", "broken"


def spec(**changes: object) -> HealthCheck:
    return HealthCheck(probe=Probe.EXISTS, interval=5.0).model_copy(update=changes)


@pytest.mark.parametrize(
    ("policy", "gap", "results", "healthy"),
    [
        ({}, 5.0, "+-+", "+-+"),
        ({"unhealthy_threshold": 3}, 5.0, "--+---", "+++++-"),
        ({"healthy_threshold": 2}, 5.0, "-+-++", "----+"),
        ({"start_grace": 12.0}, 5.0, "----", "+++-"),
        ({}, 0.1, "-+-+-+-+-+-+", "-+----------"),  # a flapping device recovers only after an interval without a change
    ],
    ids=["thresholds of one", "failures in a row", "successes in a row", "grace", "flapping"],
)
def test_the_verdict_after_each_result(policy: dict[str, float], gap: float, results: str, healthy: str) -> None:
    track, verdicts = Track(appeared=0.0), ""
    for number, result in enumerate(results):
        track = after_probe(track, spec(**policy), GOOD if result == "+" else BAD, number * gap)
        verdicts += "+" if track.health.healthy else "-"
    assert verdicts == healthy


def test_the_reason_is_that_of_the_last_probe() -> None:
    track = after_probe(Track(appeared=0.0), spec(), BAD, 0.0)
    assert "broken" == track.health.reason
    assert "worse" == after_probe(track, spec(), "worse", 5.0).health.reason


specs = st.builds(
    HealthCheck,
    probe=st.just(Probe.EXISTS),
    interval=st.floats(0.1, 60.0),
    unhealthyThreshold=st.integers(1, 5),
    healthyThreshold=st.integers(1, 5),
    startGrace=st.floats(0.0, 30.0),
)
histories = st.lists(st.tuples(st.booleans(), st.floats(0.0, 20.0), st.booleans()), max_size=60)


@given(specs, histories)
def test_the_verdict_obeys_the_rules(policy: HealthCheck, history: list[tuple[bool, float, bool]]) -> None:
    """Both thresholds hold, and only unhealthy devices have a reason."""
    track, now = Track(appeared=0.0), 0.0
    counted: list[bool] = []
    for ok, wait, is_scheduled in history:
        now += wait
        before = track
        track = after_probe(track, policy, GOOD if ok else BAD, now, is_scheduled=is_scheduled)
        if ok or now >= policy.start_grace:
            counted.append(ok)
        assert track.health.healthy == (not track.health.reason)
        if before.health.healthy and not track.health.healthy:
            assert [False] * policy.unhealthy_threshold == counted[-policy.unhealthy_threshold :]
        if not before.health.healthy and track.health.healthy:
            assert [True] * policy.healthy_threshold == counted[-policy.healthy_threshold :]
