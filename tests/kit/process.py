"""Runs the plugin in its own process, as on a node, and many HTTP clients."""

import asyncio
import contextlib
import json
import os
import signal
import sys

PATIENCE = 2.5  # seconds that a client waits for a connection


def send_signal(process, number):
    """Send a signal to a process that may have ended.

    asyncio's `send_signal` polls the exit code first, so a task that waits for the process may get 255 instead.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


class Process:
    """A `vdev run` process for a kubelet, with a `ulimit`. Its control socket is in `run_dir`.

    As a context manager, it stops the process with SIGTERM and checks the exit code.
    """

    def __init__(self, directory, kubelet, text, *, ulimit="-n 1024", flags=()):
        self.run_dir, self.cdi_dir = directory / "run", directory / "cdi"
        self._text, self._config, self._log = text, directory / "vdev.yaml", directory / "log"
        options = ["--config-file", self._config, "--kubelet-dir", kubelet.root, "--run-dir", self.run_dir]
        options += ["--cdi-dir", self.cdi_dir, "--device-dir", directory / "devices", "--node-name", "node-1"]
        options += ["--state-dir", directory / "state", "--http-address", "127.0.0.1:0", "--log-format", "json", *flags]
        vdev = (sys.executable, "-m", "vdev", "run", *map(str, options))
        self._command = ("sh", "-c", f'ulimit {ulimit}; exec "$@"', "sh", *vdev)

    async def __aenter__(self):
        await asyncio.to_thread(self.edit, self._text)
        with self._log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(*self._command, stdout=log, stderr=log)
        return self

    async def __aexit__(self, *_):
        assert 0 == await self.end()

    @property
    def address(self):
        """The address of the HTTP server, from the log. The process listens before it registers.

        The log may also have lines of earlier processes.
        """
        *_, line = [each for each in self.log() if each["event"] == "serving HTTP"]
        host, _, port = line["address"].rpartition(":")
        return host, int(port)

    async def end(self):
        """Send SIGTERM. Returns the exit code."""
        send_signal(self.process, signal.SIGTERM)
        try:
            async with asyncio.timeout(30):
                return await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            raise

    def edit(self, text):
        """Replace the configuration by a rename, as editors do."""
        fresh = self._config.with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self._config)

    def hang_up(self):
        """Send SIGHUP."""
        send_signal(self.process, signal.SIGHUP)

    def log(self):
        """Return the log so far."""
        lines = self._log.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]


@contextlib.asynccontextmanager
async def crowd(address, count, text):
    """Open many connections that send a text and then nothing. Yields their writers by reader.

    A connection attempt ends if the backlog is full for PATIENCE seconds, in which TCP tries twice.
    """
    opened = {}

    async def one():
        with contextlib.suppress(OSError):  # refused or timed out
            async with asyncio.timeout(PATIENCE):
                reader, writer = await asyncio.open_connection(*address)
            opened[reader] = writer
            writer.write(text)

    try:
        await asyncio.gather(*(one() for _ in range(count)))
        yield opened
    finally:
        for writer in opened.values():
            writer.transport.abort()


async def send_text(address, text):
    """Send a text, and return all data until the server closes the connection."""
    async with asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(*address)
        try:
            writer.write(text)
            return (await reader.read()).decode()
        except ConnectionError:
            return ""
        finally:
            writer.transport.abort()


async def ask(address, path="/readyz", host="127.0.0.1"):
    """Get a path on a new connection."""
    return await send_text(address, f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())


async def ready(address):
    """Wait until the plugin is ready."""
    async with asyncio.timeout(30):
        while "200 OK" not in await ask(address):
            pass
