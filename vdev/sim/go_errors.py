"""gRPC as the kubelet's Go has it: how it dials, its errors, and what a plugin is refused with."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator

import grpc
import grpc.aio

from .lint import SUN_PATH_LIMIT

CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"

_OUR_DEADLINE = "Deadline Exceeded"  # as grpcio says it


class RegistrationError(Exception):
    """A registration is refused. The text is the kubelet's."""


def go_text(error: grpc.aio.AioRpcError) -> str:
    """`rpc error: code = NotFound desc = …`; our own deadline in Go's words, another's in those that came with it."""
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and error.details() in (None, "", _OUR_DEADLINE):
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    name = "".join(part.capitalize() for part in code.name.split("_"))
    name = {"Ok": "OK", "Cancelled": "Canceled"}.get(name, name)
    return f"rpc error: code = {name} desc = {error.details() or ''}"


async def dial(channel: grpc.aio.Channel, socket: str, seconds: float) -> bool:
    """Connect, retrying until the time is up; whether the first attempt did it. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        if len(os.fsencode(socket)) > SUN_PATH_LIMIT:
            # gRPC would wait for a change of this channel forever, also when the process wants to end.
            await asyncio.Event().wait()
        at_once = True
        while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
            at_once &= state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE
            await channel.wait_for_state_change(state)
        return at_once


@contextlib.contextmanager
def closing_as(error: type[Exception], is_closed: Callable[[], bool]) -> Iterator[None]:
    """Raise this error where the channel is closed under a call.

    That cancels who waits on it; it is the other side's loss, not the waiting task's end.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if is_closed() and not (task is not None and task.cancelling()):
            raise error(CLOSING) from None
        raise
    except grpc.aio.UsageError:
        raise error(CLOSING) from None
