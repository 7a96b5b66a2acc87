"""The agent's own socket, beside another agent's."""

import socket

import structlog

from vdev.observe import control


async def answer(_request):
    """Something."""
    return "first"


async def test_a_living_socket_is_left_alone(directory):
    """A second process with the same directory says so and works on; the first one keeps its socket."""
    with structlog.testing.capture_logs() as logs:
        async with control.serving(directory, {"status": answer}), control.serving(directory, {}):
            assert "first" == await control.ask(directory, {"do": "status"})
    (line,) = [each for each in logs if each["log_level"] == "warning"]
    assert ("no control socket", True) == (line["event"].partition(";")[0], "--run-dir" in line["reason"])


async def test_a_leftover_is_replaced(directory):
    """The socket of a process that is gone makes room."""
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(directory / control.SOCKET))
    async with control.serving(directory, {"status": answer}):
        assert "first" == await control.ask(directory, {"do": "status"})
