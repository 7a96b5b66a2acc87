"""The page in a real browser: headless Chromium, spoken to over the DevTools protocol. Skipped where there is none."""

import asyncio
import itertools
import json
import time
from typing import ClassVar

import pytest

from tests.kit.browser import CHROMIUM, address
from tests.kit.well_agent import WellAgent
from vdev.observe import http
from vdev.sim import manifest

NPU = "acme.dev/npu"
CONFIG = f"""\
version: v1
devices: [{{name: npu, resource: {NPU}, virtual: {{count: 2}}}}]
"""
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

    serial = itertools.count(1)

    def __init__(self, send, session):
        self._send, self._session = send, session

    async def call(self, method, **parameters):
        """A command of the DevTools protocol."""
        return await self._send(method, parameters, self._session)

    async def open(self, address, fragment=""):
        """Go to the agent's page and wait until it has drawn itself once."""
        query = f"?{next(self.serial)}"  # which tells it from the one that was there before
        await self.call("Page.navigate", url=f"http://{address}/{query}{fragment}")
        await self.until(f"location.search === '{query}' && document.documentElement?.dataset.live === 'yes'")

    async def wide(self, width):
        """Make the window that wide."""
        metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **metrics)

    async def value(self, expression):
        """The value of an expression in the page."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, condition):
        """Wait until a condition holds in the page."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.value(condition):  # the page tells nobody
                    await asyncio.sleep(0.05)
        except TimeoutError:
            text = await self.value("document.body.innerText")
            pytest.fail(f"not within {PATIENCE} s: {condition}; the page says:\n{text}")

    async def texts(self, selector):
        """The texts of all elements that a selector means."""
        return await self.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((node) => node.innerText)")


class Browser:
    """The browser at the other end of a connection."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._serial = itertools.count(1)

    async def send(self, method, parameters, session=None):
        """A command of the DevTools protocol, and its answer."""
        number = next(self._serial)
        message = {"id": number, "method": method, "params": parameters} | ({"sessionId": session} if session else {})
        async with asyncio.timeout(PATIENCE):
            self._writer.write(json.dumps(message).encode() + b"\0")
            while True:
                try:
                    answer = json.loads((await self._reader.readuntil(b"\0"))[:-1])
                except asyncio.IncompleteReadError:
                    pytest.fail("the browser ended")
                if answer["id"] == number:  # else that of a test which did not wait for it
                    assert "error" not in answer, answer
                    return answer["result"]


@pytest.fixture
async def browser():
    """A connection to the one for all tests."""
    reader, writer = await asyncio.open_unix_connection(address(), limit=2**26)
    yield Browser(reader, writer)
    writer.close()
    await writer.wait_closed()


SESSION = []
HURRY = (
    "const later = setTimeout; window.setTimeout = (action, pause) => later(action, pause / 8);"  # between its looks
)


@pytest.fixture
async def page(browser):
    """The page of this process, which waits less between its looks.

    Each test has a port of its own, so that the browser keeps nothing for the next one.
    """
    if not SESSION:
        who = await browser.send("Target.createBrowserContext", {})
        target = await browser.send("Target.createTarget", {"url": "about:blank"} | who)
        SESSION.append(await browser.send("Target.attachToTarget", {"targetId": target["targetId"], "flatten": True}))
        new = Page(browser.send, SESSION[0]["sessionId"])
        await new.call("Page.enable")
        await new.call("Page.addScriptToEvaluateOnNewDocument", source=HURRY)
    made = Page(browser.send, SESSION[0]["sessionId"])
    yield made
    await made.call("Emulation.clearDeviceMetricsOverride")
    await made.call("Emulation.setEmulatedMedia", features=[])


def tiles(resource, extra=""):
    """The selector of a resource's tiles."""
    return f'[data-resource="{resource}"] .tile{extra}'


