"""Limits of the machine are told as what they are."""

import asyncio
import tempfile
from pathlib import Path

import pytest

from tests.kit import prepared


@pytest.fixture
def place():
    """A directory whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="vdev-") as path:
        yield Path(path)


async def test_exhausted_descriptors_are_named(place):
    """A process that runs out of file descriptors serves what it can, and says of the rest what to raise."""
    entries = "".join(f"  - {{name: d{n}, resource: a.b/r{n}, virtual: {{count: 1}}}}\n" for n in range(64))
    (place / "c.yaml").write_text(f"version: v1\ndevices:\n{entries}")
    (place / "k" / "device-plugins").mkdir(parents=True)
    run = (
        f"{prepared.python()} -m vdev run --config-file {place}/c.yaml --kubelet-dir {place}/k --kubelet-socket= "
        f"--run-dir {place}/run --cdi-dir {place}/cdi --log-format json"
    )
    process = await asyncio.create_subprocess_shell(
        f"ulimit -n 60; exec {run}", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(30):
            assert process.stderr is not None
            async for line in process.stderr:
                if b"Too many open files; each resource needs two, raise ulimit -n" in line:
                    break
            else:
                raise AssertionError("it ended without a word about descriptors")
    finally:
        process.kill()
        await process.communicate()
