"""One resource's gRPC server: a socket of its own, the five RPCs, and every open ListAndWatch stream.

The server holds the resource as it is now and answers from that; it decides nothing. A new state is a new value of
`resource`, which all streams are told of. Registration is not its business (see `service`).

A server never outlives its socket: gRPC does not recreate a deleted one, so after a kubelet restart a new server is
made.
"""

import asyncio
import contextlib
import os
import resource as limits
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import grpc
import structlog

from ..core.allocation.edits import container_edits
from ..core.allocation.request import allocate
from ..core.inventory.list_size import LIST_LIMIT
from ..core.inventory.resources import Resource
from ..core.model.fault_effects import CallFault, Rpc, StreamFault
from ..errors import SocketError, VdevError
from ..hostfs.look import is_directory
from ..pb import deviceplugin_v1beta1_pb2 as pb
from . import faulty_answers
from .encode import ListEncoder, container_response
from .fault_hooks import NO_FAULTS, FaultHooks
from .kubelet_socket import MAX_SOCKET_PATH

log = structlog.get_logger(__name__)

_START, _STOP = 5.0, 5.0  # seconds within which gRPC must have started or stopped a server
_EXHAUSTED = "Too many open files; each resource takes two, raise ulimit -n"
_FREE = 128  # file descriptors that are enough for everything else
_PRE_START = 28.0  # seconds; the kubelet waits 30
_SERVICE = "v1beta1.DevicePlugin"
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # GetPreferredAllocation carries every available id
    ("grpc.max_send_message_length", -1),  # the list's limit is judged where it is made
    ("grpc.so_reuseport", 0),
)
_Answer = TypeVar("_Answer")


class Desk(Protocol):
    """What a server needs from the agent: choices, actions before a container starts, and who is told of requests."""

    allocate_deadline: float
    """Seconds after which an Allocate or a preference is given up; the kubelet itself would wait for ever."""

    async def prefer(
        self, resource: Resource, available: Sequence[str], required: Sequence[str], size: int
    ) -> Sequence[str]:
        """The devices to prefer, or nothing."""

    def begin(self, resource: str, ids: Sequence[str] | None) -> Callable[[], None]:
        """An RPC that names these ids (None: any of the resource) is in flight until the returned function is
        called.
        """

    def allocated(self, resource: str, ids: Sequence[str]) -> None:
        """A request was granted."""

    async def pre_start(self, resource: Resource, ids: Sequence[str]) -> None:
        """Do what must be done before a container with these devices starts."""

    def observe_rpc(self, rpc: str, resource: str, code: str, seconds: float) -> None:
        """An RPC ended."""


class _Injected(Exception):
    """A call ends with an error on demand."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


def _ids(request: object) -> Sequence[str] | None:
    """The device ids that a request names; None where it may be about any."""
    match request:
        case pb.AllocateRequest():
            return [each for container in request.container_requests for each in container.devices_ids]
        case pb.PreferredAllocationRequest():
            return None
    return ()


async def _nothing(_request: object) -> None:
    """A stream's beginning has no answer."""


