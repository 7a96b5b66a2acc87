"""Dynamic Resource Allocation end to end: a file, an agent, an API server, and a kubelet that prepares claims."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.kit.dra_node import dra_kubelet, runs, until_published
from tests.kit.dra_objects import claim, device_class, exactly, pod, template
from tests.kit.pod_lister import pod_lister
from vdev.agent import status
from vdev.cli.status import lines as status_lines
from vdev.sim import Phase

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

CONFIG = """
version: v1
devices:
  - name: a100
    resource: nvidia.com/gpu
    advertise: [dra]
    virtual: {preset: a100-sxm4-40gb, count: 4}
    PARTITIONS
  - name: npu
    resource: acme.dev/npu
    advertise: [dra]
    virtual: {count: 2, memory: 16Gi, attributes: {model: X1}}
    container:
      env: {ACME_MODEL: "{attributes.model}"}
      deviceNodes: [{hostPath: /dev/null, containerPath: "/dev/acme{index}"}]
"""
STATIC = 'partitions: {"3": [1g.5gb, 1g.5gb, 2g.10gb, 3g.20gb]}'
DYNAMIC = "dra: {partitions: dynamic}"
GPU, MIG, NPU = "gpu.nvidia.com", "mig.nvidia.com", "acme.dev"


def config(partitions=STATIC, text=CONFIG):
    return text.replace("PARTITIONS", partitions)


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet that uses the claims and slices of the API server."""
    classes = (
        device_class(GPU, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'gpu'"),
        device_class(MIG, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'"),
        device_class(NPU, "device.driver == 'acme.dev'", extendedResourceName="acme.dev/npu"),
    )
    async with dra_kubelet(directory, api_server, *classes) as running:
        yield running


@pytest.fixture
def start(start_agent, account, api_server, kubelet):
    """Start an agent, and wait until its drivers are registered and its slices are published."""

    async def start(text=None, **options):
        agent = await start_agent(text or config(), api_server=account, wait=False, fault_injection=True, **options)
        await until_published(agent, api_server)
        return agent

    return start


async def test_a_container_with_a_whole_claim_gets_the_devices_of_all_requests(kubelet, start):
    """In one variable: a runtime applies the edits of each request, and the last value would win."""
    await start()
    wanted = claim("both", exactly(GPU, name="a"), exactly(GPU, name="b", count=2))
    await kubelet.objects.create("ResourceClaim", wanted)
    running = await runs(kubelet, pod("one", claims=["both"]))
    ids = running.container().edits.envs["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert 3 == len({*ids})
    (told,) = running.container().allocated_resources_status
    assert 3 == len(told["resources"])
    assert [] == kubelet.errors


CAPACITY = """
version: v1
devices:
  - name: nic
    resource: acme.dev/nic
    advertise: [dra]
    virtual: {count: 1}
    dra:
      capacity:
        bandwidth: {value: 100G, requestPolicy: {default: 1G, validRange: {min: 100M, max: 100G, step: 1M}}}
        vfs: {value: 3, requestPolicy: {default: 1, validValues: [1]}}
"""


async def test_claims_share_a_device_by_its_declared_capacity(kubelet, start, api_server):
    """Each claim gets its request, or the default, until one of the capacities is used up."""
    await start(CAPACITY)
    wanted = {"a": {"bandwidth": "60G"}, "b": {"bandwidth": "30G"}, "c": {"bandwidth": "20G"}, "d": {}, "e": {}}
    for name, requests in wanted.items():
        request = exactly(NPU, capacity={"requests": requests}) if requests else exactly(NPU)
        await kubelet.objects.create("ResourceClaim", claim(name, request))
    for name in ("a", "b"):
        await runs(kubelet, pod(name, claims=[name]))
    assert Phase.PENDING is (await kubelet.run_pod(pod("c", claims=["c"]))).phase  # 10G of 100G are left
    await runs(kubelet, pod("d", claims=["d"]))
    assert Phase.PENDING is (await kubelet.run_pod(pod("e", claims=["e"]))).phase  # three claims use all vfs
    (result,) = api_server.object("resourceclaims", "d", "default")["status"]["allocation"]["devices"]["results"]
    assert {"bandwidth": "1G", "vfs": "1"} == result["consumedCapacity"]
    assert [] == kubelet.errors


AWAY = """
version: v1
devices:
  - name: npu
    resource: acme.dev/npu
    advertise: [dra]
    virtual: {count: COUNT, memory: 4Gi, partitioning: {slices: 4, profiles: {2x: {slices: 2, memory: 2Gi}}}}
    dra: {partitions: dynamic, taints: {lost: NoExecute}}
"""


@pytest.mark.parametrize("remains", [1, 0])
async def test_a_claimed_device_that_is_missing_after_a_restart(kubelet, start, api_server, remains):
    """It stays published with its attributes and counters and a taint, and is removed after its claim.

    `remains` is the number of other devices of its entry; with 0, the entry is missing too.
    """
    agent = await start(AWAY.replace("COUNT", "2"))
    selector = "device.attributes['acme.dev'].id.startsWith('npu-1-2x')"
    await kubelet.objects.create("ResourceClaim", claim("half", exactly(NPU, selector)))
    await runs(kubelet, pod("one", claims=["half"]))
    before = published(api_server)["npu-1-2x-0"]
    await agent.stop()
    other = "version: v1\ndevices:\n  - {name: x, resource: x.dev/x, virtual: {count: 1}, advertise: [dra]}\n"
    agent = await start(AWAY.replace("COUNT", "1") if remains else other)
    await api_server.until(lambda: "npu-1-2x-0" in published(api_server))
    after = published(api_server)
    assert not [name for name in after if name.startswith("npu-1") and name != "npu-1-2x-0"]
    (taint,) = after["npu-1-2x-0"].pop("taints")
    assert ("acme.dev/lost", "NoExecute") == (taint["key"], taint["effect"])
    assert before == after["npu-1-2x-0"]
    assert bool(remains) is ("npu-0" in after)

    def health():
        rows = kubelet.pod("one").container().allocated_resources_status
        return [each["resources"][0]["health"] for each in rows]

    await kubelet.wait_until(lambda: ["Unhealthy"] == health(), what="its health")
    await kubelet.objects.create("ResourceClaim", claim("other", exactly(NPU, selector)))
    assert Phase.PENDING is (await kubelet.run_pod(pod("two", claims=["other"]))).phase
    await kubelet.delete_pod("two")
    await kubelet.delete_pod("one")
    await api_server.until(lambda: not any(name.startswith("npu-1") for name in published(api_server)))
    assert [] == kubelet.errors


def published(api_server):
    """The devices of acme.dev by name."""
    slices = [each["spec"] for each in api_server.all("resourceslices") if each["spec"]["driver"] == NPU]
    return {device["name"]: device for spec in slices for device in spec.get("devices", ())}


SHARED = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, advertise: [dra], virtual: {count: 1}}
"""
SHARING = "sharing: {timeSlicing: {resources: [{name: acme.dev/npu, replicas: 3}]}}"


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_device_stays_shared_until_its_claims_end(kubelet, start, api_server, restarts):
    """After sharing was removed from the file, no other claim gets the device before. Then one gets it as a whole."""
    agent = await start(SHARED + SHARING)
    await kubelet.objects.create("ResourceClaimTemplate", template("npu", exactly(NPU)))
    for name in ("one", "two"):
        await runs(kubelet, pod(name, templates=["npu"]))
    if restarts:
        await agent.stop()
        await start(SHARED)
    else:
        agent.edit(SHARED)
    await api_server.until(lambda: "taints" in published(api_server).get("npu-0", {}))
    assert Phase.PENDING is (await kubelet.run_pod(pod("three", templates=["npu"]))).phase
    await kubelet.delete_pod("one")
    assert published(api_server)["npu-0"]["allowMultipleAllocations"]
    await kubelet.delete_pod("two")
    await kubelet.wait_until(lambda: Phase.RUNNING is kubelet.pod("three").phase, what="the third pod")
    assert "allowMultipleAllocations" not in published(api_server)["npu-0"]
    assert [] == kubelet.errors


async def test_a_driver_without_entries_runs_until_its_claims_end(kubelet, start, start_agent, api_server):
    """After a start without its entries, the driver unprepares its claims so that their pods can end, and ends too."""
    agent = await start()
    await kubelet.objects.create("ResourceClaimTemplate", template("npu", exactly(NPU)))
    await runs(kubelet, pod("one", templates=["npu"]))
    await agent.stop()
    other = "version: v1\ndevices:\n  - {name: x, resource: acme.dev/x, virtual: {count: 1}}\n"
    agent = await start_agent(other, wait=False)
    await api_server.until(lambda: ["registered"] == [each["state"] for each in agent.agent.dra.document()])
    await kubelet.delete_pod("one")
    await api_server.until(lambda: [] == agent.agent.dra.document())
    assert [] == kubelet.errors
    await agent.stop()
    agent = await start_agent(other)
    assert [] == agent.agent.dra.document()


async def test_the_health_of_claimed_devices_in_status_and_metrics(kubelet, start, api_server, directory):
    """The status has each device with its claims, and the metrics are those of the alerts. One device is missing."""
    up = directory / "up"
    up.mkdir()
    for name in ("npu-0", "npu-1", "npu-2", "npu-3"):
        (up / name).write_text("ok")
    text = "version: v1\ndevices:\n  - {name: npu, resource: acme.dev/npu, advertise: [dra], virtual: {count: COUNT}, "
    text += f'health: {{probe: file, path: "{up}/{{id}}", content: ok, interval: 1s}}}}\n'
    agent = await start(text.replace("COUNT", "4"))
    npu_3 = exactly(NPU, "device.attributes['acme.dev'].id == 'npu-3'")
    await kubelet.objects.create("ResourceClaim", claim("one", npu_3))
    await runs(kubelet, pod("one", claims=["one"]))
    (up / "npu-1").write_text("dead")
    await agent.agent.faults.store.commands["device-set"](
        {"id": "npu-2", "health": "Unhealthy", "reason": "hot", "for": None}
    )
    agent.edit(text.replace("COUNT", "3"))

    def told():
        (driver,) = status.status(agent.agent)["dra"]
        return {each["name"]: each["health"] for each in driver["deviceList"] if each["taints"]}

    wrong = {"npu-1": "Unhealthy", "npu-2": "Unhealthy", "npu-3": "Unhealthy"}
    await api_server.until(lambda: wrong == told())
    (driver,) = status.status(agent.agent)["dra"]
    assert (4, 3) == (driver["devices"], driver["unhealthy"])
    assert [[], [], [], ["default/one"]] == [each["claims"] for each in driver["deviceList"]]
    lines = [*status_lines(status.status(agent.agent))]
    assert "DRA driver acme.dev: registered, 4 devices in 1 ResourceSlice, 3 unhealthy" in lines
    (sick,) = (line for line in lines if line.startswith("  npu-1   Unhealthy  "))
    assert sick.endswith("; taint acme.dev/unhealthy:NoSchedule")
    assert [line for line in lines if line.startswith("  npu-2   Unhealthy  hot; injected by ")]
    assert "  npu-3   Unhealthy  gone; taint acme.dev/lost:NoSchedule" in lines

    def measured(*names):
        sample = status.registry(agent.agent).get_sample_value
        of_health = [sample("vdev_devices", {"resource": NPU, "health": each}) for each in ("Healthy", "Unhealthy")]
        return [*of_health, *(sample(f"vdev_{each}", {"resource": NPU}) for each in names)]

    assert [1, 3, 1, 1, 1, 1] == measured("retired_devices", "drill_devices", "held_devices", "prepared_claims")
    await kubelet.delete_pod("one")
    await api_server.until(lambda: {"npu-1", "npu-2"} == told().keys())
    assert [1, 2, 0, 1, 0, 0] == measured("retired_devices", "drill_devices", "held_devices", "prepared_claims")
    agent.edit("version: v1\ndevices: []\n")
    await api_server.until(lambda: [] == status.status(agent.agent)["dra"])
    assert [None] * 6 == measured("retired_devices", "drill_devices", "held_devices", "prepared_claims")


@pytest.mark.parametrize(("partitions", "wanted"), [(STATIC, GPU), (DYNAMIC, MIG)])
async def test_a_claim_mounts_the_vendor_tool(kubelet, start, partitions, wanted):
    """As for an Allocate: the script, and the data directory, which shows the load."""
    load = "telemetry: {pattern: steady, gpu: 60, memory: 50}"
    await start(config(f"{partitions}\n    {load}") + "telemetry: {}\n")
    await kubelet.objects.create("ResourceClaimTemplate", template("gpu", exactly(wanted)))
    edits = (await runs(kubelet, pod("one", templates=["gpu"]))).container().edits
    tool, data = sorted(edits.mounts, key=lambda each: not each.container_path.startswith("/usr"))
    assert ("/usr/bin/nvidia-smi", True) == (tool.container_path, tool.read_only)
    assert data.container_path.startswith("/run/vdev/smi/0000")
    found = Path(data.host_path, "nvidia").read_text()
    assert f"\nmig='{'Enabled' if wanted == MIG else 'Disabled'}'\n" in found
    assert (f"\nuuid='{Path(data.host_path).name}'" in found) == (wanted == GPU)
    assert (f"mig_uuid='{Path(data.host_path).name}'" in found) == (wanted == MIG)
    idle = "mig_used='0'" if wanted == MIG else "used='0'"
    await kubelet.wait_until(
        lambda: idle not in Path(data.host_path, "nvidia").read_text().splitlines(), what="the load of the claim"
    )


async def test_pods_of_new_claims_are_looked_up_again(kubelet, start, directory):
    """The kubelet may admit a pod, and name it in PodResources, some time after its claim was prepared."""
    socket, other = directory / "link.sock", directory / "other.sock"
    async with pod_lister(directory / "pods.sock") as lister:
        socket.symlink_to(lister.socket)
        agent = await start(pod_resources_socket=socket, look_at_holders=3600.0)
        await kubelet.objects.create("ResourceClaim", claim("whole", exactly(GPU)))
        await runs(kubelet, pod("train", claims=["whole"]))
        asked = lister.asked
        await kubelet.wait_until(lambda: lister.asked > asked, what="the first question")
        other.symlink_to(kubelet.pod_resources_socket)
        other.replace(socket)
        await kubelet.wait_until(lambda: agent.agent.holders.known.claims, what="the pod's name")
        (use,) = agent.agent.holders.known.claims
        assert ("default/train", "whole") == (use.pod, use.claim.removeprefix("default/"))


async def test_metrics_name_the_claims(kubelet, start):
    """Whole devices and MIG instances have labels for claim and pod, with the names of NVIDIA's exporter."""
    text = config(DYNAMIC).replace("a100-sxm4-40gb", "h100-sxm5-80gb")
    agent = await start('telemetry: {address: "127.0.0.1:0"}\n' + text)
    await kubelet.objects.create("ResourceClaim", claim("whole", exactly(GPU)))
    profile = "device.attributes['gpu.nvidia.com'].profile in ['1g.5gb', '1g.10gb']"
    await kubelet.objects.create("ResourceClaim", claim("part", exactly(MIG, profile)))
    await runs(kubelet, pod("train", claims=["whole"]))
    await runs(kubelet, pod("serve", claims=["part"]))

    def lines():
        shown = agent.agent.telemetry.page().splitlines()
        return [each for each in shown if each.startswith("DCGM_FI_DEV_FB_USED{") and "dra_claim_name" in each]

    async with asyncio.timeout(30):
        while len(found := await asyncio.to_thread(lines)) < 2:
            await asyncio.sleep(0.05)
    whole, part = sorted(found, key=lambda each: "GPU_I_ID" in each)
    assert re.search(
        r'container="\w+",dra_claim_name="whole",dra_claim_namespace="default",dra_device_name="gpu-\d",'
        r'dra_driver_name="gpu.nvidia.com",dra_pool_name="node-1",namespace="default",pod="train"} \d+$',
        whole,
    )
    assert float(whole.rpartition(" ")[2]) > 10_000
    assert re.search(r'GPU_I_PROFILE="1g.(5|10)gb",GPU_I_ID="\d+",', part)
    assert re.search(
        r'dra_claim_name="part",.*dra_mig_device_uuid="MIG-[^"]+",dra_mig_profile="1g.(5|10)gb",.*pod="serve"', part
    )
    assert float(part.rpartition(" ")[2]) > 1000


async def test_a_claimed_device_that_is_back_after_another_restart(kubelet, start, api_server):
    """It is published as before, and other claims can get its other partitions."""
    agent = await start(AWAY.replace("COUNT", "2"))
    await kubelet.objects.create(
        "ResourceClaim", claim("half", exactly(NPU, "device.attributes['acme.dev'].id.startsWith('npu-1-2x')"))
    )
    await runs(kubelet, pod("one", claims=["half"]))
    whole = published(api_server)
    for count in ("1", "2"):
        await agent.stop()
        agent = await start(AWAY.replace("COUNT", count))
        await api_server.until(lambda count=count: ("npu-1" in published(api_server)) is (count == "2"))
    assert whole == published(api_server)
    assert [] == kubelet.errors
