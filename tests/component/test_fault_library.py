"""Each file of configs/faults, with the embedded kubelet and virtual time: the effects in its comment are seen."""

import asyncio
import re
from pathlib import Path

import pytest

from vdev.aio.clock import LeapClock, ManualClock
from vdev.cli import main
from vdev.config import load
from vdev.faults.rules import OnNodes
from vdev.faults.schedule import Dice, on_node
from vdev.sim import Phase, manifest

LIBRARY = Path(__file__).parents[2] / "configs" / "faults"
STORIES = sorted(LIBRARY.glob("*.yaml"))
GPU, NPU = "nvidia.com/gpu", "acme.dev/npu"


# For effects that take some time, such as a new registration.
TIME_GOES_ON = pytest.mark.parametrize("clock", [LeapClock], indirect=True)


@pytest.fixture
async def clock(request):
    return getattr(request, "param", ManualClock)()


@pytest.fixture
async def tell(start_agent, clock):
    """Start a plugin with a file of the library."""

    async def start(name, **options):
        text = await asyncio.to_thread((LIBRARY / name).read_text)
        return await start_agent(text, clock=clock, **options)

    return start


async def test_xid79(tell, clock, shows, kubelet):
    """A GPU disappears and comes back; its pod goes on, and the pod's status names the device."""
    await tell("xid79.yaml")
    await kubelet.run_pod(manifest("all", {GPU: 8}))
    for seconds, allocatable, health in ((60, 7, "Unhealthy"), (30, 8, "Healthy"), (270, 7, "Unhealthy")):
        clock.advance(seconds)
        await shows(GPU, 8, allocatable)
        status = kubelet.pod("all").container().allocated_resources_status
        wanted = 1 if health == "Unhealthy" else 0
        assert wanted == str(status).count("'Unhealthy'")
    assert Phase.RUNNING is kubelet.pod("all").phase


async def test_ecc_degradation(tell, clock, shows, kubelet):
    """Outages become more frequent, and the last one does not end."""
    agent = await tell("ecc-degradation.yaml")
    engine = agent.agent.faults.engine
    falls = {"first-signs": 0, "getting-worse": 0}
    while clock.now() < 4 * 3600:
        clock.advance(min(engine.next_change, 4 * 3600) - clock.now())
        await kubelet.wait_until(lambda: engine.next_change is None or engine.next_change > clock.now())
        for name in falls:
            falls[name] += engine.runs[name].active
    await shows(GPU, 8, 7)
    clock.advance(10 * 3600)
    await shows(GPU, 8, 7)
    assert 10 <= falls["first-signs"] < falls["getting-worse"]


async def test_nvlink_pair_lost(tell, clock, shows, kubelet):
    """Two GPUs fail at once, and a pod for two gets the other pair."""
    await tell("nvlink-pair-lost.yaml")
    clock.advance(120)
    await shows("acme.dev/gpu", 4, 2)
    pod = await kubelet.run_pod(manifest("two", {"acme.dev/gpu": 2}))
    assert {"bridged-0", "bridged-1"} == set(pod.container().devices["acme.dev/gpu"])
    assert Phase.FAILED is (await kubelet.run_pod(manifest("four", {"acme.dev/gpu": 4}))).phase
    clock.advance(600)
    await shows("acme.dev/gpu", 4, 4)


@TIME_GOES_ON
async def test_usb_unplugged(tell, clock, shows, kubelet):
    """An unplugged device that a pod holds stays listed as Unhealthy until the pod ends, and comes back."""
    key = "example.com/yubikey"
    agent = await tell("usb-unplugged.yaml")
    await kubelet.run_pod(manifest("holder", {key: 1}))
    await kubelet.wait_until(lambda: agent.agent.holders.known.pods, what="the kubelet to name the pod")
    clock.advance(30)
    await shows(key, 1, 0)
    assert "'Unhealthy'" in str(kubelet.pod("holder").container().allocated_resources_status)
    await kubelet.delete_pod("holder")
    await shows(key, 0, 0)
    clock.advance(60)
    await shows(key, 1, 1)
    assert [] == kubelet.errors


