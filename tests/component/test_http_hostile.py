"""The HTTP side under people who mean harm: half requests by the thousand, slow ones, names that are not ours."""

import asyncio
import contextlib
import os
import resource
import socket
import threading

import pytest
import structlog

from tests.kit.process import Process, ask, crowd, ready, say
from tests.kit.well_agent import WellAgent
from vdev.cli.processes.limits import MOST_FILES
from vdev.observe import http
from vdev.observe.webserver import Limits

NPU = "acme.dev/npu"
CONFIG = f"""\
version: v1
devices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]
"""
HALF = b"GET /status HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "  # its end never comes
CROWD = 1500


@pytest.fixture(autouse=True)
def _room_for_a_crowd():
    """The clients of these tests need descriptors as well."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
@pytest.mark.usefixtures("prepared_python")
async def test_half_requests_by_the_thousand(kubelet, shows, directory):
    """A crowd of half requests costs the kubelet's side nothing: its restart is survived and probes are answered."""
    async with Process(directory, kubelet, CONFIG, ulimit="-n 256") as vdev:
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


@pytest.mark.long
async def test_descriptors_are_left_for_the_kubelet(kubelet, shows, directory):
    """However few files may be open, the crowd gets no more than its share of them."""
    async with Process(directory, kubelet, CONFIG, ulimit="-n 64") as vdev:
        await shows(NPU, 2, 2)
        async with crowd(vdev.address, 200, HALF):
            await ready(vdev.address)
            open_now = await asyncio.to_thread(os.listdir, f"/proc/{vdev.process.pid}/fd")
            assert 64 - 64 // 4 + 2 >= len(open_now)
            before = kubelet.metrics.registrations[NPU]
            await kubelet.restart()
            await kubelet.wait_until(lambda: kubelet.metrics.registrations[NPU] > before, what="registration")


async def test_as_many_files_as_the_system_allows(kubelet, shows, directory):
    """A low soft limit is raised at the start."""
    async with Process(directory, kubelet, CONFIG, ulimit="-S -n 100") as vdev:
        await shows(NPU, 2, 2)
        soft, hard = resource.prlimit(vdev.process.pid, resource.RLIMIT_NOFILE)
        assert min(hard, MOST_FILES) == soft


class Agent(WellAgent):
    """What the HTTP side shows; `made` counts the documents. `gate` holds them back, `size` makes them long."""

    def __init__(self):
        self.made, self.size, self.gate = 0, 0, threading.Event()
        self.gate.set()
        self.began = threading.Event()

    def status(self):
        """The document, which says how many there were before it."""
        self.made += 1
        self.began.set()
        assert self.gate.wait(30)
        return {"made": self.made, "long": "x" * self.size}


@contextlib.asynccontextmanager
async def served(agent, *, hosts=(), **limits):
    """The address of an HTTP side."""
    async with http.serving("127.0.0.1:0", agent, hosts=hosts, limits=Limits(**limits)) as bound:
        host, _, port = bound.rpartition(":")
        yield host, int(port)


SLOW = {
    "silent": b"",
    "half-a-head": HALF,
    "half-a-body": b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx",
    "answered-and-idle": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two-requests-and-a-half": 2 * b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF,
}


@pytest.mark.parametrize("text", SLOW.values(), ids=SLOW)
async def test_nobody_is_waited_for_without_end(text):
    """A connection that brings no whole request in time is closed."""
    async with served(Agent(), head=0.3) as address:
        answer = await say(address, text)
    assert text.count(b"healthz") == answer.count("200 OK")


@pytest.mark.parametrize("start", [HALF, SLOW["half-a-body"], SLOW["answered-and-idle"]], ids=["head", "body", "idle"])
async def test_drops_do_not_hold_a_connection_open(start):
    """One byte after the other does not count as a request that comes."""
    async with served(Agent(), head=0.5) as address, asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(start)
        with contextlib.suppress(ConnectionError):
            while not reader.at_eof():
                writer.write(b"a")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await reader.read(2**16)
        writer.transport.abort()


async def test_an_answer_that_nobody_takes():
    """Who asks for much and reads nothing is cut off, and does not get all of it into memory."""
    agent = Agent()
    agent.size = 2**26
    async with served(agent, answer=0.5, connections=1) as address:
        with socket.create_connection(address) as client:
            client.sendall(b"GET /status HTTP/1.0\r\n\r\n")
            await asyncio.to_thread(agent.began.wait)
            await ready(address)  # once its place is free
            client.setblocking(False)
            taken = 0
            with contextlib.suppress(ConnectionError):
                while chunk := await asyncio.get_running_loop().sock_recv(client, 2**20):
                    taken += len(chunk)
    assert 2**26 > taken


