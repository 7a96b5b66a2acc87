"""`vdev sim` and `vdev demo` as processes."""

import asyncio
import contextlib
import json
import signal
import urllib.request

import pytest

from tests.kit import forkserver
from tests.kit.process import send_signal

PATIENCE = 60


@contextlib.asynccontextmanager
async def sim(directory, *flags):
    """Run `vdev sim`. Yields the process and its output until it had started."""
    pipe = asyncio.subprocess.PIPE
    command = [forkserver.python(), "-m", "vdev", "sim", "--kubelet-dir", str(directory / "k"), *flags]
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=asyncio.subprocess.STDOUT)
    lines = []
    async with asyncio.timeout(PATIENCE):
        while not any("started" in line for line in lines) and (line := await process.stdout.readline()):
            lines.append(line.decode())
    try:
        yield process, lines
    finally:
        send_signal(process, signal.SIGTERM)
        await process.communicate()


def get(address, path):
    """A document of an API server."""
    with urllib.request.urlopen(f"{address}{path}", timeout=PATIENCE) as answer:  # it is HTTP
        return json.loads(answer.read())


@pytest.mark.long
async def test_an_api_server(directory):
    """The output has commands for it, the kubeconfig leads to it, and it has the Node. A port in use is an error."""
    async with sim(directory, "--api-server", "127.0.0.1:0", "--node-name", "n1") as (process, lines):
        kubeconfig = directory / "k" / "kubeconfig"
        text = "".join(lines)
        assert f"--kubeconfig {kubeconfig} --node-name n1 --config-file devices.yaml" in text
        assert f"kubectl --kubeconfig {kubeconfig} get" in text
        address = json.loads(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        found = await asyncio.to_thread(get, address, "/api/v1/nodes/n1")
        assert ["True"] == [each["status"] for each in found["status"]["conditions"] if each["type"] == "Ready"]
        async with sim(directory / "other", "--api-server", address.removeprefix("http://")) as (second, said):
            await second.wait()
            assert 1 == second.returncode
            assert "the API server cannot be served at 127.0.0.1" in "".join(said)
        send_signal(process, signal.SIGTERM)
        await process.communicate()
        assert 0 == process.returncode


@pytest.mark.parametrize(
    ("address", "why"),
    [("0.0.0.0:0", "it listens on loopback only"), ("a:99999", "expected HOST:PORT")],
)
async def test_an_invalid_address(directory, address, why):
    """The error comes before anything starts."""
    async with sim(directory, "--api-server", address) as (process, lines):
        await process.wait()
        assert 2 == process.returncode
        assert why in "".join(lines)


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_the_demo():
    """All its checks hold."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *(forkserver.python(), "-m", "vdev", "demo"), stdout=pipe, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    assert 0 == process.returncode, out.decode()
    assert "All 10 checks held" in out.decode()