async def test_slow_driver(tell, clock, kubelet):
    """An allocation is delayed, then granted."""
    agent = await tell("slow-driver.yaml")
    starting = asyncio.create_task(kubelet.run_pod(manifest("p", {GPU: 1})))
    await kubelet.wait_until(lambda: agent.agent.faults.engine.runs["slow"].injections)
    assert not starting.done()
    clock.advance(8)
    assert Phase.RUNNING is (await starting).phase


async def test_flaky_allocate(tell, kubelet):
    """Every fourth pod is refused with the message of the rule."""
    await tell("flaky-allocate.yaml")
    pods = [await kubelet.run_pod(manifest(f"p{number}", {NPU: 1})) for number in range(8)]
    assert [3, 7] == [number for number, pod in enumerate(pods) if pod.phase is Phase.FAILED]
    assert "firmware busy" in pods[3].message


async def test_crash_loop(tell, clock, shows, kubelet):
    """The plugin exits 20 seconds after each start."""
    codes, agents = [], []

    def die(code):
        codes.append(code)
        agents[-1].agent.stop()

    for _ in range(2):
        agents.append(agent := await tell("crash-loop.yaml", exit=die))
        await shows(NPU, 4, 4)
        clock.advance(20)
        await agent.task
        await shows(NPU, 4, 0)
    assert [137, 137] == codes


async def test_late_registration(tell, clock, shows, kubelet):
    """The resource registers after 45 seconds."""
    agent = await tell("late-registration.yaml", wait=False)
    engine = agent.agent.faults.engine
    await kubelet.wait_until(lambda: engine.runs and engine.runs["late"].injections)
    clock.advance(44.9)
    assert GPU not in kubelet.node().capacity
    clock.advance(0.1)
    await shows(GPU, 8, 8)


@TIME_GOES_ON
async def test_restart_storm(tell, clock, shows, kubelet):
    """Each deleted socket is followed by a new registration, and running pods keep their devices."""
    agent = await tell("restart-storm.yaml")
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    engine = agent.agent.faults.engine
    run = engine.runs["sockets-gone"]
    for number in range(1, 6):
        while run.injections.total() < number:
            moment = engine.next_change
            clock.advance(moment - clock.now())
            await kubelet.wait_until(lambda past=moment: engine.next_change != past)
        await kubelet.wait_until(lambda wanted=number + 1: kubelet.metrics.registrations[NPU] >= wanted)
        await shows(NPU, 4, 4)
    assert pod.container().devices == kubelet.pod("p").container().devices
    assert Phase.RUNNING is kubelet.pod("p").phase


async def test_tenth_of_fleet(tell, clock, shows):
    """About a tenth of the nodes is chosen, and each of these loses one GPU."""
    loaded = await asyncio.to_thread(load, [LIBRARY / "tenth-of-fleet.yaml"])
    (rule,) = loaded.spec.faults.rules
    fleet = [f"node-{number}" for number in range(1000)]
    chosen = [node for node in fleet if on_node(OnNodes(share=rule.on_nodes.share), rule.name, Dice(7, node))]
    assert 70 <= len(chosen) <= 130
    await tell("tenth-of-fleet.yaml", node_name=chosen[0])
    clock.advance(120)
    await shows(GPU, 8, 7)


async def test_flapping(tell, clock, shows, kubelet):
    """A device fails and recovers."""
    agent = await tell("flapping.yaml")
    for allocatable in (1, 2, 1, 2):
        clock.advance(agent.agent.faults.engine.next_change - clock.now())
        await shows("example.com/uart", 2, allocatable)


@pytest.fixture
async def node(api_server):
    """The Node's conditions by type, and the number of its Events by reason."""
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")

    def seen():
        found = api_server.object("nodes", "node-1").get("status", {}).get("conditions", ())
        events = {each["reason"]: each["count"] for each in api_server.all("events", "default")}
        return {each["type"]: each["status"] for each in found}, events

    return seen


@TIME_GOES_ON
async def test_xid79_for_operators(tell, clock, shows, node, account, api_server):
    """Health, Event and condition change at once; an Xid of an application is only an Event."""
    agent = await tell("xid79-for-operators.yaml", api_server=account)

    def leap():  # exactly, because the last rule is active for a second and the clock goes on
        clock.advance(agent.agent.faults.engine.next_change - clock.now())

    ready = "AcceleratedHardwareReady"
    await api_server.until(lambda: node()[0].get(ready) == "True")
    leap()
    await shows(GPU, 8, 7)
    await api_server.until(lambda: node()[0][ready] == "False" and "NvidiaXID79Error" in node()[1])
    leap()
    await shows(GPU, 8, 8)
    await api_server.until(lambda: node()[0][ready] == "True")
    leap()
    await api_server.until(lambda: "NvidiaXID31Warning" in node()[1])
    assert "True" == node()[0][ready]
    await shows(GPU, 8, 8)


