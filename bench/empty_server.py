"""The floor: a gRPC server without logic, `python -m bench.empty_server SOCKET [BYTES [DIRECTORY]]`.

Every unary method of `v1beta1.DevicePlugin` returns an empty message without reading the request. ListAndWatch sends
BYTES zero bytes, and again at each event in DIRECTORY. The server decodes and encodes nothing and loads no code of the
plugin, so no plugin on `grpc.aio` and this Python can be faster.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

import grpc
import inotify_simple

_UNARY = ("GetDevicePluginOptions", "GetPreferredAllocation", "Allocate", "PreStartContainer")
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


async def serve(socket: str, size: int, directory: str) -> None:
    """Serve until the process is stopped."""
    news = asyncio.Event()
    if directory:
        flags = inotify_simple.flags
        inotify = inotify_simple.INotify(nonblocking=True)
        inotify.add_watch(directory, flags.CREATE | flags.MOVED_TO | flags.DELETE)
        asyncio.get_running_loop().add_reader(inotify.fileno(), lambda: inotify.read(timeout=0) and news.set())

    async def unary(_request: bytes, _context: object) -> bytes:
        return b""

    async def stream(_request: bytes, _context: object) -> AsyncIterator[bytes]:
        while True:
            news.clear()
            yield bytes(size)
            await news.wait()

    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        name: grpc.unary_unary_rpc_method_handler(unary) for name in _UNARY
    }
    handlers["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(stream)
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    path, bytes_sent, watched, *_ = [*sys.argv[1:], "", ""]
    asyncio.run(serve(path, int(bytes_sent or 0), watched))
