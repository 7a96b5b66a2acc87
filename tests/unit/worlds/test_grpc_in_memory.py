"""What the plugin and the kubelet rely on holds for gRPC on sockets and for gRPC in memory alike."""

import asyncio
import contextlib
import os
import socket

import grpc
import grpc.aio
import pytest

from tests.worlds import grpc_channel
from tests.worlds.grpc_calls import Network
from vdev.deviceplugin.socket_server import is_dead
from vdev.pb import deviceplugin_v1beta1_pb2 as pb
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as rpc

State = grpc.ChannelConnectivity
Code = grpc.StatusCode
OF_ITS_OWN = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture(params=["sockets", "memory"])
def grpc_on(request):
    """GRPC itself, and what stands in for it."""
    if request.param == "sockets":
        yield
    else:
        with grpc_channel.installed(Network()):
            yield


class Plugin:
    """Answers in each of the ways in which a handler can."""

    def __init__(self):
        self.cancelled = asyncio.Queue()
        self.news = asyncio.Queue()
        self.asked, self.listed = asyncio.Event(), asyncio.Event()

    def handlers(self):
        """The methods, for a server."""
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        methods = {
            "GetDevicePluginOptions": unary(self._options, None, pb.DevicePluginOptions.SerializeToString),
            "ListAndWatch": stream(self._list, None, pb.ListAndWatchResponse.SerializeToString),
            "Allocate": unary(self._hang, pb.AllocateRequest.FromString),
            "GetPreferredAllocation": unary(self._refuse),
            "PreStartContainer": unary(self._break),
        }
        return (grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),)

    async def _options(self, _request, _context):
        return pb.DevicePluginOptions(pre_start_required=True)

    async def _list(self, _request, _context):
        try:
            while (message := await self.news.get()) is not None:
                yield pb.ListAndWatchResponse(devices=[pb.Device(ID=message, health="Healthy")])
                self.listed.set()
        except asyncio.CancelledError:
            self.cancelled.put_nowait("stream")
            raise

    async def _hang(self, _request, _context):
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait("Allocate")
            raise

    async def _refuse(self, _request, context):
        await context.abort(Code.NOT_FOUND, "no such device")

    async def _break(self, _request, _context):
        raise ValueError("broken")


@pytest.fixture
def path(directory, grpc_on):
    return directory / "plugin.sock"


@pytest.fixture
def memory_path(directory):
    with grpc_channel.installed(Network()):
        yield directory / "plugin.sock"


@contextlib.asynccontextmanager
async def serving(path, *, start=True):
    server, plugin = grpc.aio.server(options=[("grpc.so_reuseport", 0)]), Plugin()
    server.add_generic_rpc_handlers(plugin.handlers())
    server.add_insecure_port(f"unix:{path}")
    if start:
        await server.start()
    try:
        yield server, plugin
    finally:
        await server.stop(None)


@contextlib.asynccontextmanager
async def calling(path, *parameters):
    async with grpc.aio.insecure_channel(f"unix:{path}", options=[*OF_ITS_OWN, *parameters]) as channel:
        yield channel, rpc.DevicePluginStub(channel)


async def failure(call):
    """How a call fails: its code, and what is said."""
    async with asyncio.timeout(10):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await call
    return failed.value.code(), failed.value.details()


async def listed(stub, first=None):
    """The devices of a stream, when it has ended; `first` is set with the first message."""
    seen = []
    async for answer in stub.ListAndWatch(pb.Empty()):
        seen += [device.ID for device in answer.devices]
        if first is not None:
            first.set()
    return seen


async def test_an_answer_comes(path):
    async with serving(path), calling(path) as (channel, stub):
        assert channel.get_state() is State.IDLE
        assert pb.DevicePluginOptions(pre_start_required=True) == await stub.GetDevicePluginOptions(pb.Empty())
        assert channel.get_state() is State.READY


async def test_errors_have_their_code_and_text(path):
    async with serving(path), calling(path) as (channel, stub):
        asked = stub.GetPreferredAllocation(pb.PreferredAllocationRequest())
        assert (Code.NOT_FOUND, "no such device") == await failure(asked)
        broken = "Unexpected <class 'ValueError'>: broken"
        assert (Code.UNKNOWN, broken) == await failure(stub.PreStartContainer(pb.PreStartContainerRequest()))
        unknown = channel.unary_unary("/v1beta1.DevicePlugin/Unknown")
        assert (Code.UNIMPLEMENTED, "Method not found!") == await failure(unknown(b""))


