"""Hostile HTTP clients: incomplete requests, malformed requests, and foreign host names."""

import asyncio
import contextlib
import resource

import pytest
import structlog

from tests.kit import well_agent
from tests.kit.process import Process, ask, crowd, ready, send_text

NPU = "acme.dev/npu"
CONFIG = f"""\
version: v1
devices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]
"""
HALF = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "  # an incomplete request
CROWD = 300


@pytest.fixture(autouse=True)
def _room_for_a_crowd():
    """Raise the limit of descriptors for the clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
@pytest.mark.usefixtures("prepared_python")
async def test_hundreds_of_incomplete_requests(kubelet, shows, directory):
    """Probes are answered, and a kubelet restart works."""
    async with Process(directory, kubelet, CONFIG, ulimit="-S -n 256") as vdev:
        await shows(NPU, 2, 2)
        async with crowd(vdev.address, CROWD, HALF):
            await ready(vdev.address)
            before = kubelet.metrics.registrations[NPU]
            await kubelet.restart()
            await kubelet.wait_until(lambda: kubelet.metrics.registrations[NPU] > before, what="registration")
            await shows(NPU, 2, 2)
            await ready(vdev.address)
            assert "200 OK" in await ask(vdev.address, "/metrics")
        assert 50 > len(vdev.log())


@contextlib.asynccontextmanager
async def served(app, *, hosts=()):
    """Serve an application. Yields the address."""
    async with well_agent.served(app, hosts=hosts) as bound:
        host, _, port = bound.rpartition(":")
        yield host, int(port)


NONSENSE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET /\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET /" + b"a" * 100_000,
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n",
]


async def test_malformed_requests(caplog, capfd):
    """They get an error or a closed connection. Other clients are served, and nothing is logged."""
    async with served(well_agent.application()) as address:
        with structlog.testing.capture_logs() as logs:
            for text in NONSENSE:
                await asyncio.gather(*(send_text(address, text) for _ in range(20)))
                assert "200 OK" in await ask(address), text[:20]
    assert ([], [], "") == (logs, caplog.records, capfd.readouterr().err)


OURS = ("127.0.0.1:8080", "10.244.1.7:8080", "[fd00::7]:8080", "localhost:8080", "LOCALHOST.", "vdev.localhost")
OURS += ("vdev.vdev-system.svc:8080", "vdev.vdev-system.svc.cluster.local", "node-1", "gpu.example.com")
THEIRS = ("evil.example", "127.0.0.1.evil.example:8080", "localhost.evil.example", "gpu.example.com.evil.example")
THEIRS += ("node-1.evil.example", "[::1].evil.example", "")


async def test_foreign_host_names_are_refused():
    """This prevents DNS rebinding: a foreign page whose name resolves to the agent's address."""
    async with served(well_agent.application(), hosts=("node-1", "*.example.com")) as address:
        for host in (*OURS, *THEIRS):
            for path in ("/status", "/metrics", "/", "/readyz"):
                status = int((await ask(address, path, host)).split()[1])
                assert (200 if host in OURS else 421) == status, (host, path)
