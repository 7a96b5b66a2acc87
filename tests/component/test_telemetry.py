"""Telemetry of a running plugin over real sockets: pods, faults, the address, annotations."""

import asyncio
import re
import socket

import pytest

from tests.component.test_http import get
from vdev.sim import manifest

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
CONFIG = """\
version: v1
telemetry: {address: "127.0.0.1:0"}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, rename: nvidia.com/gpu.shared, replicas: 2, devices: [0]}]}}
devices: [{name: a100, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}}]
"""


async def page(agent):
    found = [each["address"] for each in agent.logs if each.get("what") == "metrics of devices" and "address" in each]
    return (await get(found[-1], "/metrics")).text


def values(text, name, **labels):
    """The values of a metric with these labels, by pod."""
    found = {}
    for line in text.splitlines():
        if line.startswith(f"{name}{{") and all(f'{key}="{value}"' in line for key, value in labels.items()):
            pod = re.search(r'namespace="([^"]*)",pod="([^"]*)"', line)
            found["/".join(pod.groups()) if pod else ""] = float(line.rpartition(" ")[2])
    return found


async def eventually(agent, kubelet, condition, what):
    """Wait until the metrics meet the condition, and return them."""
    told = "nothing"
    try:
        async with asyncio.timeout(30):
            while not condition(told := await page(agent)):
                agent.agent.holders.ask()
                await agent.settled(kubelet)
    except TimeoutError:
        raise TimeoutError(f"waited for {what}; the page says\n{told}") from None
    return told


def up(running, times=1):
    """Whether the metrics have been served this number of times."""
    told = [
        each for each in running.logs if each.get("what") == "metrics of devices" and each["event"] == "serving HTTP"
    ]
    return len(told) >= times


async def problem(running, kubelet, word):
    """Wait for a problem with this word, and return it."""

    def found():
        return [str(each) for each in running.agent.reconciler.problems if word in str(each)]

    await kubelet.wait_until(found, what=f"a problem with {word}")
    return found()[0]


@pytest.fixture
async def agent(start_agent, kubelet):
    """A plugin with two GPUs, one of them shared, that serves metrics."""
    running = await start_agent(CONFIG)
    await kubelet.wait_until(lambda: up(running), what="the metrics")
    return running