async def test_a_call_that_takes_too_long_ends_on_both_sides(path):
    async with serving(path) as (_, plugin), calling(path) as (_, stub):
        for patience in (0.05, 0.5, 5):  # a busy machine needs some to bring a call to its handler
            asked = stub.Allocate(pb.AllocateRequest(), timeout=patience)
            assert (Code.DEADLINE_EXCEEDED, "Deadline Exceeded") == await failure(asked)
            if plugin.asked.is_set():
                break
        async with asyncio.timeout(10):
            assert await plugin.cancelled.get() == "Allocate"


async def test_nobody_there_and_nobody_listening(path):
    async def text():
        async with calling(path) as (channel, stub):
            code, told = await failure(stub.GetDevicePluginOptions(pb.Empty()))
            assert code is Code.UNAVAILABLE
            assert channel.get_state() is State.TRANSIENT_FAILURE
            return told

    at = f"unix:{path}: connect failed: addr: unix:{path} error:"
    nobody = "failed to connect to all addresses; last error: FAILED_PRECONDITION: "
    assert f"{nobody}{at} No such file or directory" == await text()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        assert f"{nobody}{at} Connection refused" == await text()


async def test_messages_of_a_stream_come_in_their_order_and_then_its_end(path):
    async with serving(path) as (_, plugin), calling(path) as (_, stub):
        for each in ("one", "two", "three", None):
            plugin.news.put_nowait(each)
        async with asyncio.timeout(10):
            assert ["one", "two", "three"] == await listed(stub)


async def test_who_waits_no_longer_cancels_the_handler(path):
    async with serving(path) as (_, plugin), calling(path) as (_, stub):
        plugin.news.put_nowait("one")
        first = asyncio.Event()  # gRPC may lose a cancellation that meets a message
        stream = asyncio.create_task(listed(stub, first))
        unary = asyncio.create_task(_ask(stub))
        async with asyncio.timeout(10):
            await plugin.asked.wait()
            await first.wait()
            await asyncio.sleep(0.01)  # until it waits for the next one
            for task, what in ((stream, "stream"), (unary, "Allocate")):
                task.cancel()
                assert what == await plugin.cancelled.get()


async def _ask(stub):
    return await stub.Allocate(pb.AllocateRequest())


async def test_the_end_of_a_server_ends_calls_and_removes_the_socket(path):
    async with serving(path) as (server, plugin), calling(path) as (channel, stub):
        stream, unary = asyncio.create_task(listed(stub)), asyncio.create_task(_ask(stub))
        plugin.news.put_nowait("one")
        async with asyncio.timeout(10):
            await plugin.asked.wait()
            await plugin.listed.wait()
        await server.stop(None)
        assert not path.exists()
        told = Code.UNAVAILABLE, "Cancelling all calls"
        assert [told, told] == [await failure(stream), await failure(unary)]
        async with asyncio.timeout(10):
            assert {await plugin.cancelled.get(), await plugin.cancelled.get()} <= {"stream", "Allocate"}
            await channel.wait_for_state_change(State.READY)
        assert channel.get_state() is State.IDLE


async def test_a_server_that_ends_with_grace_lets_calls_end_and_takes_no_more(path):
    async with serving(path) as (server, plugin), calling(path) as (_, stub):
        stream = asyncio.create_task(listed(stub))
        plugin.news.put_nowait("one")
        async with asyncio.timeout(10):
            await plugin.listed.wait()
            ending = asyncio.create_task(server.stop(10))
            while path.exists():
                await asyncio.sleep(0.001)
            plugin.news.put_nowait("two")
            plugin.news.put_nowait(None)
            assert ["one", "two"] == await stream
            await ending
        async with calling(path) as (_, late):
            assert (await failure(late.GetDevicePluginOptions(pb.Empty())))[0] is Code.UNAVAILABLE


