"""One agent per kubelet, also after the kubelet's directory was deleted and recreated."""

import asyncio
import contextlib
import fcntl
import os
import shutil
from pathlib import Path

from vdev.sim import manifest

NPU = "acme.dev/npu"
DEVICES = """version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 2}}
"""


def is_locked(directory):
    """Whether this process has locked the present directory. An attempt to lock it would disturb the agent."""
    for handle in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # it may be closed by now
            if handle.samefile(directory) and "lock:" in Path("/proc/self/fdinfo", handle.name).read_text():
                return True
    return False


async def test_a_recreated_directory_is_locked_again(kubelet, start_agent, shows):
    """A second agent waits, and the first one serves the kubelet after its next start."""
    await start_agent(DEVICES)
    await kubelet.stop()
    shutil.rmtree(kubelet.device_plugin_dir, ignore_errors=True)  # its agent may remove a socket first
    kubelet.device_plugin_dir.mkdir()
    await kubelet.wait_until(lambda: is_locked(kubelet.device_plugin_dir), what="the new lock")
    second = await start_agent(DEVICES, wait=False)
    await kubelet.wait_until(lambda: "another vdev serves" in second.agent.lock.trouble, what="the wait")
    await kubelet.start()
    await shows(NPU, 2, 2)
    await kubelet.run_pod(manifest("a", {NPU: 1}))
    assert "another vdev serves" in second.agent.lock.trouble
    assert [] == kubelet.errors


async def test_an_agent_that_loses_the_lock_of_a_recreated_directory_ends(kubelet, start_agent):
    """If another agent has locked the new directory, two would serve, so the first one ends with an error."""
    agent = await start_agent(DEVICES)
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
