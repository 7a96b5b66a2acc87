"""What `vdev run` arranges in a process that is its own."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from tests.kit.process import send_signal
from vdev.control import command_socket


def niceness(process):
    """That of the thread with the event loop, and those of all threads."""
    threads = [int(each.name) for each in Path(f"/proc/{process.pid}/task").iterdir()]
    found = {each: os.getpriority(os.PRIO_PROCESS, each) for each in threads}
    return found[process.pid], set(found.values())


async def test_long_work_makes_way(directory, kubelet):
    """Threads that work beside the loop are nicer than it, and than those of gRPC; the loop is as nice as we are."""
    file, run_dir = directory / "vdev.yaml", directory / "run"
    await asyncio.to_thread(file.write_text, "devices: [{name: n, resource: acme.dev/n, virtual: {count: 1}}]\n")
    places = {"kubelet": directory / "kubelet", "cdi": directory, "run": run_dir, "device": directory, "state": run_dir}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vdev", "run", str(file)),
        *(f"--{name}-dir={path}" for name, path in places.items()),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await kubelet.wait_until(lambda: kubelet.node().allocatable, timeout=30, what="the device")
        await command_socket.ask(run_dir, {"do": "status"})
        loop, all_threads = await asyncio.to_thread(niceness, process)
        assert os.getpriority(os.PRIO_PROCESS, 0) == loop
        assert {loop, loop + 5} == all_threads
    finally:
        send_signal(process, signal.SIGTERM)
        assert 0 == await process.wait()
