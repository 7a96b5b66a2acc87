"""A connection from the kubelet to a plugin, with the parameters of the real client.

It dials for up to 10 s, and has the authority `localhost`, a receive limit of 4 MiB and no keepalive. The real kubelet
sets no deadline for Allocate and GetPreferredAllocation. Here, a slow call is a finding, and a call that exceeds
`Timings.bound` is cancelled.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import TypeVar

import grpc
import grpc.aio

from ...pb import deviceplugin_v1beta1_pb2 as api
from ...pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from .. import lint
from ..go_errors import closing_as, dial, go_text
from ..kubelet_life import Life
from ..lint import LIST_LIMIT_BYTES

_T = TypeVar("_T")
_TOO_LARGE = re.compile(r"\((\d+) vs\. \d+\)")


class PluginError(Exception):
    """A plugin answered with an error, or did not answer. The text is that of Go's gRPC."""


class PluginClient:
    """The connection of one registration."""

    def __init__(self, resource: str, socket: str, life: Life) -> None:
        self.resource = resource
        self.socket = socket
        self.streaming = False  # whether ListAndWatch is open
        self._timings = life.timings
        self._report = life.journal.find
        self._closed = False
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.default_authority", "localhost"),
                ("grpc.max_receive_message_length", LIST_LIMIT_BYTES),
                ("grpc.max_send_message_length", -1),
                # With the global pool, a new channel to the same path would use the old connection.
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self._stub: api_grpc.DevicePluginAsyncStub = api_grpc.DevicePluginStub(self._channel)

    async def dial(self) -> bool:
        """Connect, with retries; returns whether the first attempt succeeded. Raises PluginError."""
        try:
            with self._closing():
                return await dial(self._channel, self.socket, self._timings.dial)
        except TimeoutError:
            raise PluginError("context deadline exceeded") from None

    async def options(self) -> api.DevicePluginOptions:
        """GetDevicePluginOptions. Raises PluginError."""
        return await self._call("GetDevicePluginOptions", lambda: self._stub.GetDevicePluginOptions(api.Empty()))

    async def watch(self, receive: Callable[[api.ListAndWatchResponse], Awaitable[None]]) -> str:
        """Call `receive` with each message of ListAndWatch; returns why it ended, `EOF` if the plugin returned."""
        self.streaming = True
        try:
            with self._closing():
                async for response in self._stub.ListAndWatch(api.Empty()):
                    await receive(response)
        except grpc.aio.AioRpcError as error:
            size = _TOO_LARGE.search(error.details() or "")
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and size is not None:
                text = f"a list of {size[1]} bytes, the kubelet receives at most {LIST_LIMIT_BYTES}"
                self._report([lint.error("list-over-limit", self.resource, text)])
                return f"rpc error: code = ResourceExhausted desc = grpc: received message larger than max {size[0]}"
            return go_text(error)
        except PluginError as error:
            return str(error)
        finally:
            self.streaming = False
        return "EOF"

    async def preferred(self, request: api.PreferredAllocationRequest) -> api.PreferredAllocationResponse:
        """GetPreferredAllocation, within `Timings.bound`. Raises PluginError."""
        return await self._call("GetPreferredAllocation", lambda: self._stub.GetPreferredAllocation(request))

    async def allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        """Allocate, within `Timings.bound`. Raises PluginError."""
        return await self._call("Allocate", lambda: self._stub.Allocate(request))

    async def pre_start(self, request: api.PreStartContainerRequest) -> None:
        """PreStartContainer, the only call with a deadline in the real kubelet. Raises PluginError."""
        await self._call(
            "PreStartContainer", lambda: self._stub.PreStartContainer(request, timeout=self._timings.pre_start)
        )

    async def close(self) -> None:
        """Close the connection, and cancel its calls."""
        self._closed = True
        await self._channel.close(None)

    async def _call(self, name: str, call: Callable[[], Awaitable[_T]]) -> _T:
        slow = asyncio.get_running_loop().call_later(self._timings.slow, self._say_slow, name)
        try:
            async with asyncio.timeout(self._timings.bound):
                with self._closing():
                    return await call()
        except TimeoutError:
            text = f"{name} did not answer within {self._timings.bound:g} s; the real kubelet would wait forever"
            self._report([lint.error("hung-rpc", self.resource, text)])
            raise PluginError("rpc error: code = DeadlineExceeded desc = context deadline exceeded") from None
        except grpc.aio.AioRpcError as error:
            raise PluginError(go_text(error)) from None
        finally:
            slow.cancel()

    def _say_slow(self, name: str) -> None:
        text = f"{name} takes longer than {self._timings.slow:g} s; every pod of the node is waiting for it"
        self._report([lint.warning("slow-rpc", self.resource, text)])

    def _closing(self) -> AbstractContextManager[None]:
        return closing_as(PluginError, lambda: self._closed)
