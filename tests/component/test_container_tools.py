"""The vendors' tools in containers: the mounts of an Allocate, and the tools' output in a shell."""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.held_back import HeldBack
from vdev.model import telemetry
from vdev.sim import PodStatus, manifest

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"
TELEMETRY = "telemetry: {}"
FALLEN = "faults: {rules: [{name: fallen, devices: [gpus/0], xid: 79}]}"


def config(more=TELEMETRY, *, entry="", flags="", count=4, preset="a100-sxm4-40gb", resource=GPU):
    """GPUs with telemetry."""
    return f"""
version: v1
flags: {{{flags}}}
devices:
  - {{name: gpus, resource: {resource}, virtual: {{preset: {preset}, count: {count}}}{entry}}}
{more}
"""


class Inside:
    """A container with the mounts of its runtime, and nothing else."""

    def __init__(self, root: Path, pod: PodStatus) -> None:
        self.mounts = {each.container_path: each for each in pod.container().edits.mounts}
        self.root = root / pod.name
        for path, mount in self.mounts.items():
            where = self.root / path.lstrip("/")
            where.parent.mkdir(parents=True, exist_ok=True)
            assert Path(mount.host_path).exists(), path
            where.symlink_to(mount.host_path)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a tool."""
        name, *arguments = command
        directory = self.root / telemetry.IN_CONTAINER.lstrip("/")
        return subprocess.run(
            [str(self.root / "usr/bin" / name), *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "VDEV_SMI_DIR": str(directory), "VDEV_SMI_PROC": "/nonexistent"},
        )

    @property
    def index(self) -> int:
        """The index of its only device."""
        (name,) = (Path(each).name for each in self.mounts if each.startswith(telemetry.IN_CONTAINER))
        return int(name.partition(".")[0])

    def uuids(self) -> set[str]:
        """The devices that nvidia-smi shows."""
        listed = self.run("nvidia-smi", "-L")
        assert ("", 0) == (listed.stderr, listed.returncode)
        return {line.partition("UUID: ")[2].rstrip(")") for line in listed.stdout.splitlines()}


@pytest.fixture
def inside(tmp_path):
    return lambda pod: Inside(tmp_path / "containers", pod)


def devices_of(pod: PodStatus, resource: str = GPU) -> set[str]:
    return {each.partition("::")[0] for each in pod.container().devices[resource]}


async def test_a_container_sees_exactly_its_devices(kubelet, start_agent, inside):
    """The tool is mounted read-only at the path of the vendor's tool, and shows two of four devices."""
    await start_agent(config())
    pod = await kubelet.run_pod(manifest("a", {GPU: 2}))
    box = inside(pod)
    assert all(each.read_only for each in box.mounts.values())
    assert "/usr/bin/nvidia-smi" in box.mounts
    assert devices_of(pod) == box.uuids()
    table = box.run("nvidia-smi").stdout
    assert table.count("NVIDIA A100-SXM4-40GB") == 2
    assert "/  40960MiB" in table


@pytest.mark.parametrize("file", [config(more=""), config(entry=", smi: false")], ids=["no telemetry", "smi: false"])
async def test_no_tool_if_it_is_disabled(kubelet, start_agent, directory, file):
    """There is no tool without telemetry or with `smi: false`, and no directory on the node."""
    await start_agent(file)
    pod = await kubelet.run_pod(manifest("a", {GPU: 1}))
    assert [] == list(pod.container().edits.mounts)
    assert not (directory / "smi").exists()


async def test_a_mig_device(kubelet, start_agent, inside):
    await start_agent(config(entry=', partitions: {"0": [1g.5gb, 1g.5gb, 3g.20gb]}', flags="migStrategy: mixed"))
    pod = await kubelet.run_pod(manifest("a", {MIG: 1}))
    box = inside(pod)
    listed = box.run("nvidia-smi", "-L").stdout.splitlines()
    assert listed[0].startswith("GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-")
    assert listed[1].startswith("  MIG 1g.5gb      Device  0: (UUID: MIG-")
    assert devices_of(pod, MIG) <= box.uuids()
    assert len(listed) == 2
    assert "/  4864MiB    | 14      0 |" in box.run("nvidia-smi").stdout


async def test_a_shared_device(kubelet, start_agent, inside):
    shared = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}"
    await start_agent(config(more=f"{TELEMETRY}\n{shared}", count=1))
    for name in ("a", "b"):
        pod = await kubelet.run_pod(manifest(name, {GPU: 1}))
        assert devices_of(pod) == inside(pod).uuids()


async def test_by_cdi(kubelet, start_agent):
    """With CDI, the specification has the mounts."""
    agent = await start_agent(config(flags="plugin: {deviceListStrategy: cdi-cri}"))
    pod = await kubelet.run_pod(manifest("a", {GPU: 1}))
    assert [] == list(pod.container().edits.mounts)
    (spec,) = (json.loads(path.read_text()) for path in agent.cdi_dir.glob("*.json"))
    (device,) = devices_of(pod)
    edits = next(each for each in spec["devices"] if each["name"] == device)["containerEdits"]
    tool, data = edits["mounts"]
    assert "/usr/bin/nvidia-smi" == tool["containerPath"]
    assert Path(data["hostPath"], "nvidia").is_file()
    assert "ro" in data["options"]


