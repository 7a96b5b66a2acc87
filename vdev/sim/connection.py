"""Connections to plugins and drivers, which dial and word their errors as Go's gRPC does."""

import asyncio
import contextlib
import os
from collections.abc import Iterator

import grpc
import grpc.aio

from .lint import SUN_PATH_LIMIT

READY = grpc.ChannelConnectivity.READY
_CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"
_GRPCIO_DEADLINE = "Deadline Exceeded"  # the text of grpcio for a deadline of the caller


class CallError(Exception):
    """A plugin or driver answered with an error, or did not answer. The text is that of Go's gRPC."""


class RegistrationError(Exception):
    """A registration is refused. The text is the kubelet's."""


def go_text(error: grpc.aio.AioRpcError) -> str:
    """The error in Go's words: `rpc error: code = NotFound desc = …`."""
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and error.details() in (None, "", _GRPCIO_DEADLINE):
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    name = "".join(part.capitalize() for part in code.name.split("_"))
    name = {"Ok": "OK", "Cancelled": "Canceled"}.get(name, name)
    return f"rpc error: code = {name} desc = {error.details() or ''}"


class Connection:
    """A connection to the socket of a plugin or a driver. `options` are more options of gRPC."""

    def __init__(self, socket: str, *options: tuple[str, int], authority: str = "localhost") -> None:
        self.socket = socket
        self.channel = grpc.aio.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.default_authority", authority),
                # With the global pool, a new channel to the same path would use the old connection.
                ("grpc.use_local_subchannel_pool", 1),
                *options,
            ],
        )

    async def dial(self, seconds: float) -> bool:
        """Connect, with retries; returns whether the first attempt succeeded. Raises CallError."""
        at_once = True
        try:
            async with asyncio.timeout(seconds):
                if len(os.fsencode(self.socket)) > SUN_PATH_LIMIT:
                    # gRPC would wait for a change of this channel even after a cancellation.
                    await asyncio.Event().wait()
                with call_errors():
                    while (state := self.channel.get_state(try_to_connect=True)) is not READY:
                        at_once &= state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE
                        await self.channel.wait_for_state_change(state)
        except TimeoutError:
            raise CallError("context deadline exceeded") from None
        return at_once

    async def close(self) -> None:
        """Close the connection at once, and cancel its calls."""
        await self.channel.close(None)


@contextlib.contextmanager
def call_errors() -> Iterator[None]:
    """Raise CallError for every error of a call, also if its channel is closed.

    grpc.aio then raises CancelledError in the waiting task, which nobody has cancelled.
    """
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise CallError(go_text(error)) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise CallError(_CLOSING) from None
    except grpc.aio.UsageError:
        raise CallError(_CLOSING) from None
