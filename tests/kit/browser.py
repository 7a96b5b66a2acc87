"""A page in a headless Chromium, controlled by the DevTools protocol.

Messages are JSON, end in a zero byte, and use the two pipes that the browser has as its descriptors 3 and 4.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
PATIENCE = 60
_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
    "--in-process-gpu", "--disable-extensions",
    "--disable-features=PreloadTopChromeWebUI,SpareRendererForSitePerProcess",  # spare processes, which are not used
]  # fmt: skip
_PLUMBING = "import os, sys; [os.dup2(int(sys.argv[n]), n + 2) for n in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"
_LONGEST = 2**26  # bytes of a message
# A script that lets the page poll more often, and records exceptions and violations of its security policy.
_SCRIPT = """
const later = setTimeout;
window.setTimeout = (action, pause) => later(action, pause / 8);
window.seen = [];
addEventListener("error", (event) => seen.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => seen.push(event.violatedDirective));
"""


class Page:
    """One page of the browser."""

    def __init__(self, reader, to):
        self._reader, self._to, self._session = reader, to, None
        self._serial = itertools.count(1)

    async def call(self, method, **parameters):
        """Send a command of the DevTools protocol, and return its answer."""
        number = next(self._serial)
        message = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                if answer.get("id") == number:  # other messages are events
                    assert "error" not in answer, answer
                    return answer["result"]

    async def begin(self):
        """Attach to the browser's first page."""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        await self.call("Page.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=_SCRIPT)

    async def open(self, address, fragment=""):
        """Open the agent's page, and wait until it is rendered."""
        assert not await self.value("window.seen?.length"), await self.value("window.seen")
        query = f"?{next(self._serial)}"  # distinguishes it from the previous page
        await self.call("Page.navigate", url=f"http://{address}/{query}{fragment}")
        await self.until(f"location.search === '{query}' && document.documentElement?.dataset.live === 'yes'")

    async def wide(self, width):
        """Set the width of the window."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)

    async def value(self, expression):
        """Evaluate an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition):
        """Wait until an expression is true in the page."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.value(condition):  # there is no event
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            pytest.fail(f"not within {PATIENCE} s: {condition}; the page says:\n{text}")

    async def texts(self, selector):
        """Return the texts of all elements that match a selector."""
        return await self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.innerText)")


@contextlib.asynccontextmanager
async def new_page(directory):
    """Run a browser until the block ends, with its files in the directory."""
    theirs, to = os.pipe()
    back, said = os.pipe()
    command = (sys.executable, "-S", "-c", _PLUMBING, str(theirs), str(said), CHROMIUM, *_FLAGS)
    process = await asyncio.create_subprocess_exec(
        *(*command, f"--user-data-dir={directory / 'profile'}", "about:blank"),
        pass_fds=(theirs, said),
        env=os.environ | {"TMPDIR": str(directory)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    for each in (theirs, said):
        os.close(each)
    reader = asyncio.StreamReader(limit=_LONGEST)
    pipe = os.fdopen(back, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        page = Page(reader, to)
        await page.begin()
        yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        transport.close()
        os.close(to)