@pytest.mark.long
async def test_the_page_is_live(kubelet, start_agent, page):
    """Devices, holders, an edit, a refused edit and the end of the agent show without a reload of the page."""
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
    await agent.stop()
    await page.until("!document.getElementById('lost').hidden")
    assert 3 == await page.value(f"document.querySelectorAll('{tiles(NPU)}').length")


class Shown(WellAgent):
    """A status document to show."""

    measured: ClassVar = {"on": False, "devices": {}}

    def __init__(self, devices, **more):
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
            "resources": [resource(NPU, devices)],
        } | more

    def status(self):
        """The document."""
        return self.document

    def telemetry(self):
        """What devices measure: nothing, unless a test says so."""
        return self.measured


def resource(name, devices, **more):
    """A resource of the document."""
    well = sum(each["health"] == "Healthy" for each in devices)
    plain = {"name": name, "state": "registered", "problem": "", "streams": 1, "draining": False, "devices": devices}
    return plain | {"capacity": len(devices), "allocatable": well} | more


def device(number, **more):
    """A device of the document."""
    plain = {"id": f"npu-{number}", "health": "Healthy", "index": str(number), "numa": [], "paths": [], "reason": ""}
    return plain | {"replicaOf": None, "profile": None, "changedAt": None, "holder": None} | more


SICK = {"health": "Unhealthy", "reason": "no answer"}
DRILL = {"health": "Unhealthy", "reason": "XID 79", "injected": "dead"}
ELEMENTS = "document.querySelectorAll('*').length"
HEIGHT = "document.documentElement.scrollHeight"
ONLY = "document.getElementById('only').click()"


async def test_ten_thousand_devices_are_readable(page):
    """Many devices come in groups; what is unhealthy stands before them, a group opens, and a search finds one."""
    devices = [device(number) for number in range(10_000)]
    devices[4711] |= {"health": "Unhealthy", "reason": "no answer"}
    async with http.serving("127.0.0.1:0", Shown(devices)) as address:
        await page.open(address)
        assert 100 == await page.value("document.querySelectorAll('details').length")
        assert ["npu-4711"] == await page.texts(tiles(NPU, " .top .id"))
        assert 1_000 > await page.value(ELEMENTS)
        await page.value("document.querySelector('details summary').click()")
        await page.until("document.querySelectorAll('details .tile').length === 100")
        await page.value("document.querySelector('details summary').click()")
        await page.until("document.querySelectorAll('details .tile').length === 0")
        assert 1_000 > await page.value(ELEMENTS), "what is closed is dropped"
        await page.value(SEARCH)
        await page.until(f"document.querySelectorAll('{tiles(NPU)}').length === 11")


@pytest.mark.long
async def test_the_page_stays_small(page):
    """However many devices there are, and however many of them do not work, the page has few elements."""
    for resources, each in [(64, 31), (1, 2_000), (300, 1)]:
        devices = [device(place, **SICK) for place in range(each)]
        document = [resource(f"acme.dev/r{number}", devices) for number in range(resources)]
        async with http.serving("127.0.0.1:0", Shown([], resources=document)) as address:
            await page.open(address)
            assert 5_000 > await page.value(ELEMENTS), (resources, each)
            assert 240 == await page.value("document.querySelectorAll('.tile').length")


