"""An API server is the same to its clients over sockets and over the connections that a world has in memory."""

import asyncio

import pytest

from tests.kit import quick
from tests.kit.api_server import ApiServer
from tests.worlds.machine.memory_tcp import MemoryTcp
from vdev import kube
from vdev.aio.timing import Timing
from vdev.core.intervals import Intervals
from vdev.kube import NODES


@pytest.fixture(params=[None, MemoryTcp], ids=["TCP", "memory"])
def compare(request, directory):
    """Run a story with a server, its client, and the node `n`, on either kind of loop."""
    (directory / "token").write_text("secret")

    def run(story, **intervals):
        async def play():
            async with ApiServer(schemas=False) as server:
                address = kube.ApiServerAddress(address=server.address, token=directory / "token")
                await server.add("nodes", {"metadata": {"name": "n"}})
                async with kube.Api(address, timing=Timing(Intervals(**quick.INTERVALS | intervals))) as api:
                    return await asyncio.wait_for(story(server, api), 30)

        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(play())

    return run


async def reason(work):
    """Why the server could not be asked."""
    with pytest.raises(kube.Unreachable) as raised:
        await work
    return raised.value.reason


def test_requests_share_a_connection(compare):
    """One after the other; those at once need more."""

    async def story(server, api):
        for number in range(3):
            await api.patch(NODES, "n", {"metadata": {"labels": {"a": str(number)}}})
        one = server.connections
        await asyncio.gather(*(api.get(NODES, "n") for _ in range(3)))
        return one, server.connections > 1, server.object("nodes", "n")["metadata"]["labels"]

    assert (1, True, {"a": "2"}) == compare(story)


def test_large_bodies(compare):
    """Both ways, in as many pieces as it takes."""

    async def story(_server, api):
        text = "x" * 200_000
        await api.patch(NODES, "n", {"metadata": {"annotations": {"a": text}}})
        return (await api.get(NODES, "n"))["metadata"]["annotations"]["a"] == text

    assert compare(story)


@pytest.mark.parametrize(("status", "error"), [(409, kube.Conflict), (422, kube.Invalid), (403, kube.Denied)])
def test_refusals(compare, status, error):
    """With what the server says of them."""

    async def story(server, api):
        server.fail(status=status, message="no such luck")
        with pytest.raises(error, match="no such luck"):
            await api.patch(NODES, "n", {})
        return True

    assert compare(story)


def test_wait_and_try_again(compare):
    """429 with Retry-After, on the same connection."""

    async def story(server, api):
        server.fail(status=429, after=0, times=2)
        await api.get(NODES, "n")
        return len(server.asked), server.connections

    assert (3, 1) == compare(story)


def test_nobody_listens(compare):
    """The port stays the same, so the text is that of the system with its number left out."""

    async def story(server, api):
        await server.down()
        said = await reason(api.get(NODES, "n"))
        return said.replace(str(server.port), "PORT")

    assert compare(story) == "Connect call failed ('127.0.0.1', PORT)"


def test_cut_before_the_answer(compare):
    """A request is not sent again by itself."""

    async def story(server, api):
        failure = server.fail(status=0)
        said = await reason(api.get(NODES, "n"))
        return said, failure.hits

    assert ("Server disconnected without sending a response.", 1) == compare(story)


def test_an_idle_connection_that_was_closed(compare):
    """It is not used again."""

    async def story(server, api):
        await api.get(NODES, "n")
        await server.down()
        await server.up()
        await asyncio.sleep(0.01)  # its end arrives
        await api.get(NODES, "n")
        return server.connections

    assert compare(story) == 2


def test_no_answer_in_time(compare):
    """The connection is given up, which the server sees."""

    async def story(server, api):
        server.fail(hang=True, times=1)
        said = await reason(api.get(NODES, "n"))
        await api.get(NODES, "n")
        return said, server.connections

    assert ("nothing came within 0.5 s", 2) == compare(story, api_answer=0.5)


def test_a_request_that_is_cancelled(compare):
    """Others go on."""

    async def story(server, api):
        server.fail(hang=True, times=1)
        asking = asyncio.ensure_future(api.get(NODES, "n"))
        await server.until(lambda: server.asked)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        return asking.cancelled(), (await api.get(NODES, "n"))["metadata"]["name"]

    assert (True, "n") == compare(story)


def test_a_watch_that_is_left(compare):
    """The server notices."""

    async def story(server, api):
        async with api.follow(NODES) as changes:
            await anext(changes)
            waiting = asyncio.ensure_future(anext(changes))
            await server.until(lambda: server.watching == 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await server.until(lambda: server.watching == 0)
        return True

    assert compare(story)


@pytest.mark.parametrize("rest", [b"", b'{"type": "MODIF'])
def test_a_watch_that_breaks(compare, rest):
    """Between two lines or in the middle of one: it goes on where it was."""

    async def story(server, api):
        async def label(value):
            await server.until(lambda: server.watching)
            await server.edit("nodes", "n", {"metadata": {"labels": {"a": value}}})

        told = []
        async with api.follow(NODES) as changes, asyncio.TaskGroup() as group:
            async for change in changes:
                told.append(type(change).__name__)
                if told == ["Listed"]:
                    group.create_task(label("1"))
                elif told == ["Listed", "Changed"]:
                    server.break_watches(rest)
                    group.create_task(label("2"))
                elif told.count("Changed") == 2:
                    return told
        return told

    assert ["Listed", "Changed", "Lost", "Back", "Changed"] == compare(story)


# --- what only a network in memory can be told to do ------------------------------------------------------------------


def test_a_cut_network():
    """What was sent comes once it is mended, in its order; who connects meanwhile waits."""

    async def play():
        network = asyncio.get_running_loop().network
        seen = asyncio.Queue()
        async with await asyncio.start_server(lambda *ends: echo(*ends, seen), "127.0.0.1", 80):
            _, early = await asyncio.open_connection("127.0.0.1", 80)
            network.cut()
            early.write(b"a\n")
            early.write(b"b\n")
            late = asyncio.ensure_future(asyncio.open_connection("127.0.0.1", 80))
            await asyncio.sleep(0.01)
            before = late.done(), seen.empty()
            network.mend()
            found = [await seen.get(), await seen.get()]
            for _, writer in [await late, (None, early)]:
                writer.close()
                await writer.wait_closed()
            return before, [*found, await seen.get(), await seen.get()]

    async def echo(reader, writer, seen):
        async for line in reader:
            seen.put_nowait(line)
        writer.close()
        seen.put_nowait(b"")

    with asyncio.Runner(loop_factory=MemoryTcp) as runner:
        assert ((False, True), [b"a\n", b"b\n", b"", b""]) == runner.run(play())


def test_a_connection_that_is_reset():
    """Both ends are told."""

    async def play():
        ended = asyncio.Queue()

        async def serve(reader, _writer):
            try:
                await reader.read()
            except ConnectionResetError:
                ended.put_nowait("server")

        async with await asyncio.start_server(serve, "127.0.0.1", 80):
            reader, writer = await asyncio.open_connection("127.0.0.1", 80)
            writer.transport.reset()
            with pytest.raises(ConnectionResetError):
                await reader.read()
            return await ended.get()

    with asyncio.Runner(loop_factory=MemoryTcp) as runner:
        assert runner.run(play()) == "server"