@TIME_GOES_ON
async def test_thermal_event(tell, clock, shows, node, account, api_server):
    """There are three Events, and a condition between the first two."""
    agent = await tell("thermal-event.yaml", api_server=account)
    for times, pressure in ((1, "True"), (2, None), (3, None)):
        clock.advance(agent.agent.faults.engine.next_change - clock.now())
        await api_server.until(lambda wanted=times: node()[1].get("ThermalSlowdown") == wanted)
        await api_server.until(lambda wanted=pressure: node()[0].get("ThermalPressure") == wanted)
    await shows(GPU, 8, 8)


@TIME_GOES_ON
async def test_api_server_away(tell, clock, shows, node, account, api_server):
    """The list follows at once, the condition as soon as the API server answers."""
    agent = await tell("api-server-away.yaml", api_server=account)
    await api_server.until(lambda: node()[0].get("GpuHealthy") == "True")
    clock.advance(60)
    await api_server.until(lambda: not api_server.watching)
    clock.advance(10)
    await shows(GPU, 8, 7)
    await api_server.until(lambda: any("'away'" in str(each) for each in agent.agent.reconciler.problems))
    assert "True" == node()[0]["GpuHealthy"]
    clock.advance(50)
    await api_server.until(lambda: node()[0]["GpuHealthy"] == "False" and "NvidiaXID79Error" in node()[1])


@TIME_GOES_ON
async def test_dra_bad_day(tell, clock, kubelet, node, account, api_server):
    """Taints, deleted slices, an incomplete pool, an old slice, and late changes."""
    (kubelet.device_plugin_dir.parent / "plugins_registry").mkdir(exist_ok=True)
    agent = await tell("dra-bad-day.yaml", api_server=account, wait=False)

    def devices():
        return {each["name"]: each for row in api_server.all("resourceslices") for each in row["spec"]["devices"]}

    def tainted():
        return {name for name, each in devices().items() if each.get("taints")}

    def pools():
        rows = [each["spec"]["pool"] for each in api_server.all("resourceslices")]
        return sorted((each["generation"], each["resourceSliceCount"]) for each in rows)

    names = {f"gpu-{number}" for number in range(4)}
    await api_server.until(lambda: names == devices().keys() and not tainted())
    clock.advance(60)
    await api_server.until(lambda: {"gpu-3"} == tainted())
    for _ in range(2):
        before = {each["metadata"]["uid"] for each in api_server.all("resourceslices")}
        clock.advance(60)
        await api_server.until(
            lambda old=before: (
                devices() and old.isdisjoint(e["metadata"]["uid"] for e in api_server.all("resourceslices"))
            )
        )
    clock.advance(60)
    await api_server.until(lambda: [(2, 2)] == pools())
    clock.advance(60)
    await api_server.until(lambda: [(3, 1)] == pools())
    clock.advance(60)
    await api_server.until(lambda: [(1, 1), (3, 1)] == pools() and devices().keys() == {*names, "vdev-stale"})
    clock.advance(60)
    await api_server.until(lambda: [(3, 1)] == pools())
    clock.advance(60)
    clock.advance(30)
    await api_server.until(lambda: agent.agent.faults.engine.runs["slow-news"].injections)
    assert {"gpu-3"} == tainted()
    clock.advance(30)
    await api_server.until(lambda: {"gpu-0", "gpu-3"} == tainted())
    clock.advance(120)
    await api_server.until(lambda: not tainted())


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_each_file_has_a_comment_and_a_test(path):
    """Each file of the library has a comment with what happens, and a test here."""
    text = path.read_text()
    assert "# Seen on" in text
    assert "A healthy" in text
    assert re.search(rf"tell\(\"{path.name}\"", Path(__file__).read_text())
    assert 0 == main(["plan", str(path), "--node", "n"])