async def test_many_resources_are_folded_by_domain(page):
    """64 resources are as many lines, under the domains that they belong to; what is wrong is open and comes first."""
    names = [f"{domain}/r{number}" for domain in ("acme.dev", "b.example") for number in range(32)]
    document = [resource(name, [device(number) for number in range(31)]) for name in names]
    document[40]["devices"][7] |= SICK
    document[41]["devices"][8] |= DRILL
    document[50] |= {"streams": 0, "state": "no kubelet answers", "problem": "no kubelet answers on /k"}
    async with http.serving("127.0.0.1:0", Shown([], resources=document)) as address:
        await page.wide(1280)
        await page.open(address)
        assert ["b.example", "acme.dev"] == await page.texts(".domain > summary h2")
        words = await page.texts(".domain:first-child > summary > *")
        assert ["b.example", "1 unhealthy", "1 in a drill", "32 resources, 992 devices"] == words
        order = await page.texts("[data-resource] h2")
        assert (["b.example/r18", "b.example/r8", "b.example/r9"], 64) == (order[:3], len(order))
        assert ["npu-7", "npu-8"] == await page.texts(".tile .top .id")
        assert 3_000 > await page.value(HEIGHT)
        assert 1_000 > await page.value(ELEMENTS)
        first = "document.querySelector('[data-resource=\"acme.dev/r0\"] summary')"
        await page.value(f"{first}.click()")
        await page.until(f"document.querySelectorAll('{tiles('acme.dev/r0')}').length === 31")
        document[0]["devices"][30] |= {"holder": "default/late"}
        await page.until(f"document.querySelectorAll('{tiles('acme.dev/r0', '.held')}').length === 1")
        assert 31 == await page.value(f"document.querySelectorAll('{tiles('acme.dev/r0')}').length"), "it stays open"


async def test_only_what_is_wrong(page):
    """One click leaves what does not work; the address says so, and opens like that."""
    devices = [device(0), device(1, **SICK), device(2, holder="default/q", **DRILL), device(3, holder="default/p")]
    document = [resource("a.dev/well", [device(0)]), resource(NPU, devices)]
    shown = Shown([], resources=document)
    async with http.serving("127.0.0.1:0", shown) as address:
        await page.open(address)
        await page.value(ONLY)
        assert [NPU] == await page.texts("[data-resource] h2")
        assert ["npu-1", "npu-2"] == await page.texts(".tile .top .id")
        assert not await page.value("document.getElementById('about').checkVisibility()")
        await page.open(address, "#wrong")
        assert ["npu-1", "npu-2"] == await page.texts(".tile .top .id")
        for each in devices[1:3]:
            each |= {"health": "Healthy", "reason": "", "injected": ""}
        await page.until("document.querySelectorAll('[data-resource]').length === 0")
        assert ["nothing is wrong with any device"] == await page.texts("#nothing")
        await page.value(ONLY)
        assert 2 == await page.value("document.querySelectorAll('[data-resource]').length")
        assert await page.value("document.getElementById('about').checkVisibility()")


REFUSED = {"files": ["/f"], "choice": "", "lastReloadSuccessful": False, "appliedAt": 1, "failedAt": 2} | {
    "history": [{"at": 2, "result": "refused", "summary": "f:1:1: no"}]
}
PROBLEMS = [
    {"severity": severity, "where": "f:1:1", "message": f"an {severity}", "hint": "look"}
    for severity in ("error", "warning")
]
EVERYTHING = {
    "config": REFUSED,
    "problems": PROBLEMS,
    "notReady": ["acme.dev/npu: why"],
    "ready": False,
    "faults": {
        "enabled": True,
        "active": 1,
        "rules": [
            {"name": "dead", "kind": "device", "source": "configuration", "where": "f:2:2", "state": state}
            | {"changesIn": None, "injected": 1, "injectedIn": {NPU: 1}, "devices": ["npu-2"]}
            for state in ("active", "over")
        ],
    },
    "resources": [
        resource(
            NPU, [device(0), device(1, **SICK), device(2, holder="default/q", **DRILL), device(3, holder="default/p")]
        ),
        resource("a.dev/draining", [device(0)], draining=True, problem="it has a problem"),
    ],
}


async def test_the_summary_says_it_all(page):
    """How many of what, with what is wrong marked."""
    async with http.serving("127.0.0.1:0", Shown([], **EVERYTHING)) as address:
        await page.open(address)
        items = [text.replace("\n", " ") for text in await page.texts("#summary li")]
        expected = ["2 resources", "2 unhealthy", "1 in a drill", "2 held by pods", "2 free", "refused configuration"]
        assert [*expected, "2 problems"] == items
        counts = await page.texts(f'[data-resource="{NPU}"] .end')
        assert ["1 unhealthy, 1 in a drill, 2 held, 1 free"] == counts  # a device in a drill that a pod holds is held
        assert ["bad", "drill", "bad", "bad"] == await page.value(
            "[...document.querySelectorAll('#summary li')].map((node) => node.className)"
            ".filter((name) => !['', 'held', 'free'].includes(name))"
        )


