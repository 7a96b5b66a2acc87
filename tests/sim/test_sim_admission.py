"""Admission: which devices a container gets, and how a pod is refused."""

import json

import grpc
import pytest

from tests.sim.conftest import device, listed, shows
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim import Kubelet, ManifestError, ManualClock, Phase, Timings, manifest

NPU = "acme.dev/npu"
GPU = "acme.dev/gpu"


def pod_with_init(*, kind="init", init=1, app=1):
    """A pod with an init container `first` and an app container `main`."""
    document = manifest("p", {NPU: app})
    first = {"name": "first", "image": "none", "resources": {"limits": {NPU: init}}}
    if kind == "sidecar":
        first["restartPolicy"] = "Always"
    document["spec"]["initContainers"] = [first]
    return document


def with_resources(**resources):
    """A change of a manifest: one container with these resources."""
    return {"spec": {"containers": [{"name": "a", "resources": resources}]}}


def rejected(text):
    """The status message of a pod that the device manager rejects."""
    return f"Pod was rejected: Allocate failed due to {text}, which is unexpected"


async def names_a_cdi_device(_request):
    """An answer to Allocate."""
    response = api.ContainerAllocateResponse(
        envs={"CDI_DEVICE": "d1"}, cdi_devices=[api.CDIDevice(name="acme.dev/npu=d1")]
    )
    return api.AllocateResponse(container_responses=[response])


def write_spec(cdi_dir):
    edits = {"env": ["FROM_CDI=1"], "deviceNodes": [{"path": "/dev/npu0"}]}
    devices = [{"name": "d1", "containerEdits": edits}]
    cdi_dir.mkdir(exist_ok=True)
    spec = {"cdiVersion": "0.6.0", "kind": "acme.dev/npu", "devices": devices}
    (cdi_dir / "acme.json").write_text(json.dumps(spec))


async def test_cdi_device(kubelet, plugins, cdi_dir):
    """Conformance 2: CDI names and variables of an answer reach the container, with the edits of the CDI file."""
    plugin = await plugins(NPU, ["d1"])
    plugin.answer_allocate = names_a_cdi_device
    write_spec(cdi_dir)
    edits = (await kubelet.run_pod(manifest("p", {NPU: 1}))).container().edits
    assert ("acme.dev/npu=d1",) == edits.cdi_devices
    assert {"CDI_DEVICE": "d1", "FROM_CDI": "1"} == edits.envs
    assert ["/dev/npu0"] == [node.container_path for node in edits.devices]
    assert [] == kubelet.findings


async def test_a_cdi_device_without_a_spec(kubelet, plugins, cdi_dir, clock):
    """The container waits with the runtime's error, and starts when the CDI file exists."""
    plugin = await plugins(NPU, ["d1"])
    plugin.answer_allocate = names_a_cdi_device
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    text = (
        "failed to create containerd container: CDI device injection failed: unresolvable CDI devices acme.dev/npu=d1"
    )
    assert ("CreateContainerError", text) == (pod.container().waiting, pod.container().message)
    assert (Phase.PENDING, f"Error: {text}") == (pod.phase, kubelet.events[-1].message)
    write_spec(cdi_dir)
    clock.advance(10)
    await kubelet.wait_until(lambda: Phase.RUNNING is kubelet.pod("p").phase)
    assert 1 == len(plugin.requests("Allocate"))
    assert 0 == kubelet.pod("p").container().restarts


async def test_allocation_and_shortage(kubelet, plugins):
    """Conformance 35: a request for too many devices fails with both numbers; the remaining devices are allocated."""
    await plugins(NPU, ["d1", "d2", "d3"])
    first = await kubelet.run_pod(manifest("first", {NPU: 2}))
    second = await kubelet.run_pod(manifest("second", {NPU: 2}))
    third = await kubelet.run_pod(manifest("third", {NPU: 1}))
    text = f"requested number of devices unavailable for {NPU}. Requested: 2, Available: 1"
    assert (Phase.FAILED, "UnexpectedAdmissionError", rejected(text)) == (second.phase, second.reason, second.message)
    assert {"d1", "d2", "d3"} == {*first.container().devices[NPU], *third.container().devices[NPU]}
    assert [("default/second", f"Allocate failed due to {text}, which is unexpected")] == [
        (event.pod, event.message) for event in kubelet.events
    ]


async def test_unregistered_device(kubelet, plugins, clock):
    """Conformance 36: a resource whose plugin is gone for five minutes, and of which a pod still has a device."""
    plugin = await plugins(NPU, ["d1"])
    await kubelet.run_pod(manifest("first", {NPU: 1}))
    await plugin.stop()
    await shows(kubelet, NPU, 1, 0)
    clock.advance(311)
    await shows(kubelet, NPU, 0, 0)
    pod = await kubelet.run_pod(manifest("second", {NPU: 1}))
    assert rejected(f"cannot allocate unregistered device {NPU}") == pod.message


