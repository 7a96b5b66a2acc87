"""CDI specifications checked by others: a schema written from the CDI specification, and podman."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from vdev.sim import manifest

SCHEMA = json.loads((Path(__file__).parents[1] / "kit/cdi.schema.json").read_text())
CONFIGS = {
    "virtual": """
flags: {plugin: {deviceListStrategy: cdi-cri}}
devices:
  - name: acme
    resource: acme.dev/npu
    virtual: {count: 2}
    container:
      deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/acme{index}", permissions: rw}]
      mounts: [{hostPath: /etc, containerPath: /etc/host, readOnly: true}]
""",
    "partitions by index": """
flags: {migStrategy: mixed, plugin: {deviceListStrategy: cdi-cri, deviceIDStrategy: index}}
devices:
  - name: gpu
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 1}
    partitions: {"0": [3g.20gb, 3g.20gb]}
""",
    "real nodes": """
flags: {plugin: {deviceListStrategy: cdi-cri}}
devices:
  - {name: zero, resource: example.com/zero, glob: /dev/zero}
""",
    "a name that CDI does not take": """
flags: {plugin: {deviceListStrategy: cdi-cri}}
devices:
  - {name: "3", resource: example.com/3, virtual: {count: 1}}
""",
}
EXPECTED = {
    "virtual": ("acme.dev/npu", {"ACME_DEV_NPU_DEVICE_0=acme-0", "ACME_DEV_NPU_DEVICE_1=acme-1"}, {"acme0", "acme1"}),
    "partitions by index": (
        "nvidia.com/mig-3g.20gb",
        {"NVIDIA_COM_GPU_DEVICE_0_0=", "NVIDIA_COM_GPU_DEVICE_0_1="},
        set(),
    ),
    "real nodes": ("example.com/zero", {"EXAMPLE_COM_ZERO_DEVICE_0=zero-"}, {"zero"}),
    "a name that CDI does not take": ("example.com/3", {"EXAMPLE_COM_3_DEVICE_0=3-0"}, set()),
}
PODMAN = """
set -e
umount /sys/fs/cgroup/unified 2>/dev/null || true    # crun takes no mix of cgroup versions
mount -t tmpfs tmpfs /run
mkdir /run/cdi
cp "$2"/cdi/*.json /run/cdi
root=$2
shift 2
exec podman --root "$root/storage" --runroot "$root/run" --storage-driver vfs --cgroup-manager cgroupfs \\
  --runtime crun run --rm --cgroups=disabled --net=none --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 "$@" \\
  --rootfs "$root/rootfs" /bin/busybox sh -c 'busybox env; busybox ls /dev; busybox ls /etc/host 2>/dev/null || true'
"""


@pytest.fixture(params=CONFIGS)
async def allocated(request, kubelet, start_agent):
    """A running plugin with CDI, and the CDI names of a pod with all devices."""
    agent = await start_agent(CONFIGS[request.param])
    name = EXPECTED[request.param][0]
    pod = await kubelet.run_pod(manifest("one", {name: kubelet.node().capacity[name]}))
    return request.param, agent, pod.container().edits.cdi_devices


async def test_every_specification_is_valid(allocated):
    """The files match the schema, and have each name that a container gets."""
    _, agent, names = allocated
    known = set()
    for path in agent.cdi_dir.iterdir():
        document = json.loads(path.read_text())
        jsonschema.validate(document, SCHEMA)
        known |= {f"{document['kind']}={device['name']}" for device in document["devices"]}
    assert known >= set(names)


@pytest.fixture
def podman():
    """Skip the test, before a plugin is started, if programs or rights are missing."""
    missing = [tool for tool in ("podman", "crun", "busybox", "unshare") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(f"needs root and the programs {', '.join(missing) or 'podman, crun, busybox, unshare'}")


@pytest.mark.root
async def test_podman_resolves_the_names_of_a_container(podman, allocated, directory):
    """A container of podman gets the variables, nodes and mounts of the names."""
    case, _, names = allocated
    binaries = directory / "rootfs/bin"
    binaries.mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), binaries)
    devices = [argument for name in names for argument in ("--device", name)]
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-c", PODMAN, "sh", "run", str(directory), *devices),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = (await process.communicate())[0].decode()
    if process.returncode and "permitted" in output and "cdi" not in output.lower():
        pytest.skip(f"no container can be run here: {output.strip()}")
    assert 0 == process.returncode, output
    _, variables, nodes = EXPECTED[case]
    lines = output.splitlines()
    assert not {each for each in variables if not any(line.startswith(each) for line in lines)}, output
    assert nodes <= set(lines), output
    assert ("hostname" in lines) == (case == "virtual"), output
