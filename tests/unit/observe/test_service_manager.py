"""What reaches the socket of the service manager, and that nothing which goes wrong there is anybody's problem."""

import os
import secrets
import socket

import pytest
import structlog

from vdev.observe.service_manager import ServiceManager, from_environment


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A socket, and the address as $NOTIFY_SOCKET has it."""
    address = str(tmp_path / "notify") if request.param == "path" else f"@vdev-test-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(address.replace("@", "\0", 1))
        listener.settimeout(5)
        yield listener, address


def test_each_message_is_a_datagram(manager):
    """Of lines NAME=value, as sd_notify(3) has them; a path and an abstract name both do."""
    listener, address = manager
    service = ServiceManager(address)
    for tell in (service.ready, service.alive, service.stopping):
        tell()
    service.more_time(1.5)
    service.status("two\nlines\0 and ü")
    seen = [listener.recv(4096).decode() for _ in range(5)]
    assert ["READY=1", "WATCHDOG=1", "STOPPING=1"] == seen[:3]
    assert ["EXTEND_TIMEOUT_USEC=1500000", "STATUS=two lines  and ü"] == seen[3:]


def test_a_long_status_is_cut(manager):
    """It is one line for people."""
    listener, address = manager
    ServiceManager(address).status("x" * 5000)
    assert f"STATUS={'x' * 399}…" == listener.recv(8192).decode()


def test_a_service_manager_that_is_away_is_told_of_once(tmp_path):
    """Nothing is raised, and the log has one line however often it is tried."""
    service = ServiceManager(str(tmp_path / "nobody"))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            service.alive()
    assert [("service manager not told", "No such file or directory")] == [(e["event"], e["reason"]) for e in logs]


def test_a_service_manager_that_does_not_read_holds_nothing_up(tmp_path):
    """A full queue of datagrams is a failure like any other."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "full"))
        service = ServiceManager(str(tmp_path / "full"))
        with structlog.testing.capture_logs() as logs:
            for _ in range(2000):
                service.alive()
    assert ["Resource temporarily unavailable"] == [each["reason"] for each in logs]


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1234"])
def test_without_a_socket_there_is_no_service_manager(address):
    """Nor with one of a kind that no service manager of this host uses."""
    assert from_environment({} if address is None else {"NOTIFY_SOCKET": address}) is None


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "30000000"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "mine"}, 30.0),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_the_watchdog_counts_if_it_is_meant_for_this_process(environ, seconds):
    """A child must not answer for its parent."""
    if environ.get("WATCHDOG_PID") == "mine":
        environ = environ | {"WATCHDOG_PID": str(os.getpid())}
    service = from_environment({"NOTIFY_SOCKET": "@somewhere", **environ})
    assert service is not None
    assert seconds == service.watchdog
