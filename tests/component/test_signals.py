"""SIGTERM to a real process while it starts."""

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.kit.process import send_signal

_TERM = 1 << (signal.SIGTERM - 1)
_MOMENTS = 2
_LONGEST = 1.0  # seconds; a start takes about as long


def handles_term(pid):
    """Whether the process handles SIGTERM, which is the first thing that it sets up."""
    text = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*(\S+)", text)[1], 16) & _TERM)


@contextlib.asynccontextmanager
async def started(directory):
    """A plugin process that has begun to handle SIGTERM."""
    (directory / "device-plugins").mkdir(exist_ok=True)
    file = directory / "vdev.yaml"
    file.write_text("devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 2}}]\n")
    paths = {"--config-file": file, "--kubelet-dir": directory, "--cdi-dir": directory, "--run-dir": directory / "run"}
    paths |= {"--device-dir": directory / "devices", "--state-dir": directory / "state"}
    words = [str(word) for pair in paths.items() for word in pair]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vdev", "run", *words, "--http-address", "127.0.0.1:0", stderr=asyncio.subprocess.PIPE
    )
    try:
        while not handles_term(process.pid):
            await asyncio.sleep(0.001)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_sigterm_at_any_moment_of_the_start(directory):
    """The process ends soon and with 0. A second signal changes nothing."""
    moments = [random.uniform(0, _LONGEST) for _ in range(_MOMENTS)]
    for moment in moments:
        async with started(directory) as process:
            await asyncio.sleep(moment)
            send_signal(process, signal.SIGTERM)
            await asyncio.sleep(0.01)
            send_signal(process, signal.SIGTERM)
            _, said = await asyncio.wait_for(process.communicate(), 20)
            assert 0 == process.returncode, (moment, said)
            assert b"Traceback" not in said, (moment, said)


MEDDLER = """
import os, signal, sys


class Meddler:
    def find_spec(self, name, *_):
        if name == os.environ["MEDDLE_AT"]:
            try:
                signal.raise_signal(signal.SIGTERM)
            except BaseException:
                pass  # as the import system does it with what a callback of it raises


sys.meta_path.insert(0, Meddler())
"""


@pytest.mark.timeout(60)
async def test_sigterm_inside_an_import_that_discards_exceptions(tmp_path):
    """The process ends at once, without an exception that could be lost."""
    (tmp_path / "sitecustomize.py").write_text(MEDDLER)
    file = tmp_path / "vdev.yaml"
    file.write_text("devices: [{name: a, resource: a.b/c, virtual: {}}]\n")
    places = [f"--{each}-dir={tmp_path}" for each in ("run", "kubelet", "cdi", "device", "state")]
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "vdev", "run", str(file), *places),
        env=os.environ | {"PYTHONPATH": path, "MEDDLE_AT": "vdev.agent.agent"},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        _, said = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (0, b"") == (process.returncode, said)
