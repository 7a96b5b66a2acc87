"""Rolling updates: the second agent of a node is up to date and ready, and serves when the first one ends."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.kit.process import Process, ask, send_signal
from vdev import cli
from vdev.agent import command_socket, status
from vdev.errors import ConfigError
from vdev.sim import manifest

NPU, OTHER = "acme.dev/npu", "acme.dev/other"
BAD = "version: v1\ndevices: [{name: acme, resource: acme.dev/npu, virtuell: {}}]\n"


def config(count=2, resource=NPU):
    return f"version: v1\ndevices:\n  - {{name: acme, resource: {resource}, virtual: {{count: {count}}}}}\n"


@pytest.fixture
async def stand_by(kubelet, start_agent):
    """Start a standby agent."""

    async def start(text=None, **options):
        agent = await start_agent(text or config(), wait=False, **options)
        await kubelet.wait_until(lambda: agent.task.done() or stands_by(agent), what="the stand-by")
        if agent.task.done():
            await agent.task
        return agent

    return start


def stands_by(agent):
    """Whether an agent stands by and is ready."""
    return bool(agent.agent.lock.stand_by) and not status.not_ready(agent.agent)


def registrations(agent):
    """The number of registrations of each resource."""
    return {each.name: each.registrations for each in agent.agent.lists.services.values()}


async def test_a_standby_agent_is_ready_and_reports_its_role(kubelet, start_agent, stand_by, directory, capsys):
    """Over HTTP and in `vdev status`."""
    await start_agent(config())
    second = await stand_by(http_address="127.0.0.1:0", run_dir=directory / "run2")
    (line,) = [each for each in second.logs if each["event"] == "serving HTTP"]
    host, _, port = line["address"].rpartition(":")
    address = host, int(port)
    reason = f"stand-by: another vdev serves {kubelet.device_plugin_dir}; this one takes over when that ends"
    answer = await ask(address)
    assert "200 OK" in answer
    assert answer.endswith(f"{reason}\n")
    assert "200 OK" in await ask(address, "/healthz")
    assert reason == second.agent.lock.trouble
    await kubelet.wait_until((directory / "run2" / command_socket.SOCKET).exists, what="the command socket")
    assert 0 == await asyncio.to_thread(cli.main, ["status", "--run-dir", str(directory / "run2")])
    first, second_line, *more = capsys.readouterr().out.splitlines()
    assert not [each for each in more if "no devices" in each or "(not there)" in each]
    assert first.endswith(", stand-by")
    assert reason == second_line.strip()


async def test_a_second_agent_with_a_bad_file_ends(kubelet, start_agent, stand_by, shows):
    """Without a stored configuration, its pod never becomes ready, so the update stops. The first agent goes on."""
    first = await start_agent(config(), no_state=True)
    with pytest.raises(ConfigError, match="virtuell"):
        await stand_by(BAD, no_state=True)
    await shows(NPU, 2, 2)
    assert not status.not_ready(first.agent)


async def test_a_second_agent_on_the_last_good_configuration_is_not_ready(kubelet, start_agent, shows):
    """It is ready when the file is good, and then takes over."""
    first = await start_agent(config())
    await kubelet.wait_until(first.agent.state.path.exists, what="the configuration to be kept")
    second = await start_agent(BAD, wait=False)
    await kubelet.wait_until(lambda: second.agent.lock.stand_by, what="the stand-by")
    (reason,) = status.not_ready(second.agent)
    assert "the configuration is bad since the start" in reason
    first.edit(config(3))
    await kubelet.wait_until(lambda: stands_by(second), what="the good file")
    await shows(NPU, 3, 3)
    await first.stop()
    await shows(NPU, 3, 3)


async def test_an_agent_that_hangs_and_is_killed(kubelet, stand_by, shows, directory):
    """The standby agent waits while the first one hangs, and takes over when that is killed."""
    async with Process(directory, kubelet, config()) as process:
        await shows(NPU, 2, 2)
        await kubelet.run_pod(manifest("holder", {NPU: 1}))
        second = await stand_by()
        send_signal(process.process, signal.SIGSTOP)
        send_signal(process.process, signal.SIGTERM)
        second.clock.advance(60)
        second.edit(config(3))
        await kubelet.wait_until(lambda: second.agent.config.applied == 2, what="the edit")
        assert stands_by(second)
        process.process.kill()
        await process.process.wait()
        await shows(NPU, 3, 3)
        await kubelet.wait_until(lambda: not status.not_ready(second.agent), what="the answer to the registration")
        assert [] == kubelet.errors
        process.end = second.stop  # its own process has ended


def is_locked(directory):
    """Whether this process has locked the present directory. An attempt to lock it would disturb the agent."""
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it may be closed by now
            if handle.samefile(directory) and "lock:" in Path("/proc/self/fdinfo", handle.name).read_text():
                return True
    return False


async def test_a_recreated_directory_is_left_to_the_serving_agent(kubelet, start_agent, stand_by, shows):
    """The standby agent checks more often. If it took the lock, the other one would end with its streams open."""
    first = await start_agent(config())
    second = await stand_by()
    await kubelet.stop()
    while await asyncio.to_thread(kubelet.device_plugin_dir.exists):  # the agent removes its socket at the same time
        await asyncio.to_thread(shutil.rmtree, kubelet.device_plugin_dir, ignore_errors=True)
    await asyncio.to_thread(kubelet.device_plugin_dir.mkdir)
    await kubelet.wait_until(lambda: is_locked(kubelet.device_plugin_dir), what="the new lock")
    await kubelet.start()
    await shows(NPU, 2, 2)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    assert [] == kubelet.errors
    await kubelet.wait_until(lambda: stands_by(second), what="it to stand by")
    assert not first.task.done()
    assert {} == registrations(second)
    await first.stop()
    second.clock.advance(second.agent.options.intervals.directory_remade)
    await kubelet.wait_until(lambda: registrations(second) == {NPU: 1}, what="the take-over")
    await shows(NPU, 2, 2)


async def test_an_agent_that_loses_the_lock_of_a_recreated_directory_ends(kubelet, start_agent):
    """If another agent has locked the new directory, two would serve, so the first one ends with an error."""
    agent = await start_agent(config())
    await kubelet.stop()
    fresh = kubelet.device_plugin_dir.with_name("fresh")
    fresh.mkdir()
    handle = os.open(fresh, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        shutil.rmtree(kubelet.device_plugin_dir, ignore_errors=True)  # its agent may remove a socket first
        fresh.rename(kubelet.device_plugin_dir)
        async with asyncio.timeout(30):
            assert 1 == await agent.task
    finally:
        os.close(handle)
    assert any("another vdev serves it" in each["event"] for each in agent.logs)


LINE = """version: v1
devices:
  - name: acme
    resource: acme.dev/npu
    virtual: {count: 2, node: {pty: script, answers: {AT: OK}, containerPath: "/dev/ttyV{index}"}}
"""


async def test_serial_lines_end_with_the_agent(kubelet, start_agent, stand_by, directory):
    """A container sees a hang-up. The agent that takes over opens new lines."""
    first = await start_agent(LINE)
    link = directory / "devices" / "vdev-acme-0"
    line = os.open(link, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        second = await stand_by(LINE)
        assert 0 == await first.stop()
        with pytest.raises(OSError, match=r"Input/output error"):
            os.write(line, b"AT\r")
        await kubelet.wait_until(lambda: registrations(second) == {NPU: 1}, what="the take-over")
        assert link.exists()
    finally:
        os.close(line)
