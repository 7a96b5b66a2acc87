"""The page in a real browser: headless Chromium, spoken to over its debugging pipe. Skipped where there is none."""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import sys
import time

import pytest
from prometheus_client import CollectorRegistry

from vdev.observe import http
from vdev.sim import manifest

NPU = "acme.dev/npu"
CONFIG = f"""\
version: v1
devices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]
"""
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe",
]  # fmt: skip
PLUMBING = "import os, sys; [os.dup2(int(sys.argv[n]), n + 2) for n in (1, 2)]; os.execv(sys.argv[3], sys.argv[3:])"
SEARCH = """(() => {
    const field = document.getElementById("find");
    field.value = "npu-998";
    field.dispatchEvent(new Event("input"));
})()"""
PATIENCE = 60

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not here"),
    pytest.mark.timeout(180),
]


class Page:
    """One page of the browser."""

    def __init__(self, send, session):
        self._send, self._session = send, session

    async def call(self, method, **parameters):
        """A command of the DevTools protocol."""
        return await self._send(method, parameters, self._session)

    async def open(self, address):
        """Go to the agent's page and wait until it has drawn itself once."""
        await self.call("Page.navigate", url=f"http://{address}/")
        await self.until("document.documentElement?.dataset.live === 'yes'")

    async def value(self, expression):
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition):
        """Wait until a condition holds in the page."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.value(condition):  # noqa: ASYNC110  # the page tells nobody
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            pytest.fail(f"not within {PATIENCE} s: {condition}; the page says:\n{text}")

    async def texts(self, selector):
        """The texts of all elements that a selector means."""
        return await self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.innerText)")


@pytest.fixture
async def page(tmp_path):
    """A blank page of a browser with a profile of its own."""
    to_browser, from_browser = os.pipe(), os.pipe()
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "about:blank"]
    ends = (to_browser[0], from_browser[1])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", PLUMBING, str(ends[0]), str(ends[1]), *command),
        pass_fds=ends,
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(to_browser[0])
    os.close(from_browser[1])
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2**27)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(from_browser[0], "rb")
    )
    serial, lock = itertools.count(1), asyncio.Lock()

    async def send(method, parameters, session=None):
        number = next(serial)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        async with lock, asyncio.timeout(PATIENCE):
            os.write(to_browser[1], json.dumps(message).encode() + b"\0")
            while True:
                answer = json.loads((await reader.readuntil(b"\0"))[:-1])
                if answer.get("id") == number:
                    assert "error" not in answer, answer
                    return answer["result"]

    try:
        target = await send("Target.createTarget", {"url": "about:blank"})
        session = await send("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True})
        yield Page(send, session["sessionId"])
        with contextlib.suppress(asyncio.IncompleteReadError):
            await send("Browser.close", {})
    finally:
        incoming.close()
        os.close(to_browser[1])
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def tiles(resource, extra=""):
    """The selector of a resource's tiles."""
    return f'[data-resource="{resource}"] .tile{extra}'


@pytest.mark.long
async def test_the_page_is_live(kubelet, start_agent, page):
    """Devices, their holders, an edit and a refused edit show without a reload of the page."""
    agent = await start_agent(CONFIG, http_address="127.0.0.1:0")
    (address,) = [each["address"] for each in agent.logs if each["event"] == "serving HTTP"]
    await page.open(address)
    assert ["npu-0", "npu-1"] == await page.texts(tiles(NPU, " .top .id"))
    assert ["ready"] == await page.texts("#ready")
    await kubelet.run_pod(manifest("train", {NPU: 1}))
    await page.until(f"document.querySelectorAll('{tiles(NPU, '.held')}').length === 1")
    assert "held by default/train" in (await page.texts(tiles(NPU, ".held")))[0]
    agent.edit(CONFIG.replace("count: 2", "count: 3"))
    await page.until(f"document.querySelectorAll('{tiles(NPU)}').length === 3")
    agent.edit(CONFIG.replace("count: 2", "cuont: 2"))
    await page.until("!document.getElementById('problems').hidden")
    assert "cuont" in (await page.texts("#problems li"))[0]
    assert ["refused", "applied", "applied"] == await page.texts("#history .pill")
    assert 3 == await page.value(f"document.querySelectorAll('{tiles(NPU)}').length")


async def test_a_lost_agent_is_said(start_agent, page):
    """When the agent is gone the page keeps what it showed and says that it may be old."""
    agent = await start_agent(CONFIG, http_address="127.0.0.1:0")
    (address,) = [each["address"] for each in agent.logs if each["event"] == "serving HTTP"]
    await page.open(address)
    await agent.stop()
    await page.until("!document.getElementById('lost').hidden")
    assert 2 == await page.value(f"document.querySelectorAll('{tiles(NPU)}').length")


