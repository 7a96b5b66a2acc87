"""What every test starts from: a process that no earlier test has configured."""

import signal

import pytest
import structlog


@pytest.fixture(autouse=True)
def _as_if_new():
    """Undo what a command run in this process does to it: logging onto a captured stream, signal handlers."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    structlog.reset_defaults()
    for number, handler in handlers.items():
        signal.signal(number, handler)
