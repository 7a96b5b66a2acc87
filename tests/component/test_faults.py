"""Each kind of fault over real sockets and in virtual time: its effects on the kubelet, during and after it."""

import asyncio

import pytest

from vdev.agent.status import status
from vdev.aio.clock import LeapClock, ManualClock
from vdev.sim import Phase, manifest

NPU = "acme.dev/npu"
DEVICES = """version: v1
devices:
  - {name: acme, resource: acme.dev/npu, virtual: {count: 4}}
"""


def config(*rules, head=DEVICES):
    """The configuration with these rules, each in flow style."""
    return head + "faults:\n  seed: 7\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules)


# For effects that take some time, such as a new registration.
TIME_GOES_ON = pytest.mark.parametrize("clock", [LeapClock], indirect=True)


@pytest.fixture
async def clock(request):
    return getattr(request, "param", ManualClock)()


@pytest.fixture
async def start(start_agent, clock):
    async def begin(*rules, head=DEVICES, **options):
        return await start_agent(config(*rules, head=head) if rules else head, clock=clock, **options)

    return begin


def injected(agent, name):
    return agent.agent.faults.engine.runs[name].injections.total()


# --- devices ---------------------------------------------------------------------------------------------------------


async def test_a_harmful_drop(start, shows, clock, kubelet):
    """With allowHarmful, a held id leaves the list at once."""
    await start('name: x, devices: ["acme/*"], at: 10s, drop: true, allowHarmful: true')
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    clock.advance(10)
    await shows(NPU, 0, 0)


async def test_physical_fault_reaches_replicas_and_partitions(start, shows, clock):
    """A fault of a device reaches all its partitions and replicas."""
    head = """version: v1
flags: {migStrategy: mixed}
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 2}
    partitions: {"0": [1g.5gb, 1g.5gb, 2g.10gb]}
sharing: {timeSlicing: {resources: [{name: nvidia.com/mig-1g.5gb, replicas: 3}]}}
"""
    await start("name: x, devices: [a100/0], at: 5s, health: Unhealthy", head=head)
    await shows("nvidia.com/mig-1g.5gb", 6, 6)
    clock.advance(5)
    await shows("nvidia.com/mig-1g.5gb", 6, 0)
    await shows("nvidia.com/mig-2g.10gb", 1, 0)
    await shows("nvidia.com/gpu", 1, 1)


async def test_allocation_triggers(start, shows, kubelet):
    """A rule with onAllocate reaches only the allocated device."""
    agent = await start("name: x, onAllocate: true, health: Unhealthy, reason: broke in use")
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    await shows(NPU, 4, 3)
    (held,) = kubelet.pod("p").container().devices[NPU]
    sick = [each for each in status(agent.agent)["resources"][0]["devices"] if each["health"] == "Unhealthy"]
    assert [(held, "broke in use", "x")] == [(each["id"], each["reason"], each["injected"]) for each in sick]


# --- calls -----------------------------------------------------------------------------------------------------------


async def test_hanging_call_ends_with_its_fault(start, kubelet, clock):
    """A call hangs until the fault ends, and then fails."""
    agent = await start("name: x, rpc: Allocate, hang: true, for: 1h")
    call = asyncio.create_task(kubelet.run_pod(manifest("p", {NPU: 1})))
    await kubelet.wait_until(lambda: injected(agent, "x"))
    clock.advance(3600)
    assert "hung until the fault 'x' ended" in (await call).message


async def test_devices_of_an_unanswered_allocate_stay_listed(start, kubelet, clock):
    """An edit that removes devices waits for the pod that is about to get them."""
    rule = "name: x, rpc: Allocate, delay: 1h"
    agent = await start(rule)
    call = asyncio.create_task(kubelet.run_pod(manifest("p", {NPU: 4})))
    await kubelet.wait_until(lambda: injected(agent, "x"))
    agent.edit(config(rule, head=DEVICES.replace("count: 4", "count: 1")))
    await agent.serves(2, kubelet)
    for _ in range(20):
        clock.advance(60)
        await agent.settled(kubelet)
    assert 4 == len(agent.agent.reconciler.advertised.resources[NPU].slots)
    clock.advance(3600)
    await call


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("empty", "no containers return in allocation response"),
        ("oversized", "received message larger than max"),
    ],
)
async def test_wrong_allocate_answers(start, kubelet, answer, message):
    """The kubelet refuses a wrong answer, and the pod's status says why."""
    await start(f"name: x, rpc: Allocate, answer: {{{answer}: true}}")
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert Phase.FAILED is pod.phase
    assert message.lower() in pod.message.lower()


async def test_bogus_allocate_answer(start, kubelet):
    """An answer with devices that do not exist reaches the container."""
    await start("name: x, rpc: Allocate, answer: {bogusIds: true}")
    await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert "vdev-bogus-0" == kubelet.pod("p").container().edits.envs["ACME_DEV_NPU_VISIBLE_DEVICES"]


