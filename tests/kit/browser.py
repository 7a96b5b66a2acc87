"""One headless Chromium for all workers of a run: it takes longer to start than the tests of a page take.

`begin` starts a process that starts it for the first who connects, and hands messages of the DevTools protocol to and
fro: each ends in a zero byte, as on the browser's own pipe, which has room for one who speaks. It ends, and the browser
with it, when who began it is gone.
"""

import asyncio
import atexit
import contextlib
import functools
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
    "--in-process-gpu", "--disable-extensions",
    "--disable-features=PreloadTopChromeWebUI,SpareRendererForSitePerProcess",  # processes whose pages nobody looks at
]  # fmt: skip
_PLUMBING = "import os, sys; [os.dup2(int(sys.argv[n]), n + 2) for n in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"
_SHARED = "VDEV_TESTS_BROWSER"
_LONGEST = 2**26  # bytes of a message


@functools.cache
def address():
    """Where to speak to it: a socket. In a run of several workers it is the same for all, which `share` made."""
    return os.environ.get(_SHARED) or begin()


def share():
    """Make it now, for all processes that this one starts."""
    if CHROMIUM is not None:
        os.environ[_SHARED] = address()


def begin():
    """Start one, which lives as long as this process; gives its address."""
    place = Path(tempfile.mkdtemp(prefix="vd-"))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(place / "socket"))
        server.listen(128)
        process = subprocess.Popen(
            (sys.executable, "-m", "tests.kit.browser", str(server.fileno()), str(place / "profile")),
            stdin=subprocess.PIPE,
            pass_fds=[server.fileno()],
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
    atexit.register(_stop, process, place)
    return str(place / "socket")


def _stop(process, place):
    process.communicate(timeout=30)
    shutil.rmtree(place, ignore_errors=True)


class _Between:
    """Hands messages to and fro. Numbers of messages are told apart by who sent them; what nobody asked is dropped."""

    def __init__(self, profile):
        self._profile = profile
        self._process = self._to = self._heard = None
        self._serial = itertools.count(1)
        self._asked = {}  # who asked, and under which number

    async def serve(self, reader, writer):
        """One who speaks to the browser."""
        if self._process is None:
            back = self._start()
            self._heard = asyncio.create_task(self._listen(await _reader(back)))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                message = json.loads((await reader.readuntil(b"\0"))[:-1])
                number = next(self._serial)
                self._asked[number] = writer, message["id"]
                os.write(self._to, json.dumps(message | {"id": number}).encode() + b"\0")
        writer.close()

    def _start(self):
        theirs, self._to = os.pipe()
        back, said = os.pipe()
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={self._profile}", "about:blank"]
        self._process = subprocess.Popen(
            (sys.executable, "-S", "-c", _PLUMBING, str(theirs), str(said), *command),
            pass_fds=(theirs, said),
            env=os.environ | {"TMPDIR": str(Path(self._profile).parent)},  # it is killed, and leaves what it had there
            stderr=subprocess.DEVNULL,
        )
        for each in (theirs, said):
            os.close(each)
        return back

    async def _listen(self, reader):
        with contextlib.suppress(asyncio.IncompleteReadError):  # it ended
            while True:
                message = json.loads((await reader.readuntil(b"\0"))[:-1])
                if who := self._asked.pop(message.get("id"), None):
                    writer, number = who
                    writer.write(json.dumps(message | {"id": number}).encode() + b"\0")
        for writer, _ in self._asked.values():
            writer.close()

    def kill(self):
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


async def _reader(descriptor):
    reader = asyncio.StreamReader(limit=_LONGEST)
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(descriptor, "rb", buffering=0))
    return reader


async def _main(descriptor, profile):
    between = _Between(profile)
    server = socket.socket(fileno=int(descriptor))
    server.setblocking(False)
    await asyncio.start_unix_server(between.serve, sock=server, limit=_LONGEST)
    await (await _reader(0)).read()
    between.kill()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
