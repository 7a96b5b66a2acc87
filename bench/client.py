"""The kubelet's end of a plugin's socket, reduced to what is timed: raw bytes out, raw bytes in.

Requests are encoded beforehand and answers are not decoded, so the client adds the same to every server.
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

from vdev.pb import deviceplugin_v1beta1_pb2 as pb

_SERVICE = "/v1beta1.DevicePlugin/"
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", -1),
)
TIMEOUT = 30.0  # seconds; nothing here takes that long and works
_QUIET = 0.25  # seconds without a list after which the next event may come


def allocation(ids: Sequence[str]) -> bytes:
    """An AllocateRequest for one container."""
    each = pb.ContainerAllocateRequest(devices_ids=ids)
    return pb.AllocateRequest(container_requests=[each]).SerializeToString()


def preference(ids: Sequence[str], size: int) -> bytes:
    """A PreferredAllocationRequest for so many of these devices."""
    each = pb.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
    return pb.PreferredAllocationRequest(container_requests=[each]).SerializeToString()


class Caller:
    """One connection with one caller, as the kubelet is one."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._channel.close()

    def call(self, method: str, request: bytes = b"") -> bytes:
        """One call; returns the answer's bytes."""
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

    @asynccontextmanager
    async def calling(self, method: str, request: bytes, every: float) -> AsyncIterator[list[float]]:
        """Make a call every so many seconds while the block runs; the list has their seconds when it has ended.

        No call waits for the one before. Each is timed from the moment at which it was due, so a pause of the server
        is seen by all calls that fall into it.
        """
        taken: list[float] = []
        stop = threading.Event()
        calls = asyncio.create_task(asyncio.to_thread(self._times_due, method, request, every, stop))
        try:
            yield taken
        finally:
            stop.set()
            taken += await calls

    def _times_due(self, method: str, request: bytes, every: float, stop: threading.Event) -> list[float]:
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


async def rounds_in_turn(
    sides: Sequence[tuple[Path, Sequence[bytes]]], method: str, rounds: int, count: int
) -> list[list[list[float]]]:
    """The rounds of each side, a socket and its requests. Sides take turns, after one round that does not count."""
    found: list[list[list[float]]] = [[] for _ in sides]
    for number in range(rounds + 1):
        for taken, (socket, requests) in zip(found, sides, strict=True):
            with Caller(socket) as caller:
                await asyncio.to_thread(caller.call, method, requests[0])
                times = await asyncio.to_thread(caller.times, method, requests, count)
            if number:
                taken.append(times)
    return found


class Stream:
    """An open ListAndWatch, whose lists are noted with the moment of their arrival."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._lists: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read(self) -> None:
        """Note lists until the stream ends."""
        async for message in self._call:
            self._lists.put_nowait((time.perf_counter(), message))

    async def next(self) -> tuple[float, bytes]:
        """The next list and its `perf_counter` time. TimeoutError if none comes."""
        async with asyncio.timeout(TIMEOUT):
            return await self._lists.get()

    async def quiet(self, seconds: float = _QUIET) -> None:
        """Return once nothing came for so long; what came is forgotten."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await self._lists.get()
            except TimeoutError:
                return


@asynccontextmanager
async def watching(socket: Path) -> AsyncIterator[tuple[Stream, list[str], int]]:
    """A ListAndWatch at rest, the ids and the bytes of its first list."""
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=_OPTIONS) as channel:
        call = channel.unary_stream(_SERVICE + "ListAndWatch")(b"", wait_for_ready=True)
        stream = Stream(call)
        async with asyncio.TaskGroup() as group:
            reader = group.create_task(stream.read(), name="read lists")
            try:
                _, first = await stream.next()
                await stream.quiet()
                yield stream, ids_in(first), len(first)
            finally:
                reader.cancel()
                call.cancel()


def ids_in(message: bytes) -> list[str]:
    """The ids of a list; none if it is one of an empty server."""
    if not any(message):
        return []
    return [each.ID for each in pb.ListAndWatchResponse.FromString(message).devices]