async def test_pre_start_can_fail(start, kubelet, clock):
    """A rule about PreStartContainer makes the kubelet call it."""
    await start('name: x, rpc: PreStartContainer, for: 1m, error: {message: "reset failed"}')
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert "reset failed" in str(pod)


# --- registration, streams, sockets ----------------------------------------------------------------------------------


@TIME_GOES_ON
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("register: {never: true}", "prevents the registration"),
        ("register: {version: v1alpha1}", "is not supported"),
        ("rpc: GetDevicePluginOptions, error: {}", ""),
        ("rpc: ListAndWatch, error: {}", ""),
    ],
)
async def test_no_devices_for_a_while(start, kubelet, shows, clock, fault, said):
    """Nothing is registered, or nothing is listed, until the fault ends."""
    agent = await start(f"name: x, {fault}, for: 60s", wait=False)
    await kubelet.wait_until(lambda: "x" in agent.agent.faults.engine.runs and injected(agent, "x"))
    await kubelet.wait_until(lambda: said in str(status(agent.agent)["resources"]))
    assert not kubelet.node().allocatable.get(NPU)
    clock.advance(60)
    await shows(NPU, 4, 4)


async def test_registering_twice(start, kubelet):
    """The plugin registers twice."""
    await start("name: x, register: {twice: true}")
    await kubelet.wait_until(lambda: kubelet.metrics.registrations[NPU] == 2)


@TIME_GOES_ON
@pytest.mark.parametrize(
    ("fault", "meanwhile"),
    [("{close: true}", (4, 0)), ("{duplicateIds: true}", (8, 4)), ("{oversized: true}, allowHarmful: true", (4, 0))],
    ids=["closed", "duplicate ids", "over 4 MiB"],
)
async def test_wrong_lists_for_a_while(start, shows, clock, fault, meanwhile):
    """After the fault, the list is correct again."""
    await start(f"name: x, stream: {fault}, at: 10s, for: 20s")
    clock.advance(10)
    await shows(NPU, *meanwhile)
    clock.advance(20)
    await shows(NPU, 4, 4)


async def test_stalled_stream(start, kubelet, shows, clock):
    """Changes are not sent while the stream stalls, and are sent after that."""
    agent = await start(
        "name: stall, stream: {stall: true}, at: 10s, for: 1m",
        "name: sick, devices: [acme/0], at: 20s, health: Unhealthy",
    )
    clock.advance(20)
    await kubelet.wait_until(lambda: agent.agent.reconciler.advertised.resources[NPU].healthy == 3)
    assert 4 == kubelet.node().allocatable[NPU]
    clock.advance(50)
    await shows(NPU, 4, 3)


@TIME_GOES_ON
@pytest.mark.parametrize("fault", ["delete", "replace"])
async def test_spoilt_socket(start, kubelet, shows, clock, fault):
    """A deleted or replaced socket is made again, and no file is left behind."""
    agent = await start(f"name: x, socket: {{{fault}: true}}, at: 10s")
    before = agent.agent.lists.services[NPU].socket
    clock.advance(10)
    await kubelet.wait_until(lambda: agent.agent.lists.services[NPU].socket not in ("", before))
    await shows(NPU, 4, 4)
    await kubelet.wait_until(lambda: len(list(kubelet.device_plugin_dir.glob("vdev-*.sock"))) == 1)


# --- CDI files and PodResources ---------------------------------------------------------------------------------------

CDI = DEVICES.replace("version: v1", "version: v1\nflags: {plugin: {deviceListStrategy: cdi-cri}}")


@pytest.mark.parametrize(("fault", "sound"), [("missing: true", None), ("broken: true", False), ("late: 30s", None)])
async def test_cdi_files(start, kubelet, clock, fault, sound):
    """The file is missing or broken until the fault ends."""
    agent = await start(f"name: x, cdi: {{{fault}}}, for: 1m", head=CDI)
    path = agent.cdi_dir / "vdev-k8s.device-plugin.acme.dev-npu.json"

    def state():
        return path.read_text().endswith("}\n") if path.exists() else None

    await kubelet.wait_until(lambda: state() is sound)
    clock.advance(30)
    if fault.startswith("late"):
        await kubelet.wait_until(state)
    clock.advance(30)
    await kubelet.wait_until(state)


async def test_pod_resources_down(start, kubelet, clock):
    """Holders are unknown while the PodResources API does not answer."""
    agent = await start("name: x, podResources: {unavailable: true}, at: 10s, for: 10s")
    await kubelet.wait_until(lambda: agent.agent.holders.holders is not None)
    clock.advance(10)
    await kubelet.wait_until(lambda: agent.agent.holders.holders is None)
    clock.advance(10)
    await kubelet.wait_until(lambda: agent.agent.holders.holders is not None)
