"""The kubelet's end of a plugin's socket, reduced to what is timed: raw bytes out, raw bytes in.

Requests are encoded beforehand and answers are not decoded, so that the client adds the same to every server. Unary
calls use the synchronous client where one caller is measured (it has the least overhead of its own), the asyncio one
where several are.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import grpc

_SERVICE = "/v1beta1.DevicePlugin/"
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)
TIMEOUT = 30.0  # seconds; nothing here takes that long and works


class Caller:
    """One caller after the other's answer, over one connection."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._channel.close()

    def call(self, method: str, request: bytes) -> bytes:
        """One call; returns the answer's bytes. Raises grpc.RpcError."""
        answer: bytes = self._channel.unary_unary(_SERVICE + method)(request, timeout=TIMEOUT, wait_for_ready=True)
        return answer

    def times(self, method: str, requests: Sequence[bytes], count: int) -> list[float]:
        """Seconds of each of `count` calls, with these requests in turn."""
        call = self._channel.unary_unary(_SERVICE + method)
        taken = []
        for request in itertools.islice(itertools.cycle(requests), count):
            begun = time.perf_counter()
            call(request, timeout=TIMEOUT)
            taken.append(time.perf_counter() - begun)
        return taken

    def times_due(self, method: str, request: bytes, every: float, stop: threading.Event) -> list[float]:
        """Seconds of calls that are made at fixed moments, until told to stop; there is one at least.

        None waits for the one before. Each is timed from the moment at which it was due, so that one pause of the
        server is seen by all calls that fall into it.
        """
        call = self._channel.unary_unary(_SERVICE + method)
        taken: list[float] = []
        answers: list[grpc.Future[bytes]] = []
        due = time.perf_counter()
        while not (answers and stop.is_set()):
            time.sleep(max(0.0, due - time.perf_counter()))
            answers.append(call.future(request, timeout=TIMEOUT))
            answers[-1].add_done_callback(lambda _answer, due=due: taken.append(time.perf_counter() - due))
            due += every
        for each in answers:
            each.result()
        return taken

    @asynccontextmanager
    async def calling(self, method: str, request: bytes, every: float) -> AsyncIterator[list[float]]:
        """`times_due` in a thread while the block runs; the list has them when it has ended."""
        taken: list[float] = []
        stop = threading.Event()
        calls = asyncio.create_task(asyncio.to_thread(self.times_due, method, request, every, stop))
        try:
            yield taken
        finally:
            stop.set()
            taken += await calls


async def times_of_many(
    socket: Path, method: str, requests: Sequence[bytes], count: int, *, callers: int
) -> list[float]:
    """Seconds of each of `count` calls, made by `callers` at once over one connection, as the kubelet has one."""
    async with _channel(socket) as channel:
        call = channel.unary_unary(_SERVICE + method)
        await call(requests[0], timeout=TIMEOUT, wait_for_ready=True)
        taken: list[float] = []
        turns = itertools.cycle(requests)

        async def one() -> None:
            for request in itertools.islice(turns, count // callers):
                begun = time.perf_counter()
                await call(request, timeout=TIMEOUT)
                taken.append(time.perf_counter() - begun)

        await asyncio.gather(*(one() for _ in range(callers)))
        return taken


class Stream:
    """An open ListAndWatch whose lists are noted with the moment of their arrival."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._lists: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read(self) -> None:
        """Note lists until the stream ends."""
        async for message in self._call:
            self._lists.put_nowait((time.perf_counter(), message))

    async def next(self) -> tuple[float, bytes]:
        """The next list and its `perf_counter` time. TimeoutError when none comes."""
        async with asyncio.timeout(TIMEOUT):
            return await self._lists.get()

    async def until_quiet(self, seconds: float) -> None:
        """Return once nothing came for so long; what came is forgotten."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await self._lists.get()
            except TimeoutError:
                return


class Connection:
    """A connection that is open before anything is timed, as the kubelet's is when it asks for the list."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[Stream]:
        """A ListAndWatch, called now."""
        call = self._channel.unary_stream(_SERVICE + "ListAndWatch")(b"", wait_for_ready=True)
        stream = Stream(call)
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(stream.read(), name="read lists")
            try:
                yield stream
            finally:
                reader.cancel()
                call.cancel()


@asynccontextmanager
async def connected(socket: Path) -> AsyncIterator[Connection]:
    """An open connection."""
    async with _channel(socket) as channel:
        await channel.unary_unary(_SERVICE + "GetDevicePluginOptions")(b"", timeout=TIMEOUT, wait_for_ready=True)
        yield Connection(channel)


@asynccontextmanager
async def watching(socket: Path) -> AsyncIterator[Stream]:
    """An open ListAndWatch over a connection of its own."""
    async with connected(socket) as connection, connection.watch() as stream:
        yield stream


@asynccontextmanager
async def _channel(socket: Path) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        yield channel
