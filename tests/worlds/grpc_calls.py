"""gRPC in memory: the caller's side and the server's side of a call."""

import asyncio
import contextvars
import functools
from collections.abc import AsyncIterator, Callable, Generator
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from google.protobuf.message import Message

if TYPE_CHECKING:
    from tests.worlds.grpc_server import MemoryServer

_MARGIN = 1e-6  # seconds between two messages of a call, so that they arrive in order


def serialized(message: Any, *, by: Callable[[Any], bytes]) -> bytes:
    """Serialize a message. Maps are sorted, so the bytes are the same in each process."""
    return message.SerializeToString(deterministic=True) if isinstance(message, Message) else by(message)


class Network:
    """The listening servers of one machine. `delay` draws the delay in seconds of a message to a process. `note` is
    called with each message, its call, and whether it is a request, an answer or a failure.
    """

    def __init__(
        self,
        delay: Callable[[str], float] = lambda _by: 0.0,
        note: Callable[["Answering", str, bytes], None] = lambda *_: None,
    ) -> None:
        self.delay = delay
        self.note = note
        self.listening: dict[tuple[int, int], MemoryServer] = {}  # by device and inode
        self._context = contextvars.copy_context()  # of no process, so a message arrives even if its sender is dead

    def later(self, seconds: float, action: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Call a function after a delay, even if the calling process has ended."""
        loop = asyncio.get_running_loop()
        if seconds <= 0:
            return loop.call_soon(action, *args, context=self._context)
        return loop.call_later(seconds, action, *args, context=self._context)


class Calling:
    """The caller's side of a call: the common part of `Ending` and `Streaming`."""

    def __init__(
        self, network: Network, deserialize: Callable[[bytes], Any], *, over: Callable[["Calling"], None]
    ) -> None:
        self._network = network
        self._deserialize = deserialize
        self._over = over
        self._expiry: asyncio.Handle | None = None
        self._done = False

    def expire_after(self, seconds: float | None) -> None:
        if seconds is not None:
            text = "Deadline Exceeded"
            self._expiry = self._network.later(seconds, self.fail, grpc.StatusCode.DEADLINE_EXCEEDED, text)

    def receive(self, message: bytes) -> None:
        if not self._done:
            self._take(self._deserialize(message))

    def fail(self, code: grpc.StatusCode, text: str) -> None:
        if not self._done:
            self._finish(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text))

    def end(self) -> None:
        if not self._done:
            self._finish(None)

    def abandon(self) -> None:
        """Cancel the waiting caller, because its channel is closed."""
        if not self._done:
            self._finish(asyncio.CancelledError())

    def cancelled(self) -> None:
        if not self._done:
            self._close()

    def _take(self, message: Any) -> None:
        raise NotImplementedError

    def _finish(self, error: BaseException | None) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        self._done = True
        if self._expiry is not None:
            self._expiry.cancel()
        self._over(self)


class Ending(Calling):
    """A call with one answer."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answer.add_done_callback(self._seen)

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self._answer)

    def _take(self, message: Any) -> None:
        if not self._answer.done():
            self._answer.set_result(message)

    def _finish(self, error: BaseException | None) -> None:
        self._close()
        if self._answer.done():
            return
        if isinstance(error, asyncio.CancelledError):
            self._answer.cancel()
        elif error is not None:
            self._answer.set_exception(error)
            self._answer.exception()  # marks it as retrieved, because the caller may have stopped waiting

    def _seen(self, answer: "asyncio.Future[Any]") -> None:
        if answer.cancelled():
            self.cancelled()


class Streaming(Calling):
    """A call with a stream of answers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._messages: list[Any] = []
        self._error: BaseException | None = None
        self._news: asyncio.Future[None] | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        while not self._messages:
            if self._done:
                raise self._error or StopAsyncIteration
            self._news = asyncio.get_running_loop().create_future()
            try:
                await self._news
            except asyncio.CancelledError:
                self.cancelled()
                raise
        return self._messages.pop(0)

    def _take(self, message: Any) -> None:
        self._messages.append(message)
        self._tell()

    def _finish(self, error: BaseException | None) -> None:
        self._close()
        self._error = error
        if isinstance(error, asyncio.CancelledError):
            self._messages.clear()
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class _Aborted(grpc.aio.AbortError):
    """A handler ended its call itself."""


class _Context:
    """The used part of gRPC's servicer context."""

    def __init__(self) -> None:
        self.code: grpc.StatusCode | None = None
        self.details = ""

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: object = ()) -> None:
        del trailing_metadata
        self.code, self.details = code, details
        raise _Aborted("Locally aborted.")


class Answering:
    def __init__(
        self,
        network: Network,
        calling: Calling,
        method: str,
        request: bytes,
        *,
        server: object,
        ends: tuple[str, str],
        over: Callable[[Calling], None],
    ) -> None:
        self.calling = calling
        self.method = method
        self.request = request
        self.server = server
        self.ends = ends  # the processes of the server and of the caller
        self.came_at = 0.0
        self._network = network
        self._over = over
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._last = 0.0  # when the last message arrives

    def begin(self, handler: Any, context: contextvars.Context) -> None:
        """Run the handler, in a task of the server's process."""
        if self._cancelled:
            return
        if handler is None:
            self._end(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
            return
        loop = asyncio.get_running_loop()
        self.came_at = loop.time()
        self._task = loop.create_task(self._run(handler), name=f"answer {self.method}", context=context.copy())

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def tell(self, action: Callable[..., None], *args: Any) -> None:
        """Send something to the caller's side, in order."""
        now = asyncio.get_running_loop().time()
        seconds = self._network.delay(self.ends[1])
        if self._last or seconds > 0:
            self._last = max(now + seconds, self._last + _MARGIN)
            seconds = self._last - now
        self._network.later(seconds, action, *args)

    async def _run(self, handler: Any) -> None:
        context, request = _Context(), self.request
        try:
            asked = handler.request_deserializer(request) if handler.request_deserializer else request
            serialize = functools.partial(serialized, by=handler.response_serializer or bytes)
            if handler.unary_stream is not None:
                async for each in handler.unary_stream(asked, context):
                    self._send(serialize(each))
            else:
                self._send(serialize(await handler.unary_unary(asked, context)))
        except asyncio.CancelledError:
            return
        except _Aborted:
            self._end(context.code or grpc.StatusCode.UNKNOWN, context.details)
        except Exception as failed:
            code = context.code or grpc.StatusCode.UNKNOWN
            self._end(code, context.details or f"Unexpected {type(failed)}: {failed}")
        else:
            self._end(context.code or grpc.StatusCode.OK, context.details)

    def _send(self, message: bytes) -> None:
        if not self._cancelled:
            self._network.note(self, "answer", message)
            self.tell(self.calling.receive, message)

    def _end(self, code: grpc.StatusCode, text: str) -> None:
        if self._cancelled:
            return
        if code is grpc.StatusCode.OK:
            self.tell(self.calling.end)
        else:
            self._network.note(self, "failure", f"{code.name} {text}".encode())
            self.tell(self.calling.fail, code, text)
        self._over(self.calling)
