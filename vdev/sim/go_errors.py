"""Errors of gRPC in the words of Go, as the kubelet's texts have them."""

import grpc
import grpc.aio


def go_text(error: grpc.aio.AioRpcError) -> str:
    """`rpc error: code = NotFound desc = …`."""
    code = error.code()
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    name = "".join(part.capitalize() for part in code.name.split("_"))
    name = {"Ok": "OK", "Cancelled": "Canceled"}.get(name, name)
    return f"rpc error: code = {name} desc = {error.details() or ''}"