class Shown:
    """A status document to show."""

    def __init__(self, devices, **more):
        resource = {"name": NPU, "state": "registered", "problem": "", "streams": 1, "draining": False}
        resource |= {"capacity": len(devices), "allocatable": sum(each["health"] == "Healthy" for each in devices)}
        self.document = {
            "version": "0",
            "node": "worker-1",
            "startedAt": time.time(),
            "ready": True,
            "notReady": [],
            "kubelet": {"socket": "/k", "present": True},
            "podResources": {"socket": "/p", "readable": True},
            "cdi": {"directory": "/c", "problem": ""},
            "config": {"files": ["/f"], "choice": "", "lastReloadSuccessful": True, "appliedAt": 1, "history": []},
            "problems": [],
            "resources": [resource | {"devices": devices}],
        } | more

    def status(self):
        """The document."""
        return self.document

    def registry(self):
        """No metrics."""
        return CollectorRegistry()

    def stalled(self):
        """Never."""
        return ""

    def not_ready(self):
        """Nothing."""
        return []

    def stand_by(self):
        """It does not."""
        return ""


def device(number, **more):
    """A device of the document."""
    plain = {"id": f"npu-{number}", "health": "Healthy", "index": str(number), "numa": [], "paths": [], "reason": ""}
    return plain | {"replicaOf": None, "profile": None, "changedAt": None, "holder": None} | more


async def test_ten_thousand_devices_are_readable(page):
    """Many devices come in groups; what is unhealthy stands before them, a group opens, and a search finds one."""
    devices = [device(number) for number in range(10_000)]
    devices[4711] |= {"health": "Unhealthy", "reason": "no answer"}
    async with http.serving("127.0.0.1:0", Shown(devices)) as address:
        await page.open(address)
        assert 100 == await page.value("document.querySelectorAll('details').length")
        assert ["npu-4711"] == await page.texts(tiles(NPU, " .top .id"))
        assert 5_000 > await page.value("document.querySelectorAll('*').length")
        await page.value("document.querySelector('details summary').click()")
        await page.until("document.querySelectorAll('details .tile').length === 100")
        await page.value(SEARCH)
        await page.until(f"document.querySelectorAll('{tiles(NPU)}').length === 11")


async def test_drills_are_marked(page):
    """A failure on demand looks like one: its device and its rule say so."""
    rule = {"name": "xid-79", "kind": "device", "source": "configuration", "where": "f:1:1", "state": "active"}
    faults = {
        "enabled": True,
        "active": 1,
        "rules": [
            rule
            | {"changesIn": 12.5, "injected": 3, "injectedIn": {NPU: 1, "a.b/c": 2}, "devices": ["npu-0", "x", "y"]}
        ],
    }
    devices = [device(0, health="Unhealthy", reason="XID 79", injected="xid-79"), device(1, injected="")]
    async with http.serving("127.0.0.1:0", Shown(devices, faults=faults)) as address:
        await page.open(address)
        assert ["drill", "free"] == await page.texts(tiles(NPU, " .pill"))
        assert ["XID 79 \u2013 rule xid-79"] == await page.texts(tiles(NPU, " .why"))
        assert (
            "xid-79 active device, injected 3 times (acme.dev/npu 1, a.b/c 2), on 3 devices, changes in 13 s"
            in (await page.texts("#faults li"))[0]
        )


async def test_texts_are_never_markup(page):
    """Whatever a name or a reason holds is shown as text."""
    evil = "<img src=x onerror=document.title='owned'>"
    devices = [device(0, id=evil, holder=evil, health="Unhealthy", reason=evil, profile=evil)]
    problem = {"severity": "error", "where": evil, "message": evil, "hint": evil}
    async with http.serving("127.0.0.1:0", Shown(devices, problems=[problem], notReady=[evil], node=evil)) as address:
        await page.open(address)
        assert 0 == await page.value("document.images.length")
        assert "owned" != await page.value("document.title")


async def test_dark_and_light(page):
    """The page follows the person's choice of colours."""
    async with http.serving("127.0.0.1:0", Shown([device(0)])) as address:
        await page.open(address)
        grounds = []
        for scheme in ("light", "dark"):
            await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            grounds.append(await page.value("getComputedStyle(document.body).backgroundColor"))
        assert ["rgb(245, 246, 248)", "rgb(18, 21, 27)"] == grounds


async def test_no_errors_in_the_console(page):
    """Nothing of the page offends its own security policy, or throws."""
    async with http.serving("127.0.0.1:0", Shown([device(0)])) as address:
        await page.call("Page.enable")
        source = (
            "window.seen = []; addEventListener('error', (e) => seen.push(String(e.message)));"
            "addEventListener('securitypolicyviolation', (e) => seen.push(e.violatedDirective));"
        )
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
        await page.open(address)
        assert [] == await page.value("seen")
