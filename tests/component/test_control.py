"""The agent's command socket: another agent's socket, lost sockets, and malformed requests."""

import asyncio
import contextlib
import json
import os
import shutil
import socket

import pytest

from vdev.agent import command_socket, status
from vdev.errors import HostError, SocketError

CONFIG = "devices: [{name: npu, resource: acme.dev/npu, virtual: {count: 1}}]\n"


async def answer(_request):
    """A command."""
    return "first"


async def defect(_request):
    """A command with a defect."""
    raise ZeroDivisionError("by zero")


@contextlib.asynccontextmanager
async def serving(directory, commands):
    """Serve the socket inside the context."""
    task = asyncio.create_task(command_socket.serve(directory, commands))
    while not (directory / command_socket.SOCKET).is_socket() and not task.done():
        await asyncio.sleep(0.001)
    yield task
    task.cancel()
    await asyncio.wait([task])


async def test_the_socket_of_a_running_agent_is_left_alone(directory):
    """A second process with the same directory gets an error, and the first one keeps its socket."""
    async with serving(directory, {"status": answer}):
        with pytest.raises(HostError, match="--run-dir"):
            await command_socket.serve(directory, {})
        assert "first" == await command_socket.ask(directory, {"do": "status"})
    assert not (directory / command_socket.SOCKET).exists()


async def test_a_dead_socket_is_replaced(directory):
    """Its process has ended."""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(directory / command_socket.SOCKET))
    task, reply = asyncio.create_task(command_socket.serve(directory, {"status": answer})), None
    while reply is None:
        await asyncio.sleep(0.001)
        with contextlib.suppress(SocketError):
            reply = await command_socket.ask(directory, {"do": "status"})
    assert "first" == reply
    task.cancel()
    await asyncio.wait([task])


def _remove(run):
    (run / command_socket.SOCKET).unlink()


def _bind_another(run):
    _remove(run)
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(run / command_socket.SOCKET))


@pytest.mark.parametrize("harm", [_remove, shutil.rmtree, _bind_another])
async def test_a_removed_socket_is_created_again(directory, kubelet, start_agent, shows, harm):
    """Clients reach the agent again, and it removes the socket at its end."""
    run = directory / "run"
    agent = await start_agent(CONFIG, run_dir=run, look_at_devices=0.05)
    await shows("acme.dev/npu", 1, 1)
    await kubelet.wait_until((run / command_socket.SOCKET).exists, what="the socket")
    for _ in range(2):
        harm(run)
        async with asyncio.timeout(10):
            while not await _answers(run):
                await asyncio.sleep(0.01)
    await agent.stop()
    assert not (run / command_socket.SOCKET).exists()


async def test_the_socket_of_another_process_stays(directory):
    """The end of an agent removes only its own."""
    async with serving(directory, {"status": answer}):
        assert "first" == await command_socket.ask(directory, {"do": "status"})
        _bind_another(directory)
    assert (directory / command_socket.SOCKET).is_socket()


async def _answers(run):
    with contextlib.suppress(SocketError):
        return "npu" in str(await command_socket.ask(run, {"do": "status"}))
    return False


async def test_an_agent_without_its_socket_goes_on(directory, kubelet, start_agent, shows):
    """There is a problem until the socket can be created."""
    (directory / "run").write_text("no directory")
    agent = await start_agent(CONFIG, run_dir=directory / "run", retry_step_first=0.01, retry_step_most=0.05)
    await shows("acme.dev/npu", 1, 1)
    await kubelet.wait_until(lambda: status.status(agent.agent)["problems"], what="the problem")
    (problem,) = status.status(agent.agent)["problems"]
    assert "vdev status" in problem["message"]
    (directory / "run").unlink()
    await kubelet.wait_until((directory / "run" / command_socket.SOCKET).exists, what="the socket")
    assert "npu" in str(await command_socket.ask(directory / "run", {"do": "status"}))


NONSENSE = [
    b"",
    b"\n",
    b"x\n",
    b"\xff\xfe\n",
    b"[]\n",
    b"7\n",
    b"null\n",
    b"{}\n",
    b'{"do": []}\n',
    b'{"do": {}}\n',
    b'{"do": "\\ud800"}\n',
    b'{"do": "nothing"}\n',
    b'{"do": "defect"}\n',
    b"[" * 200_000 + b"\n",
    b'{"do": "status", "x": "' + b"x" * 2**21 + b'"}\n',
]


async def test_malformed_requests_get_errors(directory):
    """The next request is served."""
    async with serving(directory, {"status": answer, "defect": defect}):
        for sent in NONSENSE:
            reader, writer = await asyncio.open_unix_connection(directory / command_socket.SOCKET)
            with contextlib.suppress(ConnectionError):  # the server need not read all of it
                writer.write(sent)
                writer.write_eof()
                await writer.drain()
            with contextlib.suppress(ConnectionError):
                reply = json.loads(await reader.readline())
                assert (False, str) == (reply["ok"], type(reply["error"])), sent[:16]
            writer.close()
            assert "first" == await command_socket.ask(directory, {"do": "status"}), sent[:16]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: chown")
async def test_a_directory_of_another_user_is_not_used(directory, monkeypatch):
    """That user could put another socket there, so neither the agent nor clients use the directory."""
    run_dir = directory / "run"
    run_dir.mkdir()
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    os.chown(run_dir, 4321, 4321)
    with pytest.raises(HostError, match="belongs to user 4321; remove it, or give another --run-dir"):
        await command_socket.serve(run_dir, {})
    with pytest.raises(SocketError, match="belongs to user 4321"):
        await command_socket.ask(run_dir, {"do": "status"})