class ResourceServer:
    """Serves one resource on one socket; `streams` counts the open ListAndWatch calls.

    `on_stream` is called when a ListAndWatch stream opens and when one ends, whoever ended it.
    """

    def __init__(
        self,
        resource: Resource,
        path: Path,
        desk: Desk,
        *,
        on_stream: Callable[[], None],
        faults: FaultHooks = NO_FAULTS,
    ) -> None:
        self.resource = resource
        self.path = path
        self.streams = 0
        self.stream_opened = 0  # how many streams there have been
        self.asked = 0  # how often the options were asked for, with which each registration begins
        self._desk = desk
        self._on_stream = on_stream
        self._faults = faults
        self._poked = asyncio.Event()
        self._encoder = ListEncoder()
        self._list = self._encoder.encode(resource.slots)
        self._version = 0
        self._news: set[asyncio.Event] = set()
        self._closing = False
        self._cut = 0  # how often streams were closed on purpose
        self._server: grpc.aio.Server | None = None
        self._inode = 0

    async def start(self) -> None:
        """Bind the socket and serve; raises SocketError with the reason."""
        check_socket_path(self.path)
        if _are_scarce():
            raise SocketError(f"cannot create a socket in {self.path.parent}: {_EXHAUSTED}")
        server = grpc.aio.server(options=_OPTIONS)
        server.add_generic_rpc_handlers((self._handlers(),))
        try:
            server.add_insecure_port(f"unix:{self.path}")
            async with asyncio.timeout(_START):
                await server.start()
            self._inode = await asyncio.to_thread(lambda: self.path.stat().st_ino)
        except (RuntimeError, OSError, TimeoutError) as failed:
            exhausted = _no_descriptor_left()  # at once: the next line gives some back
            await server.stop(None)
            reason = exhausted or await asyncio.to_thread(_why_not_bound, self.path, failed)
            # The directory and not the path: the next attempt has another path, and the same trouble is told once.
            raise SocketError(f"cannot create a socket in {self.path.parent}: {reason}") from failed
        except asyncio.CancelledError:  # nobody else knows of this server, which may serve by now
            await server.stop(None)
            raise
        self._server = server

    async def restore(self) -> None:
        """Bind the same path again, whose file is gone, for a kubelet that dials it; raises SocketError."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop(None)  # first: it removes what stands at the path, whoever made it
        await self.start()

    async def stop(self) -> None:
        """End the streams, finish what is in flight, close the socket; safe to call twice."""
        self._closing = True
        self._poked.set()
        self._tell()
        if self._server is not None:
            server, self._server = self._server, None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP):
                    await server.stop(grace=2.0)

    def owns_socket(self) -> bool:
        """Whether the socket's path still leads here; a kubelet deletes all sockets when it starts. Blocking, but
        brief.
        """
        try:
            return self.path.lstat().st_ino == self._inode
        except OSError:
            return False

    def update(self, resource: Resource) -> None:
        """Serve this state from now on; every open stream gets the list when it differs from the last one.

        A list over the kubelet's limit would end the stream and take the whole resource down, so it is never sent;
        what was listed stays. Lists that are too long from the start never get here; one that grows does (Unhealthy is
        a longer word).
        """
        self.resource = resource
        encoded = self._encoder.encode(resource.slots)
        if len(encoded) > LIST_LIMIT:
            log.error("list not sent; the kubelet could not receive it", resource=resource.name, bytes=len(encoded))
        elif encoded != self._list:
            self._list = encoded
            self._version += 1
            self._tell()

    def list_again(self) -> None:
        """Send the list once more to every open stream."""
        self._version += 1
        self._tell()

    def poke(self) -> None:
        """Ask the hooks again: what faults do to streams and hanging calls may have changed."""
        self._poked.set()
        self._poked = asyncio.Event()
        self._tell()

    def close_streams(self) -> None:
        """End the streams that are open now, as a plugin that loses its way does."""
        self._cut += 1
        self._tell()

    def _tell(self) -> None:
        for event in self._news:
            event.set()

    # --- RPCs ---------------------------------------------------------------------------------------------------------

    def _handlers(self) -> grpc.GenericRpcHandler:
        unary = grpc.unary_unary_rpc_method_handler
        quick = self._desk.allocate_deadline
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetDevicePluginOptions": unary(
                self._guard("GetDevicePluginOptions", self._get_options, quick),
                pb.Empty.FromString,
                pb.DevicePluginOptions.SerializeToString,
            ),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch, pb.Empty.FromString, None),
            "GetPreferredAllocation": unary(
                self._guard("GetPreferredAllocation", self._get_preferred, quick),
                pb.PreferredAllocationRequest.FromString,
                pb.PreferredAllocationResponse.SerializeToString,
            ),
            "Allocate": unary(
                self._guard("Allocate", self._allocate, quick),
                pb.AllocateRequest.FromString,
                pb.AllocateResponse.SerializeToString,
            ),
            "PreStartContainer": unary(
                self._guard("PreStartContainer", self._pre_start, _PRE_START),
                pb.PreStartContainerRequest.FromString,
                pb.PreStartContainerResponse.SerializeToString,
            ),
        }
        return grpc.method_handlers_generic_handler(_SERVICE, methods)

    def _guard(
        self, rpc: str, handler: Callable[[Any], Awaitable[_Answer]], deadline: float
    ) -> Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[_Answer]]:
        """Translate errors once: to a gRPC status and a sentence that a pod's event can show."""
        loop, kind = asyncio.get_running_loop(), Rpc(rpc)

        async def guarded(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> _Answer:
            begun, code = loop.time(), "OK"
            fault = self._faults.on_call(kind, self.resource.name)
            try:
                if fault is not None:
                    return await self._suffer(fault, request, handler, deadline)
                async with asyncio.timeout(deadline):
                    return await handler(request)
            except _Injected as injected:
                code = injected.code
                await context.abort(grpc.StatusCode[code], str(injected))
            except asyncio.CancelledError:
                code = "CANCELLED"
                raise
            except VdevError as refusal:
                code = refusal.grpc_status
                log.warning("request refused", rpc=rpc, resource=self.resource.name, reason=str(refusal))
                await context.abort(grpc.StatusCode[code], str(refusal))
            except TimeoutError:
                code = "DEADLINE_EXCEEDED"
                log.error("request timed out", rpc=rpc, resource=self.resource.name)  # noqa: TRY400 - no trace, it says nothing
                await context.abort(
                    grpc.StatusCode.DEADLINE_EXCEEDED, f"vdev did not answer {rpc} for {self.resource.name} in time"
                )
            except Exception as failed:
                code = "INTERNAL"
                log.exception("request failed", rpc=rpc, resource=self.resource.name)
                await context.abort(
                    grpc.StatusCode.INTERNAL, f"vdev failed in {rpc} for {self.resource.name}: {failed}"
                )
            finally:
                self._desk.observe_rpc(rpc, self.resource.name, code, loop.time() - begun)
            raise AssertionError("abort raises")

        return guarded

    async def _suffer(
        self, fault: CallFault, request: Any, handler: Callable[[Any], Awaitable[_Answer]], deadline: float
    ) -> _Answer:
        """Let a fault happen to a call, which is in flight all the while: its devices must not be dropped meanwhile."""
        done = self._desk.begin(self.resource.name, _ids(request))
        try:
            if fault.delay:
                await self._faults.sleep(fault.delay)
            if fault.hang:
                while self._faults.holds(fault.rule) and not self._closing:
                    await self._poked.wait()
                raise _Injected("UNAVAILABLE", f"the call hung until the fault {fault.rule!r} ended")
            if fault.fail is not None:
                raise _Injected(fault.fail.code, fault.fail.message)
            async with asyncio.timeout(deadline):
                right = await handler(request)
            return right if fault.faulty_answer is None else faulty_answers.answer(fault.faulty_answer, request, right)
        finally:
            done()

    def options(self) -> pb.DevicePluginOptions:
        """The same in the registration and in GetDevicePluginOptions; the kubelet reads only the latter."""
        return pb.DevicePluginOptions(
            pre_start_required=self.resource.pre_start_required, get_preferred_allocation_available=True
        )

    async def _get_options(self, _request: pb.Empty) -> pb.DevicePluginOptions:
        self.asked += 1
        return self.options()

    async def _list_and_watch(
        self, request: pb.Empty, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[bytes]:
        news = asyncio.Event()
        self._news.add(news)
        self.streams += 1
        self.stream_opened += 1
        sent = None
        cut = self._cut
        fault = self._faults.on_call(Rpc.LIST, self.resource.name)
        try:
            self._on_stream()
            if fault is not None:
                await self._suffer(fault, request, _nothing, self._desk.allocate_deadline)
            while not self._closing and cut == self._cut:
                ill = self._faults.on_stream(self.resource.name)
                due = (self._version, ill)
                if ill is not None and ill.fault is StreamFault.FLOOD:
                    yield self._list
                    await self._faults.sleep(1.0 / ill.rate)
                    continue
                if due != sent and (ill is None or ill.fault is not StreamFault.STALL):
                    sent = due
                    yield (
                        self._list
                        if ill is None
                        else faulty_answers.device_list(ill.fault, self.resource.slots, self._list)
                    )
                    continue  # a newer list may have come while this one was written
                news.clear()
                await news.wait()
        except _Injected as injected:
            await context.abort(grpc.StatusCode[injected.code], str(injected))
        finally:
            self._news.discard(news)
            self.streams -= 1
            self._on_stream()

    async def _get_preferred(self, request: pb.PreferredAllocationRequest) -> pb.PreferredAllocationResponse:
        done = self._desk.begin(self.resource.name, None)
        try:
            answers = [
                await self._desk.prefer(
                    self.resource, each.available_deviceIDs, each.must_include_deviceIDs, each.allocation_size
                )
                for each in request.container_requests
            ]
        finally:
            done()
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        )

    async def _allocate(self, request: pb.AllocateRequest) -> pb.AllocateResponse:
        wanted = [each.devices_ids for each in request.container_requests]
        done = self._desk.begin(self.resource.name, [slot for ids in wanted for slot in ids])
        try:
            edits = [container_edits(allocate(self.resource, ids)) for ids in wanted]
            for ids in wanted:
                self._desk.allocated(self.resource.name, ids)
                self._faults.allocated(self.resource.name, ids)
        finally:
            done()
        return pb.AllocateResponse(container_responses=[container_response(each) for each in edits])

    async def _pre_start(self, request: pb.PreStartContainerRequest) -> pb.PreStartContainerResponse:
        await self._desk.pre_start(self.resource, request.devices_ids)
        return pb.PreStartContainerResponse()


def check_socket_path(path: Path) -> None:
    """Raise SocketError for a path that no socket can have; gRPC itself would hide the reason."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise SocketError(
            f"a socket path in {path.parent} would have {length} bytes; the system allows {MAX_SOCKET_PATH}: "
            "use a shorter --kubelet-dir"
        )


def _no_descriptor_left() -> str:
    """Why no file can be opened now, or the empty string; gRPC itself would hide it."""
    try:
        os.close(os.dup(2))
    except OSError:
        return _EXHAUSTED
    return ""


def _are_scarce() -> bool:
    """Whether a server would take descriptors that are needed for more than itself.

    The kubelet's connections come later, and without a few for files no smaller configuration could be read. So no
    server is made beyond half of the limit; beyond so many free ones nobody counts.
    """
    soft, _ = limits.getrlimit(limits.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        for _ in range(_FREE if soft < 0 else min(_FREE, soft // 2)):
            taken.append(os.dup(2))  # noqa: PERF401 - what was taken must be known when the next one fails
    except OSError:
        return True
    finally:
        for each in taken:
            os.close(each)
    return False


def _why_not_bound(path: Path, failed: Exception) -> str:
    directory = path.parent
    if not is_directory(directory):
        return f"{directory} does not exist; is --kubelet-dir right, and mounted?"
    if not os.access(directory, os.W_OK):
        if os.geteuid() == 0:
            return f"{directory} is not writable, not even for root: is it mounted read-only?"
        return f"{directory} is not writable; run as root or be given access"
    return str(failed) or type(failed).__name__
