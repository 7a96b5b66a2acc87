"""The yardstick: a gRPC server with nothing in it, `python -m bench.measured.floor KIND SOCKET [BYTES [DIRECTORY]]`.

KIND is `aio` or `sync`. Every unary method of `v1beta1.DevicePlugin` answers the same empty message without looking at
the request, and ListAndWatch sends BYTES zero bytes once and stays open; an `aio` server sends them again at each event
of DIRECTORY. Nothing is decoded or encoded and no code of the plugin is loaded: no plugin on this stack, in this
Python, can be faster.

`aio` is the floor that the ratios stand on, because the plugin is an asyncio server; `sync` is shown beside it.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent import futures
from typing import Any

import grpc
import inotify_simple

_SERVICE = "v1beta1.DevicePlugin"
_UNARY = ("GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer")
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def serve_aio(socket: str, size: int, directory: str) -> None:
    """Serve until the process is ended."""
    news = asyncio.Event()
    if directory:
        inotify = inotify_simple.INotify(nonblocking=True)
        inotify.add_watch(
            directory, inotify_simple.flags.CREATE | inotify_simple.flags.MOVED_TO | inotify_simple.flags.DELETE
        )
        asyncio.get_running_loop().add_reader(inotify.fileno(), lambda: inotify.read(timeout=0) and news.set())

    async def unary(_request: bytes, _context: object) -> bytes:
        return b""

    async def stream(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        while True:
            news.clear()
            yield bytes(size)
            await news.wait()

    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((_handlers(unary, stream),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


def serve_sync(socket: str, size: int) -> None:
    """Serve from threads until the process is ended."""

    def unary(_request: bytes, _context: object) -> bytes:
        return b""

    def stream(_request: bytes, _context: object) -> Iterator[bytes]:
        yield bytes(size)

    server = grpc.server(futures.ThreadPoolExecutor(4), options=_OPTIONS)
    server.add_generic_rpc_handlers((_handlers(unary, stream),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    server.wait_for_termination()


def _handlers(unary: Any, stream: Any) -> grpc.GenericRpcHandler:
    methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        name: grpc.unary_unary_rpc_method_handler(unary) for name in _UNARY
    }
    methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(stream)
    return grpc.method_handlers_generic_handler(_SERVICE, methods)


if __name__ == "__main__":
    kind, path, *rest = sys.argv[1:]
    bytes_sent = int(rest[0]) if rest else 0
    if kind == "aio":
        asyncio.run(serve_aio(path, bytes_sent, rest[1] if len(rest) > 1 else ""))
    else:
        serve_sync(path, bytes_sent)
