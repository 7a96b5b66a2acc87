"""The steps of docs/remediation-drill.md: a fault, all its effects, a cordon, and the recovery."""

import asyncio
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.component.test_http import get
from vdev.model import telemetry
from vdev.sim import manifest

GPU = "nvidia.com/gpu"
PAGE = (Path(__file__).parents[2] / "docs/remediation-drill.md").read_text()
(CONFIG,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
ASKS = re.findall(r"^\$ vdev fault (\w+) (\S+)$", PAGE, re.MULTILINE)
DOORS = dict(re.findall(r"^\| ([^|]+?) \| (.*?) \|", PAGE, re.MULTILINE))


@pytest.fixture
async def node(api_server):
    await api_server.add("nodes", {"metadata": {"name": "node-1"}}, manager="kubelet")

    def look():
        return api_server.object("nodes", "node-1")

    return look


def condition(node):
    found = {each["type"]: each for each in node.get("status", {}).get("conditions", ())}
    return tuple(found.get("GpuHealthy", {}).get(key, "") for key in ("status", "reason"))


def smi(pod, *arguments):
    """The exit code and output of nvidia-smi in a pod's container."""
    mounts = {each.container_path: Path(each.host_path) for each in pod.container().edits.mounts}
    (device,) = (host for path, host in mounts.items() if path.startswith(telemetry.IN_CONTAINER))
    done = subprocess.run(
        ["/bin/sh", str(mounts["/usr/bin/nvidia-smi"]), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "VDEV_SMI_DIR": str(device.parent)},
    )
    return done.returncode, done.stdout


async def test_the_drill(start_agent, account, api_server, node, kubelet, shows, tmp_path):
    """The steps of the page, with the values in its table."""
    log = tmp_path / "xids.log"
    agent = await start_agent(CONFIG.replace("/tmp/vdev-drill.log", str(log)), api_server=account, fault_injection=True)

    async def ask(number):
        command, name = ASKS[number]
        await agent.agent.faults.store.commands[f"fault-{command}"]({"name": name})

    def reasons():
        return {each["reason"] for each in api_server.all("events", "default")}

    def xids(text):
        found = re.findall(r'^DCGM_FI_DEV_XID_ERRORS\{gpu="0".*?pod="([^"]*)".*\} (\S+)$', text, re.MULTILINE)
        return dict(found)

    async def metrics_say(condition):
        address = next(each["address"] for each in agent.logs if each.get("what") == "metrics of devices")
        async with asyncio.timeout(30):
            while not condition(xids((await get(address, "/metrics")).text)):
                await agent.settled(kubelet)

    pods = [await kubelet.run_pod(manifest(name, {GPU: 1})) for name in ("a", "b")]
    await api_server.until(lambda: condition(node())[0] == "True")
    dead = agent.agent.reconciler.advertised.resources[GPU].slots[0].id
    hit, spared = sorted(pods, key=lambda pod: dead not in pod.container().devices[GPU])
    assert (0, 0) == (smi(hit, "-i", dead)[0], smi(spared)[0])

    await ask(0)
    await shows(GPU, 2, 1)
    await api_server.until(lambda: condition(node()) == ("False", "DeviceUnhealthy"))
    assert "`GpuHealthy=False`, reason `DeviceUnhealthy`" == DOORS["condition of the Node"]
    await api_server.until(
        lambda: "NvidiaXID79Error" in {each["reason"] for each in api_server.all("events", "default")}
    )
    await metrics_say(lambda found: found.get(hit.name) == "79")
    await kubelet.wait_until(lambda: smi(hit, "-i", dead)[0] == 15, what="the loss")
    assert "GPU is lost" in smi(hit, "-i", dead)[1]
    await kubelet.wait_until(log.exists, what="the line")
    line = DOORS["the kernel log"].strip("`")
    assert log.read_text().count(line) == 1

    await api_server.edit("nodes", "node-1", {"spec": {"unschedulable": True}}, manager="remediation")
    for pod in pods:
        await kubelet.delete_pod(pod.name)
    await ask(1)
    await shows(GPU, 2, 2)
    await api_server.until(lambda: condition(node())[0] == "True")
    await api_server.until(lambda: "DeviceHealthy" in reasons())
    assert node()["spec"]["unschedulable"] is True
    again = await kubelet.run_pod(manifest("c", {GPU: 2}))
    await kubelet.wait_until(lambda: all_work(again), what="the tool")
    assert log.read_text().count(line) == 1


def all_work(pod):
    """Whether no device of a container is lost, by the data of nvidia-smi."""
    directories = [Path(each.host_path) for each in pod.container().edits.mounts if "/devices/" in each.host_path]
    return all("lost=''" in (each / "nvidia").read_text() for each in directories)