async def test_load_follows_pods(agent, kubelet):
    """A device without a pod is idle, one with a pod works, and every pod of a shared one has a line."""
    assert {"": 0} == values(await page(agent), "DCGM_FI_DEV_GPU_UTIL", gpu="1")
    for name in ("one", "two", "three"):
        await kubelet.run_pod(manifest(name, {SHARED: 1} if name != "three" else {GPU: 1}))
    told = await eventually(agent, kubelet, lambda text: "three" in text and "two" in text, "the pods")
    shared = values(told, "DCGM_FI_DEV_GPU_UTIL", gpu="0")
    assert {"default/one", "default/two"} == shared.keys()
    assert 80 <= shared["default/one"] == shared["default/two"] <= 98
    assert {"default/three"} == values(told, "DCGM_FI_DEV_GPU_UTIL", gpu="1").keys()
    await kubelet.finish_pod("three")
    agent.clock.advance(20)  # until the holders are read again
    told = await eventually(agent, kubelet, lambda text: "three" not in text, "the end of the pod")
    assert {"": 0} == values(told, "DCGM_FI_DEV_GPU_UTIL", gpu="1")
    assert values(told, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", gpu="1")[""] > 0


async def test_a_fault_shows_in_the_metric_when_it_shows_in_the_list(start_agent, kubelet):
    """A lost device has only the metric of its Xid."""
    rules = "faults: {rules: [{name: lost, devices: [a100/1], xid: 79}]}\n"
    running = await start_agent(CONFIG + rules)
    await kubelet.wait_until(lambda: up(running), what="the metrics")
    told = await page(running)
    assert {"": 79} == values(told, "DCGM_FI_DEV_XID_ERRORS", gpu="1")
    assert {} == values(told, "DCGM_FI_DEV_GPU_TEMP", gpu="1")
    assert {"": 0} == values(told, "DCGM_FI_DEV_XID_ERRORS", gpu="0")


async def test_an_address_in_use_is_a_problem(start_agent, kubelet):
    """The devices are served, and a problem says what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        running = await start_agent(CONFIG.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
        sentence = await problem(running, kubelet, "telemetry.address")
        assert f"metrics of devices cannot be served at 127.0.0.1:{port}: Address already in use" in sentence
        assert "choose another address" in sentence
        assert kubelet.node().allocatable[GPU] == 1


async def test_the_address_follows_the_file(agent, kubelet):
    """Without the address nothing is served; with it, metrics are served again."""
    before = len([each for each in agent.logs if each["event"] == "serving HTTP"])
    agent.edit(CONFIG.replace('telemetry: {address: "127.0.0.1:0"}\n', ""))
    await agent.serves(2, kubelet)
    assert (await agent.agent.telemetry.top({}))["on"] is False
    agent.edit(CONFIG)
    await agent.serves(3, kubelet)
    await kubelet.wait_until(
        lambda: len([each for each in agent.logs if each["event"] == "serving HTTP"]) > before, what="the new address"
    )
    assert "DCGM_FI_DEV_GPU_TEMP" in await page(agent)


async def test_top_shows_readings(agent):
    told = await agent.agent.telemetry.top({})
    assert (told["on"], told["node"], len(told["devices"])) == (True, "node-1", 2)
    assert {"load", "temperature", "power", "memoryUsedMiB", "holders", "xid", "health"} <= told["devices"][0].keys()


def annotated(name, **annotations):
    """A pod object with annotations."""
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "x"}]}
    metadata = {"name": name, "namespace": "default", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


ANNOTATED = CONFIG.replace('127.0.0.1:0"', '127.0.0.1:0", podAnnotations: true')


async def test_a_pod_annotation_sets_the_load(start_agent, kubelet, api_server, account):
    """The annotation sets the load, and so does a change of it. An invalid one is a problem, and the pattern stays."""
    await api_server.add("pods", annotated("one", **{"vdev.dev/load": "15"}), namespace="default")
    running = await start_agent(ANNOTATED, api_server=account)
    await kubelet.wait_until(lambda: up(running), what="the metrics")
    await kubelet.run_pod(manifest("one", {GPU: 1}))

    def util(text):
        return values(text, "DCGM_FI_DEV_GPU_UTIL", gpu="1").get("default/one")

    await eventually(running, kubelet, lambda text: util(text) == 15, "the load of the pod")
    await api_server.edit(
        "pods", "one", {"metadata": {"annotations": {"vdev.dev/load": "30-30%"}}}, namespace="default"
    )
    await eventually(running, kubelet, lambda text: util(text) == 30, "its other load")
    nonsense = {"metadata": {"annotations": {"vdev.dev/load": None, "run.ai/simulated-gpu-utilization": "lots"}}}
    await api_server.edit("pods", "one", nonsense, namespace="default")
    await eventually(running, kubelet, lambda text: (util(text) or 0) >= 80, "the pattern")
    found = await problem(running, kubelet, "pod default/one")
    assert "its annotation run.ai/simulated-gpu-utilization is 'lots': expected percent, got" in found
    await api_server.remove("pods", "one", namespace="default")
    problems = running.agent.reconciler
    await kubelet.wait_until(lambda: "pod default/one" not in str(problems.problems), what="the end of the problem")


async def test_without_the_permission_patterns_stay(start_agent, kubelet, api_server, account):
    api_server.permissions = set()
    running = await start_agent(ANNOTATED, api_server=account)
    await kubelet.wait_until(lambda: up(running), what="the metrics")
    found = await problem(running, kubelet, "podAnnotations")
    assert "let vdev list and watch pods, or set telemetry.podAnnotations to false" in found
    assert "DCGM_FI_DEV_GPU_UTIL" in await page(running)


async def test_pods_are_read_only_for_annotations(start_agent, kubelet, api_server, account):
    """Metrics without annotations need no permission."""
    running = await start_agent(CONFIG, api_server=account)
    await kubelet.wait_until(lambda: up(running), what="the metrics")
    assert not api_server.asked