async def test_devices_of_claims_are_shown_as_those_of_resources_are(page):
    """By driver: health, taints, and the claims that have them; a driver whose slices are missing is not served."""
    names = ("npu-0", "npu-1", "npu-2")
    free, sick, held = (
        {"name": name, **device(name), "id": f"own-{name}", "taints": [], "claims": []} for name in names
    )
    sick |= SICK | {"taints": ["acme.dev/unhealthy:NoSchedule"]}
    held |= {"claims": ["default/one"]}
    driver = {"name": "acme.dev", "state": "registered", "devices": 3, "unhealthy": 1, "slices": 1}
    shown = Shown([], resources=[], dra=[driver | {"deviceList": [free, sick, held]}])
    async with http.serving("127.0.0.1:0", shown) as address:
        await page.open(address)
        items = [text.replace("\n", " ") for text in await page.texts("#summary li")]
        assert ["0 resources", "1 DRA driver", "1 unhealthy", "1 held by pods or claims", "1 free"] == items
        assert ["npu-1", "npu-0", "npu-2"] == await page.texts(tiles("acme.dev", " .top .id"))
        assert ["no answer, taint acme.dev/unhealthy:NoSchedule"] == await page.texts(tiles("acme.dev", " .why"))
        assert "held by claim default/one" in (await page.texts(tiles("acme.dev", ".held")))[0]
        assert "2 of 3 healthy" in (await page.texts('[data-resource="acme.dev"] .row'))[0]
        shown.document["dra"][0] |= {"slices": 0}
        await page.until("""document.querySelector('[data-resource="acme.dev"].trouble') !== null""")
        assert "not published" in (await page.texts('[data-resource="acme.dev"] .row'))[0]


CONTRASTS = """(() => {
    const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = (text) => {
        const linear = (part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        const [r, g, b] = numbers(text).map((part) => linear(part / 255));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        for (; node; node = node.parentElement) {
            const colour = getComputedStyle(node).backgroundColor, [, , , alpha] = numbers(colour);
            if (alpha !== 0) return colour;
        }
    };
    const found = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.matches("script, noscript")) continue;
        const [one, other] = [light(getComputedStyle(node).color), light(ground(node))];
        const dark = Math.min(one, other), bright = Math.max(one, other);
        found.push([(bright + 0.05) / (dark + 0.05), walker.currentNode.data]);
    }
    return found;
})()"""


async def test_every_text_can_be_read(page):
    """What the browser makes of it, with something of everything on the page: a contrast of 4.5 at least."""
    async with http.serving("127.0.0.1:0", Shown([], **EVERYTHING)) as address:
        for scheme in ("light", "dark"):
            await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            await page.open(address)
            found = await page.value(CONTRASTS)
            assert 60 < len(found)
            assert [] == [(scheme, round(ratio, 2), text) for ratio, text in found if ratio < 4.5]


@pytest.mark.long
async def test_nothing_sticks_out(page):
    """A telephone needs no scrolling to the side."""
    long = [device(number, id="GPU-" + "0123456789" * 5, holder="namespace/" + "pod-" * 15) for number in range(3)]
    named = resource("a.example/" + "long-" * 10 + "name", long)
    few = EVERYTHING | {"resources": [*EVERYTHING["resources"], named]}
    many = few | {"resources": [*few["resources"], *(resource(f"{named['name']}{n}", [device(0)]) for n in range(20))]}
    for document in (few, many):
        async with http.serving("127.0.0.1:0", Shown([], **document)) as address:
            await page.wide(360)
            await page.open(address)
            assert 360 >= await page.value("document.documentElement.scrollWidth")


