"""The connection over which the kubelet is asked who holds what: kept while its socket and its answers are there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from vdev.pb import podresources_v1_pb2 as pb
from vdev.pb import podresources_v1_pb2_grpc as rpc
from vdev.plugin.podresources_client import PodResources, RateLimited
from vdev.transport import GrpcTransport, Parameters, address

WITHIN = 20.0


class Counting(GrpcTransport):
    """Counts the channels that are open, and those that ever were."""

    def __init__(self) -> None:
        self.channels: list[grpc.aio.Channel] = []

    def channel(self, socket: Path | str, parameters: Parameters = ()) -> grpc.aio.Channel:
        """GRPC's own."""
        made = super().channel(socket, parameters)
        self.channels.append(made)
        return made

    @property
    def open(self) -> int:
        """How many are not closed."""
        return sum(each.get_state() is not grpc.ChannelConnectivity.SHUTDOWN for each in self.channels)


class Lister(rpc.PodResourcesListerServicer):
    """Tells of one pod."""

    def __init__(self, pod: str) -> None:
        self.pod = pod
        self.limited = False

    async def List(self, request: Any, context: Any) -> pb.ListPodResourcesResponse:  # noqa: N802 - the RPC's name
        """Answer, or ask to come again later."""
        del request
        if self.limited:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "later")
        return pb.ListPodResourcesResponse(pod_resources=[pb.PodResources(name=self.pod, namespace="default")])


@asynccontextmanager
async def kubelet(socket: Path, pod: str) -> AsyncIterator[Lister]:
    """Answers at the socket while the context lasts."""
    lister, server = Lister(pod), grpc.aio.server()
    rpc.add_PodResourcesListerServicer_to_server(lister, server)
    server.add_insecure_port(address(socket))
    await server.start()
    try:
        yield lister
    finally:
        await server.stop(None)


@pytest.fixture
async def transport() -> AsyncIterator[Counting]:
    made = Counting()
    with made.engine():
        yield made


async def test_questions_go_over_one_connection(tmp_path: Path, transport: Counting) -> None:
    """Also where the kubelet asks to wait; it is closed at the end."""
    socket = tmp_path / "s.sock"
    client = PodResources(socket, transport)
    async with kubelet(socket, "a") as lister:
        for pod in ("a", "b"):
            lister.pod = pod
            answer = await client.holders("file", within=WITHIN)
            assert answer is not None
            assert {f"default/{pod}"} == answer.without
        lister.limited = True
        with pytest.raises(RateLimited):
            await client.holders("file", within=WITHIN)
        lister.limited = False
        assert await client.holders("file", within=WITHIN)
        assert [1, 1] == [len(transport.channels), transport.open]
        await client.close()
    assert 0 == transport.open


async def test_another_socket_is_another_kubelet(tmp_path: Path, transport: Counting) -> None:
    """The one before may go on answering clients that are still connected to it: it is not asked."""
    socket = tmp_path / "s.sock"
    client = PodResources(socket, transport)
    async with kubelet(socket, "old"):
        await client.holders("old file", within=WITHIN)
        socket.unlink()
        async with kubelet(socket, "new"):
            answer = await client.holders("new file", within=WITHIN)
            assert answer is not None
            assert {"default/new"} == answer.without
            assert [2, 1] == [len(transport.channels), transport.open]
            await client.close()


async def test_after_a_failure_it_is_connected_anew(tmp_path: Path, transport: Counting) -> None:
    """At once, and not when a connection that failed would be tried again by itself."""
    socket = tmp_path / "s.sock"
    client = PodResources(socket, transport)
    async with kubelet(socket, "a"):
        assert await client.holders("file", within=WITHIN)
    assert await client.holders("file", within=WITHIN) is None
    assert 0 == transport.open
    async with kubelet(socket, "a"):
        assert await client.holders("file", within=WITHIN)
        await client.close()