async def test_affinity_buckets(kubelet, plugins):
    """Conformance 34: devices on the requested nodes come first, then those on others, then those without a node."""
    await plugins(NPU, [device("on0", numa=[0]), device("on1", numa=[1]), device("both", numa=[0, 1]), device("free")])
    for count, expected in ((2, {"on0", "both"}), (1, {"on1"}), (1, {"free"})):
        pod = await kubelet.run_pod(manifest(f"for-{min(expected)}", {NPU: count}), numa_affinity=[0])
        assert expected == {*pod.container().devices[NPU]}


async def test_no_affinity_without_topology(kubelet, plugins):
    """Affinity has no effect on a resource whose devices have no NUMA nodes."""
    await plugins(NPU, ["d1", "d2"])
    pod = await kubelet.run_pod(manifest("p", {NPU: 2}), numa_affinity=[0])
    assert ("d1", "d2") == pod.container().devices[NPU]


async def test_freed_while_the_plugin_is_asked(kubelet, plugins):
    """Conformance 37: devices that are freed during GetPreferredAllocation do not affect the allocation."""
    plugin = await plugins(NPU, ["d1", "d2", "d3"], preferred=True)
    (held,) = (await kubelet.run_pod(manifest("old", {NPU: 1}))).container().devices[NPU]
    answer = plugin.answer_preferred

    async def free_meanwhile(request):
        await kubelet.finish_pod("old")
        await listed(kubelet)  # frees its device
        return await answer(request)

    plugin.answer_preferred = free_meanwhile
    new = await kubelet.run_pod(manifest("new", {NPU: 2}))
    assert {"d1", "d2", "d3"} - {held} == {*new.container().devices[NPU]}
    assert [] == kubelet.findings


async def test_init_container_devices_are_reused(kubelet, plugins):
    """Conformance 39: app containers take an init container's devices first; each gets its own Allocate."""
    plugin = await plugins(NPU, ["d1", "d2", "d3", "d4", "d5"])
    document = pod_with_init(init=3, app=2)
    document["spec"]["containers"].append({"name": "side", "resources": {"limits": {NPU: 2}}})
    pod = await kubelet.run_pod(document)
    first, main, side = (set(pod.container(name).devices[NPU]) for name in ("first", "main", "side"))
    assert main < first
    assert set() == main & side
    assert first - main <= side
    assert 3 == len(plugin.requests("Allocate"))


async def test_sidecar_keeps_its_devices(kubelet, plugins):
    """Conformance 10 and 40: a restartable init container keeps its devices; the app container gets others."""
    await plugins(NPU, ["d1", "d2", "d3"])
    document = pod_with_init(kind="sidecar")
    document["spec"]["initContainers"].insert(0, {"name": "zero", "resources": {"limits": {NPU: 1}}})
    pod = await kubelet.run_pod(document)
    zero, first, main = (set(pod.container(name).devices[NPU]) for name in ("zero", "first", "main"))
    assert zero == first
    assert set() == first & main
    assert pod.container("first").running


async def test_unknown_resource_is_skipped(kubelet):
    """A pod runs without a resource that no plugin serves and that is not in the node status."""
    pod = await kubelet.run_pod(manifest("p", {GPU: 1}))
    assert (Phase.RUNNING, {}) == (pod.phase, pod.container().devices)


async def test_zero_devices(kubelet, plugins):
    """Conformance 42: a request of zero makes no call."""
    plugin = await plugins(NPU, ["d1"], pre_start=True)
    pod = await kubelet.run_pod(manifest("p", {NPU: 0}))
    assert Phase.RUNNING is pod.phase
    assert ["GetDevicePluginOptions", "ListAndWatch"] == plugin.names()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, "FailedPrecondition"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DeadlineExceeded"),
        (grpc.StatusCode.CANCELLED, "Canceled"),
    ],
)
async def test_allocate_error_reaches_the_pod(kubelet, plugins, code, name):
    """An Allocate error fails the pod with the plugin's message; its devices are free again."""
    plugin = await plugins(NPU, ["d1"])
    plugin.failures["Allocate"] = (code, "device d1 is broken: see its manual")
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    text = f"rpc error: code = {name} desc = device d1 is broken: see its manual"
    assert rejected(text) == pod.message
    plugin.failures.clear()
    assert Phase.RUNNING is (await kubelet.run_pod(manifest("q", {NPU: 1}))).phase


async def test_empty_allocate_response(kubelet, plugins):
    """An answer without container responses fails the pod, and its devices stay allocated until something is freed."""
    plugin = await plugins(NPU, ["d1"])

    async def nothing(_request):
        return api.AllocateResponse()

    plugin.answer_allocate = nothing
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert rejected("no containers return in allocation response ") == pod.message
    other = await kubelet.run_pod(manifest("q", {NPU: 1}))
    assert rejected(f"requested number of devices unavailable for {NPU}. Requested: 1, Available: 0") == other.message


