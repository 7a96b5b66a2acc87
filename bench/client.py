"""A minimal client in place of the kubelet, which sends and receives raw bytes.

Requests are encoded in advance and responses are not decoded, so the client adds the same time for every server.
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
TIMEOUT = 30.0  # seconds; a call that takes longer has failed
_QUIET = 0.25  # seconds without a list before the next event is caused


def allocation(ids: Sequence[str]) -> bytes:
    """Encode an AllocateRequest for one container."""
    each = pb.ContainerAllocateRequest(devices_ids=ids)
    return pb.AllocateRequest(container_requests=[each]).SerializeToString()


def preference(ids: Sequence[str], size: int) -> bytes:
    """Encode a PreferredAllocationRequest for `size` of these devices."""
    each = pb.ContainerPreferredAllocationRequest(available_deviceIDs=ids, allocation_size=size)
    return pb.PreferredAllocationRequest(container_requests=[each]).SerializeToString()


class Caller:
    """A client with one connection, like the kubelet."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._channel.close()

    def call(self, method: str, request: bytes = b"") -> bytes:
        """Make one call. Returns the bytes of the response."""
        answer: bytes = self._channel.unary_unary(_SERVICE + method)(request, timeout=TIMEOUT, wait_for_ready=True)
        return answer

    def times(self, method: str, requests: Sequence[bytes], count: int) -> list[float]:
        """Return the durations of `count` calls in seconds, which cycle through the requests."""
        call = self._channel.unary_unary(_SERVICE + method)
        taken = []
        for request in itertools.islice(itertools.cycle(requests), count):
            begun = time.perf_counter()
            call(request, timeout=TIMEOUT)
            taken.append(time.perf_counter() - begun)
        return taken

    @asynccontextmanager
    async def calling(self, method: str, request: bytes, every: float) -> AsyncIterator[list[float]]:
        """Make a call every `every` seconds while the block runs. The list gets their durations when the block ends.

        No call waits for the previous one. Each is timed from the moment when it was due, so a pause of the server
        delays all calls that are due during it.
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
    """Return the durations of each round for each side (socket and requests). Sides alternate after one warm-up."""
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
    """An open ListAndWatch stream. It records each list with its time of arrival."""

    def __init__(self, call: Any) -> None:
        self._call = call
        self._lists: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def read(self) -> None:
        """Record lists until the stream ends."""
        async for message in self._call:
            self._lists.put_nowait((time.perf_counter(), message))

    async def next(self) -> tuple[float, bytes]:
        """Return the next list and its `perf_counter` time. Raises TimeoutError if none arrives."""
        async with asyncio.timeout(TIMEOUT):
            return await self._lists.get()

    async def quiet(self, seconds: float = _QUIET) -> None:
        """Discard lists until none has arrived for this time."""
        while True:
            try:
                async with asyncio.timeout(seconds):
                    await self._lists.get()
            except TimeoutError:
                return


@asynccontextmanager
async def watching(socket: Path) -> AsyncIterator[tuple[Stream, list[str], int]]:
    """Open a ListAndWatch stream and wait until it is idle. Yields it with the ids and the size of its first list."""
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
    """Decode the ids of a list. A list of the empty server has none."""
    if not any(message):
        return []
    return [each.ID for each in pb.ListAndWatchResponse.FromString(message).devices]
