"""A process with few file descriptors and more resources than these allow."""

import asyncio
import signal

import pytest

from tests.kit import prepared
from tests.kit.process import send_signal
from vdev.agent import command_socket

_LIMIT = 64


def config(count):
    """So many resources."""
    lines = (f"- {{name: n{n}, resource: acme.dev/n{n}, virtual: {{count: 1}}}}\n" for n in range(count))
    return "devices:\n" + "".join(lines)


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_smaller_configuration_helps(directory, kubelet):
    """What the descriptors allow is served meanwhile, and with fewer resources all of it is."""
    file, run_dir = directory / "vdev.yaml", directory / "run"
    await asyncio.to_thread(file.write_text, config(40))
    paths = {
        "--config-file": file,
        "--kubelet-dir": directory / "kubelet",
        "--cdi-dir": directory,
        "--run-dir": run_dir,
    }
    paths["--device-dir"] = directory / "devices"
    words = [str(word) for pair in paths.items() for word in pair]
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f'ulimit -n {_LIMIT}; exec "$@"', "sh", prepared.python(), "-m", "vdev", "run", *words),
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await kubelet.wait_until(lambda: len(kubelet.node().allocatable) >= 4, timeout=60, what="some resources")
        assert len(kubelet.node().allocatable) < 40
        status = await command_socket.ask(run_dir, {"do": "status"})
        assert any("raise ulimit -n" in each["problem"] for each in status["resources"])
        fresh = directory / "fresh"
        await asyncio.to_thread(fresh.write_text, config(3))
        fresh.rename(file)
        served = {f"acme.dev/n{n}" for n in range(3)}
        await kubelet.wait_until(
            lambda: {name for name, count in kubelet.node().allocatable.items() if count} == served,
            timeout=60,
            what="the three that are left",
        )
        while not (await command_socket.ask(run_dir, {"do": "status"}))["ready"]:
            await asyncio.sleep(0.05)
    finally:
        send_signal(process, signal.SIGTERM)
        assert 0 == await process.wait()