async def test_drills_are_marked(page):
    """A failure on demand looks like one: its device and its rule say so."""
    rule = {"name": "xid-79", "kind": "device", "where": "<live>:1:1: faults.rules[0]"}
    rule |= {"source": "live", "state": "active", "what": "Unhealthy: XID 79"}
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
        told = "injected 3 times (acme.dev/npu 1, a.b/c 2), on 3 devices, ends in 13 s \u2013 Unhealthy: XID 79"
        assert [f"xid-79 active device, {told}"] == await page.texts("#faults li")


async def test_the_history_says_what_changed(page):
    """What was applied says how it differs from what was applied before, whatever was refused in between."""
    history = [
        {"at": 4, "result": "applied", "summary": "s", "devices": {NPU: 4, "a.b/new": 1}},
        {"at": 3, "result": "refused", "summary": "f:1:1: no", "devices": None},
        {"at": 2, "result": "applied", "summary": "s", "devices": {NPU: 2, "a.b/old": 3}},
        {"at": 1, "result": "applied", "summary": "acme.dev/npu 2, a.b/old 3", "devices": {NPU: 2, "a.b/old": 3}},
    ]
    config = {"files": ["/f"], "choice": "", "lastReloadSuccessful": True, "appliedAt": 1, "history": history}
    async with http.serving("127.0.0.1:0", Shown([device(0)], config=config)) as address:
        await page.open(address)
        assert [
            f"{NPU} 2 \u2192 4, a.b/old removed, a.b/new new with 1",
            "f:1:1: no",
            "the same numbers of devices",
            "acme.dev/npu 2, a.b/old 3",
        ] == [text.split(" \u2013 ")[1] for text in await page.texts("#history li")]


async def test_texts_are_never_markup(page):
    """Whatever a name or a reason holds is shown as text."""
    evil = "<img src=x onerror=document.title='owned'>"
    devices = [device(0, id=evil, holder=evil, health="Unhealthy", reason=evil, profile=evil)]
    problem = {"severity": "error", "where": evil, "message": evil, "hint": evil}
    async with http.serving("127.0.0.1:0", Shown(devices, problems=[problem], notReady=[evil], node=evil)) as address:
        await page.open(address)
        assert 0 == await page.value("document.images.length")
        assert "owned" != await page.value("document.title")


async def test_no_errors_in_the_console(page):
    """Nothing of the page offends its own security policy, or throws."""
    async with http.serving("127.0.0.1:0", Shown([device(0)])) as address:
        source = (
            "window.seen = []; addEventListener('error', (e) => seen.push(String(e.message)));"
            "addEventListener('securitypolicyviolation', (e) => seen.push(e.violatedDirective));"
        )
        await page.call("Page.addScriptToEvaluateOnNewDocument", source=source)
        await page.open(address)
        assert [] == await page.value("seen")


@pytest.mark.long
async def test_load_shows_as_a_line_that_grows(page):
    """In each tile and beside each resource, without drawing the page anew."""
    numbers = range(990, 999)
    shown = Shown([device(number) for number in numbers])
    shown.measured = {"on": True, "devices": {f"npu-{number}": [40, 61, 120, 1024, 16384] for number in numbers}}
    async with http.serving("127.0.0.1:0", shown) as address:
        await page.open(address)
        await page.until("document.querySelector('.mean svg path') !== null")
        assert ["40 %"] == await page.texts(".mean")
        assert await page.value(ELEMENTS) < 6000
        await page.value(SEARCH)
        await page.until(f"document.querySelector('{tiles(NPU, ' .load svg')}') !== null")
        assert ["40 % · 61 °C · 120 W", "1.0/16 GiB"] == (await page.texts(tiles(NPU, " .load")))[0].splitlines()
        shown.measured["devices"]["npu-998"] = [95, 80, 200, 2048, 16384]
        await page.until(f"document.querySelector('{tiles(NPU, ' .load')}').innerText.includes('95 %')")
        path = await page.value(f"document.querySelector('{tiles(NPU, ' .load path')}').getAttribute('d')")
        assert path.count("L") >= 3
