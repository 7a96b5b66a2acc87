"""The connection over which the kubelet is asked who holds what: kept while its socket and its answers are there."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from vdev.deviceplugin.podresources import PodResources, RateLimited
from vdev.pb import podresources_v1_pb2 as pb
from vdev.pb import podresources_v1_pb2_grpc as rpc

WITHIN = 20.0


class Channels(list[grpc.aio.Channel]):
    """All that were made."""

    @property
    def open(self) -> int:
        """How many are not closed."""
        return sum(each.get_state() is not grpc.ChannelConnectivity.SHUTDOWN for each in self)


class Lister(rpc.PodResourcesListerServicer):
    """Tells of one pod."""

    def __init__(self, pod: str) -> None:
        self.pod = pod
        self.limited = False

    async def List(self, request: Any, context: Any) -> pb.ListPodResourcesResponse:
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
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield lister
    finally:
        await server.stop(None)


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> Channels:
    """Those that are made during the test."""
    made, make = Channels(), grpc.aio.insecure_channel

    def kept(*arguments: Any, **options: Any) -> grpc.aio.Channel:
        made.append(make(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(grpc.aio, "insecure_channel", kept)
    return made


async def test_questions_go_over_one_connection(tmp_path: Path, channels: Channels) -> None:
    """Also where the kubelet asks to wait; it is closed at the end."""
    socket = tmp_path / "s.sock"
    client = PodResources(socket)
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
        assert [1, 1] == [len(channels), channels.open]
        await client.close()
    assert 0 == channels.open


async def test_another_socket_is_another_kubelet(tmp_path: Path, channels: Channels) -> None:
    """The one before may go on answering clients that are still connected to it: it is not asked."""
    socket = tmp_path / "s.sock"
    client = PodResources(socket)
    async with kubelet(socket, "old"):
        await client.holders("old file", within=WITHIN)
        socket.unlink()
        async with kubelet(socket, "new"):
            answer = await client.holders("new file", within=WITHIN)
            assert answer is not None
            assert {"default/new"} == answer.without
            assert [2, 1] == [len(channels), channels.open]
            await client.close()


async def test_after_a_failure_it_is_connected_anew(tmp_path: Path, channels: Channels) -> None:
    """At once, and not when a connection that failed would be tried again by itself."""
    socket = tmp_path / "s.sock"
    client = PodResources(socket)
    async with kubelet(socket, "a"):
        assert await client.holders("file", within=WITHIN)
    assert await client.holders("file", within=WITHIN) is None
    assert 0 == channels.open
    async with kubelet(socket, "a"):
        assert await client.holders("file", within=WITHIN)
        await client.close()