async def test_a_fault_shows_at_the_next_call(kubelet, start_agent, inside, directory):
    """The tool of the pod with this device fails with exit code 15 until the fault ends."""
    agent = await start_agent(config(count=2))
    first, second = [await kubelet.run_pod(manifest(name, {GPU: 1})) for name in ("a", "b")]
    boxes = {box.index: box for box in (inside(first), inside(second))}
    agent.edit(config(more=f"{TELEMETRY}\n{FALLEN}", count=2))
    await kubelet.wait_until(lambda: boxes[0].run("nvidia-smi").returncode == 15, what="the loss")
    assert "GPU is lost" in boxes[0].run("nvidia-smi", "-L").stdout
    assert 0 == boxes[1].run("nvidia-smi").returncode
    agent.edit(config(count=2))
    await kubelet.wait_until(lambda: boxes[0].run("nvidia-smi").returncode == 0, what="the end of the fault")


async def test_the_load_shows(kubelet, start_agent, inside):
    """A held device is busy and has a process, and its amounts of memory add up."""
    steady = ", telemetry: {pattern: steady, gpu: 75, memory: 50}"
    await start_agent(config(entry=steady, count=1))
    box = inside(await kubelet.run_pod(manifest("a", {GPU: 1})))
    asked = "utilization.gpu,memory.used,memory.free,memory.reserved,memory.total"
    facts = "power.limit,clocks.max.sm,pcie.link.gen.max"
    printed = box.run("nvidia-smi", f"--query-gpu={facts}", "--format=csv,noheader").stdout
    assert "400.00 W, 1410 MHz, 4\n" == printed, "those of the preset"

    def shown() -> list[int]:
        row = box.run("nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits").stdout
        return [int(value) for value in row.split(", ")]

    await kubelet.wait_until(lambda: shown()[0] == 75, what="the load")
    _, used, free, reserved, total = shown()
    assert total == used + free + reserved
    assert used == (total - reserved) // 2
    programs = box.run("nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader").stdout
    assert f"1, {used} MiB\n" == programs


def static_busybox() -> str:
    """A statically linked shell, or a skip."""
    found = shutil.which("busybox")
    if found is None or b"/ld-linux" in Path(found).read_bytes():
        pytest.skip("no static busybox here: install busybox-static")
    return found


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="bind mounts and chroot need root")
async def test_in_a_real_root(kubelet, start_agent, tmp_path):
    """The tool works with read-only bind mounts in an image with only a shell."""
    root = tmp_path / "image"
    for directory in ("bin", "dev", "usr/bin"):
        (root / directory).mkdir(parents=True)
    shutil.copy(static_busybox(), root / "bin/sh")
    (root / "dev/null").touch()
    await start_agent(config(count=1))
    pod = await kubelet.run_pod(manifest("a", {GPU: 1}))
    steps = []
    for mount in pod.container().edits.mounts:
        target = root / mount.container_path.lstrip("/")
        if Path(mount.host_path).is_dir():
            target.mkdir(parents=True)
        else:
            target.touch()
        steps += [f"mount --bind '{mount.host_path}' '{target}'", f"mount -o remount,bind,ro '{target}'"]
    enter = " && ".join((*steps, f"exec chroot '{root}' /usr/bin/nvidia-smi"))
    command = ["unshare", "--mount", "sh", "-c", enter]
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    if "unshare failed" in shown.stderr or "permission denied" in shown.stderr:
        pytest.skip(f"no mounts here: {shown.stderr.strip()}")
    assert (0, "") == (shown.returncode, shown.stderr)
    assert "NVIDIA A100-SXM4-40GB" in shown.stdout


async def test_tools_of_held_devices_stay(kubelet, start_agent, inside, directory):
    """A held device's directory survives an edit and a restart, and is removed after its pod."""
    agent = await start_agent(config(count=2))
    pods = [await kubelet.run_pod(manifest(name, {GPU: 1})) for name in ("a", "b")]
    boxes = {box.index: (pod, box) for pod, box in ((pod, inside(pod)) for pod in pods)}
    pod, box = boxes[1]
    (device,) = devices_of(pod)
    await agent.has_named(kubelet, 2)
    agent.edit(config(count=1))
    await agent.serves(2, kubelet)
    assert {device} == box.uuids()
    await agent.stop()
    assert {device} == box.uuids()
    await start_agent(config(count=1))
    assert {device} == box.uuids()
    gone = directory / "smi/devices" / device
    await kubelet.delete_pod(pod.name)
    await kubelet.wait_until(lambda: not gone.exists(), what="the removal")
    assert len(list((directory / "smi/devices").iterdir())) == 1


async def test_a_tool_stays_while_an_allocation_may_return_it(kubelet, start_agent, inside):
    """A pod that is admitted while an edit removes the tool can still mount it."""
    held = HeldBack(lambda plan: [each.device.raw.tools for each in plan.observed.inventory.resources[GPU].slots])
    agent = await start_agent(config(), appliers=[held], look_at_holders=0.2)
    await kubelet.wait_until(lambda: held.last.observed.in_use.is_complete, what="an answer about pods")
    agent.edit(config(entry=", smi: false"))
    await held.reached.wait()
    pod = await kubelet.run_pod(manifest("a", {GPU: 1}))
    held.go.set()
    await agent.settled(kubelet)
    assert devices_of(pod) == inside(pod).uuids()
