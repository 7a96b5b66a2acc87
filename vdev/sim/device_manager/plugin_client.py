"""A connection from the kubelet to a plugin, with the parameters of the real client.

It dials for up to 10 s, and has the authority `localhost`, a receive limit of 4 MiB and no keepalive. The real kubelet
sets no deadline for Allocate and GetPreferredAllocation. Here, a slow call is a finding, and a call that exceeds
`Timings.bound` is cancelled.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message

from ...pb import deviceplugin_v1beta1_pb2 as api
from ...pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from .. import lint
from ..connection import CallError, Connection, call_errors
from ..kubelet_life import Life
from ..lint import LIST_LIMIT_BYTES

_TOO_LARGE = re.compile(r"code = ResourceExhausted .*(\((\d+) vs\. \d+\))")


class PluginClient(Connection):
    """The connection of one registration."""

    def __init__(self, resource: str, socket: str, life: Life) -> None:
        limits = ("grpc.max_receive_message_length", LIST_LIMIT_BYTES), ("grpc.max_send_message_length", -1)
        super().__init__(socket, *limits)
        self.resource = resource
        self.streaming = False  # whether ListAndWatch is open
        self._timings = life.timings
        self._report = life.journal.find
        self._stub: api_grpc.DevicePluginAsyncStub = api_grpc.DevicePluginStub(self.channel)

    async def watch(self, receive: Callable[[api.ListAndWatchResponse], Awaitable[None]]) -> str:
        """Call `receive` with each message of ListAndWatch; returns why it ended, `EOF` if the plugin returned."""
        self.streaming = True
        try:
            with call_errors():
                async for response in self._stub.ListAndWatch(api.Empty()):
                    await receive(response)
        except CallError as error:
            size = _TOO_LARGE.search(str(error))
            if size is None:
                return str(error)
            text = f"a list of {size[2]} bytes, the kubelet receives at most {LIST_LIMIT_BYTES}"
            self._report([lint.error("list-over-limit", self.resource, text)])
            return f"rpc error: code = ResourceExhausted desc = grpc: received message larger than max {size[1]}"
        finally:
            self.streaming = False
        return "EOF"

    async def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """The answer of a unary method, within `Timings.bound`. Raises CallError."""
        slow = asyncio.get_running_loop().call_later(self._timings.slow, self._say_slow, method)
        try:
            async with asyncio.timeout(self._timings.bound):
                with call_errors():
                    return await getattr(self._stub, method)(request, timeout=timeout)
        except TimeoutError:
            text = f"{method} did not answer within {self._timings.bound:g} s; the real kubelet would wait forever"
            self._report([lint.error("hung-rpc", self.resource, text)])
            raise CallError("rpc error: code = DeadlineExceeded desc = context deadline exceeded") from None
        finally:
            slow.cancel()

    def _say_slow(self, method: str) -> None:
        text = f"{method} takes longer than {self._timings.slow:g} s; every pod of the node is waiting for it"
        self._report([lint.warning("slow-rpc", self.resource, text)])
