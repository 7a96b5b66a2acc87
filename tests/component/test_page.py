"""The page in a real browser: headless Chromium. Skipped if it is not installed.

Starting a browser takes longer than a check, so one test has most of the checks.
"""

import time
from types import SimpleNamespace

import pytest

from tests.kit.browser import CHROMIUM, new_page
from tests.kit.well_agent import application, served
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

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not here"),
    pytest.mark.timeout(180),
    pytest.mark.long,
]


@pytest.fixture
async def page(directory):
    """A page in its own browser. Exceptions and violations of its security policy fail the test."""
    async with new_page(directory) as made:
        yield made
        assert [] == await made.value("seen")


@pytest.fixture
async def show(page):
    """Open the page of an agent with this status document."""
    shown = SimpleNamespace()
    app = application(status=lambda: shown.document, telemetry=lambda: shown.measured)
    async with served(app) as address:

        async def show(devices=(), *, fragment="", measured=None, **more):
            shown.measured = measured or {"on": False, "devices": {}}
            shown.document = document(devices) | more
            await page.open(address, fragment)
            return shown

        yield show


def tiles(resource, extra=""):
    """The selector of a resource's tiles."""
    return f'[data-resource="{resource}"] .tile{extra}'


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


def document(devices):
    """The status document of an agent with these devices."""
    return {
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
        "resources": [resource(NPU, list(devices))],
    }


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


async def many_devices(page, show, subtests):
    """With many devices, the page is readable and has few elements."""
    with subtests.test("devices come in groups, what is unhealthy before them; a group opens; a search finds one"):
        devices = [device(number) for number in range(10_000)]
        devices[4711] |= SICK
        await show(devices)
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
    with subtests.test("many do not work"):
        for resources, each in [(64, 31), (1, 2_000), (300, 1)]:
            devices = [device(place, **SICK) for place in range(each)]
            await show(resources=[resource(f"acme.dev/r{number}", devices) for number in range(resources)])
            assert 5_000 > await page.value(ELEMENTS), (resources, each)
            assert 240 == await page.value("document.querySelectorAll('.tile').length")
    with subtests.test("resources are lines under their domains; what is wrong is open and comes first"):
        names = [f"{domain}/r{number}" for domain in ("acme.dev", "b.example") for number in range(32)]
        document = [resource(name, [device(number) for number in range(31)]) for name in names]
        document[40]["devices"][7] |= SICK
        document[41]["devices"][8] |= DRILL
        document[50] |= {"streams": 0, "state": "no kubelet answers", "problem": "no kubelet answers on /k"}
        await page.wide(1280)
        await show(resources=document)
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
    with subtests.test("load is a line that grows, in each tile and beside each resource"):
        numbers = range(990, 999)
        measured = {"on": True, "devices": {f"npu-{number}": [40, 61, 120, 1024, 16384] for number in numbers}}
        shown = await show([device(number) for number in numbers], measured=measured)
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


