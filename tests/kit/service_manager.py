"""A service manager that listens on $NOTIFY_SOCKET and records messages."""

import asyncio
import contextlib
import socket


class Listener:
    """Collects the messages of a service at `address`, each a line `NAME=value`."""

    def __init__(self, directory):
        self.address = str(directory / "notify")
        self.messages = []
        self._news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def listening(self):
        """Listen while the context lasts."""
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(self.address)
            listener.setblocking(False)
            loop.add_reader(listener, self._read, listener)
            try:
                yield self
            finally:
                loop.remove_reader(listener)

    def _read(self, listener):
        self.messages += listener.recv(8192).decode().splitlines()
        self._news.set()

    @property
    def status(self):
        """The last status text."""
        return next(
            (line.removeprefix("STATUS=") for line in reversed(self.messages) if line.startswith("STATUS=")), ""
        )

    async def until(self, condition, what):
        """Wait until the messages fulfil a condition."""
        try:
            async with asyncio.timeout(30):
                while not condition():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{what} was not sent, but {self.messages}") from None

    async def ready(self, times=1):
        """Wait until the service has reported readiness this many times."""
        await self.until(lambda: self.messages.count("READY=1") >= times, "READY=1")
