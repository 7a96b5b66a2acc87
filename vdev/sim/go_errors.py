"""Errors of gRPC in the words of Go, as the kubelet's texts have them, and what a plugin is refused with."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import grpc
import grpc.aio

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