async def test_the_contents_of_the_page(page, show, subtests):
    """Few and many devices, problems, injected faults, claims and the history, on small and large screens."""
    await many_devices(page, show, subtests)
    with subtests.test("the summary says how many of what, with what is wrong marked"):
        await show(**EVERYTHING)
        items = [text.replace("\n", " ") for text in await page.texts("#summary li")]
        expected = ["2 resources", "2 unhealthy", "1 in a drill", "2 held by pods", "2 free", "refused configuration"]
        assert [*expected, "2 problems"] == items
        counts = await page.texts(f'[data-resource="{NPU}"] .end')
        assert ["1 unhealthy, 1 in a drill, 2 held, 1 free"] == counts  # a device in a drill that a pod holds is held
        assert ["bad", "drill", "bad", "bad"] == await page.value(
            "[...document.querySelectorAll('#summary li')].map((node) => node.className)"
            ".filter((name) => !['', 'held', 'free'].includes(name))"
        )
    with subtests.test("every text has a contrast of 4.5 at least"):
        for scheme in ("light", "dark"):
            await page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            await show(**EVERYTHING)
            found = await page.value(CONTRASTS)
            assert 60 < len(found)
            assert [] == [(scheme, round(ratio, 2), text) for ratio, text in found if ratio < 4.5]
    with subtests.test("one click leaves what does not work; the address says so, and opens like that"):
        devices = [device(0), device(1, **SICK), device(2, holder="default/q", **DRILL), device(3, holder="default/p")]
        document = {"resources": [resource("a.dev/well", [device(0)]), resource(NPU, devices)]}
        await show(**document)
        await page.value(ONLY)
        assert [NPU] == await page.texts("[data-resource] h2")
        assert ["npu-1", "npu-2"] == await page.texts(".tile .top .id")
        assert not await page.value("document.getElementById('about').checkVisibility()")
        await show(**document, fragment="#wrong")
        assert ["npu-1", "npu-2"] == await page.texts(".tile .top .id")
        for each in devices[1:3]:
            each |= {"health": "Healthy", "reason": "", "injected": ""}
        await page.until("document.querySelectorAll('[data-resource]').length === 0")
        assert ["nothing is wrong with any device"] == await page.texts("#nothing")
        await page.value(ONLY)
        assert 2 == await page.value("document.querySelectorAll('[data-resource]').length")
        assert await page.value("document.getElementById('about').checkVisibility()")
    with subtests.test("a drill is marked: its device and its rule say so"):
        rule = {"name": "xid-79", "kind": "device", "where": "<live>:1:1: faults.rules[0]", "source": "live"}
        rule |= {"state": "active", "what": "Unhealthy: XID 79", "changesIn": 12.5, "injected": 3}
        rule |= {"injectedIn": {NPU: 1, "a.b/c": 2}, "devices": ["npu-0", "x", "y"]}
        devices = [device(0, health="Unhealthy", reason="XID 79", injected="xid-79"), device(1, injected="")]
        await show(devices, faults={"enabled": True, "active": 1, "rules": [rule]})
        assert ["drill", "free"] == await page.texts(tiles(NPU, " .pill"))
        assert ["XID 79 \u2013 rule xid-79"] == await page.texts(tiles(NPU, " .why"))
        told = "injected 3 times (acme.dev/npu 1, a.b/c 2), on 3 devices, ends in 13 s \u2013 Unhealthy: XID 79"
        assert [f"xid-79 active device, {told}"] == await page.texts("#faults li")
    with subtests.test("by DRA driver: health, taints, and the claims; without slices it is not published"):
        names = ("npu-0", "npu-1", "npu-2")
        free, sick, held = (
            {"name": name, **device(name), "id": f"own-{name}", "taints": [], "claims": []} for name in names
        )
        sick |= SICK | {"taints": ["acme.dev/unhealthy:NoSchedule"]}
        held |= {"claims": ["default/one"]}
        driver = {"name": "acme.dev", "state": "registered", "devices": 3, "unhealthy": 1, "slices": 1}
        shown = await show(resources=[], dra=[driver | {"deviceList": [free, sick, held]}])
        items = [text.replace("\n", " ") for text in await page.texts("#summary li")]
        assert ["0 resources", "1 DRA driver", "1 unhealthy", "1 held by pods or claims", "1 free"] == items
        assert ["npu-1", "npu-0", "npu-2"] == await page.texts(tiles("acme.dev", " .top .id"))
        assert ["no answer, taint acme.dev/unhealthy:NoSchedule"] == await page.texts(tiles("acme.dev", " .why"))
        assert "held by claim default/one" in (await page.texts(tiles("acme.dev", ".held")))[0]
        assert "2 of 3 healthy" in (await page.texts('[data-resource="acme.dev"] .row'))[0]
        shown.document["dra"][0] |= {"slices": 0}
        await page.until("""document.querySelector('[data-resource="acme.dev"].trouble') !== null""")
        assert "not published" in (await page.texts('[data-resource="acme.dev"] .row'))[0]
    with subtests.test("the history says how what was applied differs from what was applied before"):
        history = [
            {"at": 4, "result": "applied", "summary": "s", "devices": {NPU: 4, "a.b/new": 1}},
            {"at": 3, "result": "refused", "summary": "f:1:1: no", "devices": None},
            {"at": 2, "result": "applied", "summary": "s", "devices": {NPU: 2, "a.b/old": 3}},
            {"at": 1, "result": "applied", "summary": "acme.dev/npu 2, a.b/old 3", "devices": {NPU: 2, "a.b/old": 3}},
        ]
        config = {"files": ["/f"], "choice": "", "lastReloadSuccessful": True, "appliedAt": 1, "history": history}
        await show([device(0)], config=config)
        assert [
            f"{NPU} 2 \u2192 4, a.b/old removed, a.b/new new with 1",
            "f:1:1: no",
            "the same numbers of devices",
            "acme.dev/npu 2, a.b/old 3",
        ] == [text.split(" \u2013 ")[1] for text in await page.texts("#history li")]
    with subtests.test("a name or a reason is never markup"):
        evil = "<img src=x onerror=document.title='owned'>"
        devices = [device(0, id=evil, holder=evil, health="Unhealthy", reason=evil, profile=evil)]
        problem = {"severity": "error", "where": evil, "message": evil, "hint": evil}
        await show(devices, problems=[problem], notReady=[evil], node=evil)
        assert 0 == await page.value("document.images.length")
        assert "owned" != await page.value("document.title")
    with subtests.test("a telephone needs no scrolling to the side"):
        await page.wide(360)
        long = [device(number, id="GPU-" + "0123456789" * 5, holder="namespace/" + "pod-" * 15) for number in range(3)]
        named = resource("a.example/" + "long-" * 10 + "name", long)
        few = [*EVERYTHING["resources"], named]
        many = [*few, *(resource(f"{named['name']}{number}", [device(0)]) for number in range(20))]
        for resources in (few, many):
            await show(**EVERYTHING | {"resources": resources})
            assert 360 >= await page.value("document.documentElement.scrollWidth")