async def test_preferred_parameters(kubelet, plugins):
    """The request has the available devices, those that must be included, and the container's total."""
    plugin = await plugins(
        NPU, [device("a0", numa=[0]), device("b0", numa=[1]), device("b1", numa=[1])], preferred=True
    )
    pod = await kubelet.run_pod(manifest("p", {NPU: 2}), numa_affinity=[0])
    (request,) = plugin.requests("GetPreferredAllocation")
    wanted = request.container_requests[0]
    assert ({"a0", "b0", "b1"}, ["a0"], 2) == (
        set(wanted.available_deviceIDs),
        list(wanted.must_include_deviceIDs),
        wanted.allocation_size,
    )
    assert ("a0", "b0") == pod.container().devices[NPU]


async def test_no_preference_when_all_aligned_are_needed(kubelet, plugins):
    """If exactly enough devices are aligned, they are taken without a call."""
    plugin = await plugins(NPU, [device("a0", numa=[0]), device("b0", numa=[1])], preferred=True)
    await kubelet.run_pod(manifest("p", {NPU: 1}), numa_affinity=[0])
    assert [] == plugin.requests("GetPreferredAllocation")


async def test_preferred_is_intersected(kubelet, plugins):
    """Unknown ids in an answer are ignored, missing ones are chosen at random, and both are findings."""
    plugin = await plugins(NPU, ["d1", "d2", "d3", "d4"], preferred=True)

    async def odd(_request):
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=["d4", "bogus", "d3"])
        return api.PreferredAllocationResponse(container_responses=[answer])

    plugin.answer_preferred = odd
    pod = await kubelet.run_pod(manifest("p", {NPU: 2}))
    assert ("d3", "d4") == pod.container().devices[NPU]
    assert {"preferred-bogus-id", "preferred-size"} == {finding.code for finding in kubelet.errors}


async def test_slow_and_hung_allocate(short_dir, plugins):
    """A slow Allocate is a finding; one that exceeds the bound is cancelled and is another."""
    timings = Timings(slow=0.1, bound=1.5)  # the bound is for all calls, so it must be long enough for slow machines
    async with Kubelet(short_dir, clock=ManualClock(), timings=timings) as kubelet:
        plugin = await plugins(NPU, ["d1"], on=kubelet)
        plugin.hold("Allocate")
        pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
        assert Phase.FAILED is pod.phase
        assert ["slow-rpc", "hung-rpc"] == [each.code for each in kubelet.findings if "Allocate" in each.message]


async def test_node_capacity(short_dir):
    """Pods that exceed the node's capacity are rejected with the kubelet's messages."""
    async with Kubelet(short_dir, clock=ManualClock(), capacity={"pods": 1, "cpu": "2"}) as kubelet:
        document = manifest("a")
        document["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2500m"}}
        pod = await kubelet.run_pod(document)
        text = "Node didn't have enough resource: cpu, requested: 2500, used: 0, capacity: 2000"
        assert ("OutOfcpu", f"Pod was rejected: {text}") == (pod.reason, pod.message)
        await kubelet.run_pod(manifest("b"))
        assert "OutOfpods" == (await kubelet.run_pod(manifest("c"))).reason


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kind": "Deployment"}, "expected a v1 Pod, found 'v1' 'Deployment'"),
        ({"metadata": {}}, "metadata.name: expected a name"),
        ({"spec": {}}, "spec.containers: expected at least one container"),
        ({"spec": {"containers": {}}}, "spec.containers: expected at least one container"),
        ({"spec": {"containers": [{"name": "a"}], "resourceClaims": 1}}, "spec.resourceClaims: expected a list, found"),
        (with_resources(claims=True), r"spec.containers\[0\].resources.claims: expected a list, found bool"),
        ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, "container names must be unique"),
        (with_resources(limits={NPU: "500m"}), "0.5 is not a whole number"),
        (with_resources(limits={NPU: "x"}), "'x' is not a quantity"),
        (with_resources(requests={NPU: 1}), "needs a limit"),
        (with_resources(limits={NPU: 2}, requests={NPU: 1}), "must equal the limit"),
    ],
)
async def test_bad_manifest(kubelet, change, text):
    """A manifest that the API server would refuse is an error with its place."""
    with pytest.raises(ManifestError, match=text):
        await kubelet.run_pod({**manifest("p"), **change})


async def test_choice_is_repeatable(short_dir, plugins):
    """The same seed chooses the same devices."""

    async def choose(name, seed):
        async with Kubelet(short_dir / name, seed=seed, clock=ManualClock()) as kubelet:
            await plugins(NPU, [f"d{i}" for i in range(32)], on=kubelet)
            return (await kubelet.run_pod(manifest("p", {NPU: 8}))).container().devices[NPU]

    assert await choose("a", 1) == await choose("b", 1)
    assert await choose("c", 1) != await choose("d", 2)