async def test_those_who_wait_make_room():
    """With all places taken by half requests a whole one is answered, and the oldest half one is closed for it."""
    async with served(Agent(), connections=3) as address:
        first, writer = await asyncio.open_connection(*address)
        writer.write(HALF)
        assert "200 OK" in await ask(address)
        async with crowd(address, 3, HALF), asyncio.timeout(30):
            assert b"" == await first.read()
            assert "200 OK" in await ask(address)
        writer.transport.abort()


async def test_those_who_are_answered_keep_their_place():
    """A request that is being answered is not given up for others; they find no place."""
    agent = Agent()
    agent.gate.clear()
    async with served(agent, connections=1) as address:
        asked = asyncio.create_task(ask(address, "/status"))
        await asyncio.to_thread(agent.began.wait)
        assert "" == await ask(address)
        agent.gate.set()
        assert "200 OK" in await asked


async def test_a_flood_of_requests_is_one_piece_of_work():
    """Who asks while a document is made shares the next one: the agent's threads stay the agent's."""
    agent = Agent()
    agent.gate.clear()
    async with served(agent) as address:
        first = asyncio.create_task(ask(address, "/status"))
        await asyncio.to_thread(agent.began.wait)
        async with crowd(address, 30, b"GET /status HTTP/1.0\r\n\r\n") as flood:
            assert "200 OK" in await ask(address, "/readyz")  # comes after them, and is answered before
            agent.gate.set()
            assert '{"made":1,' in await first
            for reader in flood:
                assert b'{"made":2,' in await reader.read()


NONSENSE = {
    "no-http": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no-version": b"GET /\r\n\r\n",
    "two-hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "endless-line": b"GET /" + b"a" * 100_000,
    "chunk-of-nonsense": b"POST /status HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
}


@pytest.mark.parametrize("text", NONSENSE.values(), ids=NONSENSE)
async def test_nonsense(text, caplog, capfd):
    """Nonsense is closed or answered with an error; nobody else notices, and it leaves no line."""
    async with served(Agent(), head=0.3) as address:
        with structlog.testing.capture_logs() as logs:
            await asyncio.gather(*(say(address, text) for _ in range(20)))
            assert "200 OK" in await ask(address)
    assert ([], [], "") == (logs, caplog.records, capfd.readouterr().err)


async def test_a_document_that_cannot_be_made():
    """A defect in the agent is an answer and one line, however often it is asked for."""
    agent = Agent()
    agent.size = "x"
    async with served(agent) as address:
        with structlog.testing.capture_logs() as logs:
            answers = [await ask(address, "/status") for _ in range(5)]
    assert [True] * 5 == ["500 Internal" in each for each in answers]
    assert ["HTTP request failed"] == [each["event"] for each in logs]


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("127.0.0.1:8080", True),
        ("10.244.1.7:8080", True),
        ("[fd00::7]:8080", True),
        ("localhost:8080", True),
        ("LOCALHOST.", True),
        ("vdev.localhost", True),
        ("vdev.vdev-system.svc:8080", True),
        ("vdev.vdev-system.svc.cluster.local", True),
        ("node-1", True),
        ("gpu.example.com", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:8080", False),
        ("localhost.evil.example", False),
        ("gpu.example.com.evil.example", False),
        ("node-1.evil.example", False),
        ("[::1].evil.example", False),
        ("", False),
    ],
)
async def test_names_of_others_are_not_answered(host, answered):
    """A page of somebody else that gave its name our address (DNS rebinding) reads nothing."""
    async with served(Agent(), hosts=("node-1", "*.example.com")) as address:
        for path in ("/status", "/metrics", "/", "/readyz"):
            assert (200 if answered else 421) == int((await ask(address, path, host)).split()[1])


async def test_a_request_without_a_host():
    """HTTP/1.0 has none; load balancers' probes are like that."""
    async with served(Agent()) as address:
        assert "200 OK" in await say(address, b"GET /healthz HTTP/1.0\r\n\r\n")


async def test_accepting_fails():
    """With no descriptor left the HTTP side says so once and goes on when there are some again."""
    async with served(Agent()) as address:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        client, late = socket.socket(), socket.socket()
        for each in (client, late):
            each.setblocking(False)
        loop = asyncio.get_running_loop()
        with client, late, contextlib.ExitStack() as taken, structlog.testing.capture_logs() as logs:
            resource.setrlimit(resource.RLIMIT_NOFILE, (late.fileno() + 1, hard))
            try:
                with contextlib.suppress(OSError):  # what earlier tests left may be closed between the two sockets
                    while True:
                        taken.callback(os.close, os.dup(0))
                await loop.sock_connect(client, address)
                await loop.sock_sendall(client, b"GET /healthz HTTP/1.0\r\n\r\n")
                await loop.sock_connect(late, address)
                async with asyncio.timeout(30):
                    while not logs:
                        await asyncio.to_thread(lambda: None)  # until the server has tried
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            async with asyncio.timeout(30):
                assert b"200 OK" in await loop.sock_recv(client, 2**16)
    assert ["cannot accept HTTP connections"] == [each["event"] for each in logs if "accept" in each["event"]]
