"""Answers to Allocate over real sockets: strategy x id strategy x passDeviceSpecs x sharing x MIG, and vendors' nodes.

The expected answers follow the documentation of NVIDIA's plugin, and share no code with vdev.
"""

import itertools

import pytest

from vdev.hostfs import HostRoot
from vdev.sim import manifest

ROOT = "/var/run/nvidia-container-devices"
KIND = "k8s.device-plugin.nvidia.com/gpu"
CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"]
MINORS = """config 1
monitor 2
gpu0/gi1/access 12
gpu0/gi1/ci0/access 13
gpu0/gi2/access 21
gpu0/gi2/ci0/access 22
gpu0/gi2/ci1/access 23
gpu1/gi2/access 156
gpu1/gi2/ci0/access 157
"""
CAPS = [[f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors] for minors in ((21, 22), (156, 157))]
"""The nodes of the upper half of either GPU, where the only 3g.20gb is."""
STRATEGIES = [
    ("envvar",),
    ("volume-mounts",),
    ("cdi-annotations",),
    ("cdi-cri",),
    ("envvar", "volume-mounts"),
    ("envvar", "cdi-annotations"),
    ("volume-mounts", "cdi-cri"),
    ("cdi-annotations", "cdi-cri"),
    ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri"),
]
MIG = ["none", "single", "mixed"]
COMBINATIONS = [
    (strategies, bool(number % 2), MIG[(number + number // 3) % 3]) for number, strategies in enumerate(STRATEGIES)
]
"""Each strategy, with or without sharing, and with one MIG strategy; tests/unit has all combinations."""
CONFIG = """
version: v1
flags:
  migStrategy: {mig}
  plugin:
    deviceListStrategy: [{strategies}]
    deviceIDStrategy: {ids}
    passDeviceSpecs: {specs}
devices:
  - name: gpu
    resource: nvidia.com/gpu
    virtual: {{preset: a100-sxm4-40gb, count: 2}}
    partitions: {{"0-1": [3g.20gb]}}
{sharing}
"""
SHARING = """
sharing:
  timeSlicing:
    resources: [{name: %s, replicas: 2}]
"""


@pytest.fixture
def nvidia_host(directory):
    """A host with plain files for the nodes of two NVIDIA GPUs."""
    dev = directory / "host/dev"
    dev.mkdir(parents=True)
    (dev / "nvidia-caps").mkdir()
    proc = directory / "host/proc/driver/nvidia-caps"
    proc.mkdir(parents=True)
    (proc / "mig-minors").write_text(MINORS)
    for path in (*CONTROL, "/dev/nvidia0", "/dev/nvidia1", *CAPS[0], *CAPS[1]):
        (directory / "host" / path.lstrip("/")).touch()
    return HostRoot(directory / "host")


@pytest.mark.parametrize(("strategies", "shared", "mig"), COMBINATIONS)
async def test_every_combination(kubelet, start_agent, nvidia_host, strategies, shared, mig):
    """A pod with both devices, under each id strategy, with and without device specs, by edits of the file."""
    name = "nvidia.com/mig-3g.20gb" if mig == "mixed" else "nvidia.com/gpu"
    agent = None
    for number, (ids, specs) in enumerate(itertools.product(("uuid", "index"), ("false", "true")), start=1):
        text = CONFIG.format(
            mig=mig,
            strategies=", ".join(strategies),
            ids=ids,
            specs=specs,
            sharing=SHARING % name if shared else "",
        )
        if agent is None:
            agent = await start_agent(text, host=nvidia_host)
        else:
            agent.edit(text)
            await agent.serves(number, kubelet)
        pod = await kubelet.run_pod(manifest("one", {name: 4 if shared else 2}))
        edits = pod.container().edits
        uuids = sorted({slot.partition("::")[0] for slot in agent.agent.reconciler.advertised.resources[name].by_id})
        indices = ["0", "1"] if mig == "none" else ["0:0", "1:0"]
        names = sorted(uuids if ids == "uuid" else indices)
        assert all(uuid.startswith("GPU-" if mig == "none" else "MIG-") for uuid in uuids)
        assert expected(strategies, names, specs=specs == "true", parts=mig != "none") == got(edits)
        await kubelet.delete_pod("one")
    assert [] == kubelet.errors


def expected(strategies, names, *, specs, parts):
    """The documented answer: variable, mounts, nodes, annotated and named CDI devices."""
    variable = ROOT if "volume-mounts" in strategies else names if "envvar" in strategies else None
    mounts = [("/dev/null", f"{ROOT}/{name}") for name in names] if "volume-mounts" in strategies else []
    only_cdi = all(strategy.startswith("cdi-") for strategy in strategies)
    real = [*CONTROL, "/dev/nvidia0", "/dev/nvidia1", *(CAPS[0] + CAPS[1] if parts else [])]
    nodes = real if specs and not only_cdi else []
    cdi = [f"{KIND}={name}" for name in names]
    return {
        "variable": variable,
        "mounts": mounts,
        "nodes": sorted((path, path, "rw") for path in nodes),
        "annotated": cdi if "cdi-annotations" in strategies else None,
        "cdi": cdi if "cdi-cri" in strategies else [],
    }


def got(edits):
    """The answer in the same form. Lists whose order follows the kubelet's request are sorted."""
    variable = edits.envs.get("NVIDIA_VISIBLE_DEVICES")
    annotated = [
        value for key, value in edits.annotations.items() if key.startswith("cdi.k8s.io/nvidia-device-plugin_")
    ]
    assert len(annotated) == len(edits.annotations)
    assert {"NVIDIA_VISIBLE_DEVICES"} >= edits.envs.keys()
    return {
        "variable": variable if variable in (None, ROOT) else sorted(variable.split(",")),
        "mounts": sorted((mount.host_path, mount.container_path) for mount in edits.mounts),
        "nodes": sorted((node.host_path, node.container_path, node.permissions) for node in edits.devices),
        "annotated": sorted(annotated[0].split(",")) if annotated else None,
        "cdi": sorted(edits.cdi_devices),
    }


VENDORS = [
    ("mi300x-8", "amd.com/gpu", ["kfd", "dri/card0", "dri/renderD128"]),
    ("gaudi3", "habana.ai/gaudi", ["accel/accel0", "accel/accel_controlD0"]),
    ("t4", "nvidia.com/gpu", [path.removeprefix("/dev/") for path in CONTROL] + ["nvidia0"]),
]


@pytest.mark.parametrize(
    ("preset", "resource", "nodes"), VENDORS, ids=lambda value: value if type(value) is str else ""
)
async def test_device_nodes_have_the_vendors_order(kubelet, start_agent, directory, preset, resource, nodes):
    """With passDeviceSpecs, a container gets the nodes of the real device that exist on the host."""
    for path in nodes:
        place = directory / "host/dev" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    text = f"""
flags: {{plugin: {{passDeviceSpecs: true}}}}
devices:
  - {{name: one, resource: {resource}, virtual: {{preset: {preset}, count: 1}}}}
"""
    await start_agent(text, host=HostRoot(directory / "host"))
    pod = await kubelet.run_pod(manifest("one", {resource: 1}))
    assert [f"/dev/{path}" for path in nodes] == [node.host_path for node in pod.container().edits.devices]


async def test_nodes_of_partitions(kubelet, start_agent, directory, config_dir):
    """A custom preset can have nodes for partitions."""
    (config_dir / "presets").mkdir()
    (config_dir / "presets/x1.yaml").write_text("""
memory: 8Gi
deviceNodes: [{path: "/dev/x{index}"}]
partitionNodes: [{path: "/dev/x-part{index}"}]
partitioning:
  slices: 2
  profiles: {half: {slices: 1, memory: 4Gi}}
""")
    (directory / "host/dev").mkdir(parents=True)
    for name in ("x0", "x1", "x-part0", "x-part1"):
        (directory / "host/dev" / name).touch()
    text = """
flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true}}
presetsDir: presets
devices:
  - {name: x, resource: acme.dev/x, virtual: {preset: x1, count: 2}, partitions: {"1": [half, half]}}
"""
    await start_agent(text, host=HostRoot(directory / "host"))
    pod = await kubelet.run_pod(manifest("one", {"acme.dev/x": 1, "acme.dev/mig-half": 2}))
    assert ["/dev/x-part1", "/dev/x0"] == sorted(node.host_path for node in pod.container().edits.devices)
