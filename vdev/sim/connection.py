"""Connections to plugins and drivers. They dial like Go's gRPC and use its error texts."""

import asyncio
import contextlib
import os
from collections.abc import Iterator

import grpc
import grpc.aio

from .lint import SUN_PATH_LIMIT

READY = grpc.ChannelConnectivity.READY
_CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"
_GRPCIO_DEADLINE = "Deadline Exceeded"  # grpcio's text when the caller's deadline passes


class CallError(Exception):
    """A plugin or driver returned an error or did not respond. The text is that of Go's gRPC."""


class RegistrationError(Exception):
    """The kubelet refuses a registration. The text is the real kubelet's."""


def go_text(error: grpc.aio.AioRpcError) -> str:
    """Format an error as Go does: `rpc error: code = NotFound desc = …`."""
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and error.details() in (None, "", _GRPCIO_DEADLINE):
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    name = "".join(part.capitalize() for part in code.name.split("_"))
    name = {"Ok": "OK", "Cancelled": "Canceled"}.get(name, name)
    return f"rpc error: code = {name} desc = {error.details() or ''}"


class Connection:
    """A connection to the socket of a plugin or a driver. `options` are additional gRPC channel options."""

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
    """Raise CallError for every error of a call, including a closed channel.

    If the channel is closed, grpc.aio raises CancelledError in the waiting task although nothing has cancelled it.
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