async def test_the_end_of_a_channel_cancels_who_waits_and_the_handlers(path):
    async with serving(path) as (_, plugin):
        channel = grpc.aio.insecure_channel(f"unix:{path}", options=OF_ITS_OWN)
        stub = rpc.DevicePluginStub(channel)
        unary = asyncio.create_task(_ask(stub))
        async with asyncio.timeout(10):
            await plugin.asked.wait()
            await channel.close(None)
            with pytest.raises(asyncio.CancelledError):
                await unary
            assert await plugin.cancelled.get() == "Allocate"
        assert channel.get_state() is State.SHUTDOWN
        with pytest.raises(grpc.aio.UsageError):
            await _ask(stub)


async def test_a_connection_outlives_the_file_of_its_socket(path):
    async with serving(path), calling(path) as (_, stub):
        await stub.GetDevicePluginOptions(pb.Empty())
        path.unlink()
        await stub.GetDevicePluginOptions(pb.Empty())
        async with calling(path) as (_, late):
            assert (await failure(late.GetDevicePluginOptions(pb.Empty())))[0] is Code.UNAVAILABLE


async def test_a_channel_finds_the_next_server_of_its_path(path):
    async with calling(path) as (channel, stub):
        for _ in range(2):
            async with serving(path):
                await stub.GetDevicePluginOptions(pb.Empty())
            async with asyncio.timeout(10):  # a call beside the end of the last one may go either way
                await channel.wait_for_state_change(State.READY)


async def test_who_waits_for_a_connection_gets_it_when_somebody_serves(path):
    quickly = ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)
    async with calling(path, *quickly) as (channel, _), asyncio.timeout(10):
        assert channel.get_state(try_to_connect=True) is State.IDLE
        while (state := channel.get_state(try_to_connect=True)) is not State.TRANSIENT_FAILURE:
            await channel.wait_for_state_change(state)
        async with serving(path):
            await channel.channel_ready()
            assert channel.get_state() is State.READY


async def _options(stub):
    return await stub.GetDevicePluginOptions(pb.Empty())


async def test_a_hard_link_of_the_socket_leads_to_the_same_server(path):
    other = path.with_name("other.sock")
    async with serving(path), calling(other) as (_, stub):
        other.hardlink_to(path)
        path.unlink()
        assert (await _options(stub)).pre_start_required


async def test_a_socket_takes_the_place_of_another_one_but_not_of_a_file(path):
    async with serving(path):
        first = path.stat().st_ino
        async with serving(path), calling(path) as (_, stub):
            assert path.stat().st_ino != first
            assert (await _options(stub)).pre_start_required
    path.write_text("a file")
    for where in (path, path.parent / "missing" / "plugin.sock"):
        with pytest.raises(RuntimeError, match=f"Failed to bind to address unix:{where}; "):
            grpc.aio.server().add_insecure_port(f"unix:{where}")
    assert path.read_text() == "a file"


async def test_a_server_that_ends_leaves_what_is_no_socket(path):
    async with serving(path) as (server, _):
        path.unlink()
        path.write_text("a file")
        await server.stop(None)
        assert path.read_text() == "a file"


async def test_a_look_at_the_socket_tells_whether_somebody_listens(path):
    async with serving(path):
        assert not await asyncio.to_thread(is_dead, path)
    assert not path.exists()


async def test_a_process_in_memory_that_is_killed_leaves_sockets_that_refuse(memory_path):
    async with serving(memory_path) as (server, servicer), calling(memory_path) as (_, stub):
        asked = asyncio.create_task(_ask(stub))
        await servicer.asked.wait()
        server.kill()
        assert (Code.UNAVAILABLE, "Socket closed") == await failure(asked)
        assert is_dead(memory_path)


async def test_a_caller_in_memory_that_is_killed_is_noticed(memory_path):
    async with serving(memory_path) as (_, servicer), calling(memory_path) as (channel, stub):
        asked = asyncio.create_task(_ask(stub))
        async with asyncio.timeout(10):
            await servicer.asked.wait()
            channel.kill()
            assert await servicer.cancelled.get() == "Allocate"
        assert not asked.done()
        asked.cancel()


async def test_the_socket_of_memory_is_a_file_of_this_system(memory_path):
    async with serving(memory_path):
        assert memory_path.is_socket()
        assert os.access(memory_path, os.W_OK)
