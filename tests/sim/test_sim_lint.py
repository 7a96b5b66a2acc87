"""The findings: mistakes of plugins that the real kubelet accepts."""

import ast
from pathlib import Path

from tests.sim.conftest import device
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim import Kubelet, ManualClock, manifest
from vdev.sim import lint as rules
from vdev.sim.device_manager.device_allocation import merge

NPU = "acme.dev/npu"


def codes(findings):
    """The codes of findings, in order."""
    return [finding.code for finding in findings]


def allocated(**parts):
    """The findings of an Allocate answer with one container response made of `parts`."""
    response = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(**parts)])
    return [*rules.allocation(NPU, response)]


def listed(*devices, **more):
    """The findings of a device list."""
    return codes(rules.device_list(NPU, devices, size=more.pop("size", 100), **more))


def spec(permissions="rw", host="/dev/null", container="/dev/null"):
    """A device node of an answer."""
    return api.DeviceSpec(host_path=host, container_path=container, permissions=permissions)


GOOD_ANSWERS = [
    {
        "envs": {"NPU": "d1"},
        "devices": [spec("mrw")],
        "mounts": [api.Mount(host_path="/a", container_path="/a")],
        "annotations": {"acme.dev/npu": "d1"},
        "cdi_devices": [api.CDIDevice(name="acme.dev/npu=d1:0")],
    },
    {"envs": {"A": "x\ny", "B": "", "C": "é"}},
]
# By finding, parts of answers that have it.
BAD_ANSWERS = {
    "error: device-permissions": [
        {"devices": [spec(permissions)]} for permissions in ("", "x", "rr", "rwmx", "rwmr", "RW")
    ],
    "error: relative-path": [
        {"devices": [spec(host="dev/null")]},
        {"devices": [spec(container="null")]},
        {"mounts": [api.Mount(host_path="a", container_path="/a")]},
        {"mounts": [api.Mount(host_path="/a", container_path="")]},
    ],
    "error: duplicate-container-path": [
        {"devices": [spec(), spec(host="/dev/zero")]},
        {"devices": [spec("rw"), spec("r")]},
        {"mounts": [api.Mount(host_path=host, container_path="/a") for host in ("/a", "/b")]},
    ],
    "warning: duplicate-container-path": [
        {"devices": [spec(), spec()]},
        {"mounts": [api.Mount(host_path="/a", container_path="/a")] * 2},
    ],
    "error: env-name": [
        {"envs": {"A": "x\0y"}},
        *({"envs": {name: "1"}} for name in ("", "1A", "A-B", "A B", "A=B", "é")),
    ],
    "error: annotation-key": [{"annotations": {key: "1"}} for key in ("", "a b", "/x", "x/", "-x", "a/" + "x" * 64)],
    "warning: empty-response": [{}],
}


def test_answers(subtests):
    """Answers to Allocate have the findings of the table; good ones have none."""
    rows = [("", parts) for parts in GOOD_ANSWERS]
    rows += [(finding, parts) for finding, bad in BAD_ANSWERS.items() for parts in bad]
    for finding, parts in rows:
        with subtests.test(finding=finding, parts=parts):
            found = [f"{each.severity.value}: {each.code}" for each in allocated(**parts)]
            assert ([finding] if finding else []) == found


def test_cdi_names(subtests):
    """The message names the problem of a CDI name; names that runtimes resolve are accepted."""
    for name in ("acme.dev/npu=0", "k8s.device-plugin.nvidia.com/mig-1g.5gb=MIG-1", "aa/bb=a:b"):
        assert None is rules.cdi_name(name)
    cases = [
        ("d1", "expected vendor/class=device"),
        ("acme.dev=d1", "expected vendor/class=device"),
        ("acme.dev/npu=", "the device name"),
        ("acme.dev/npu=d1::0", "'::'"),
        ("a/npu=d1", "one letter"),
        ("acme.dev/n=d1", "one letter"),
        ("1acme/npu=d1", "start with a letter"),
        ("acme.dev/npu=d 1", "the device name"),
    ]
    for name, hint in cases:
        with subtests.test(name=name):
            assert hint in rules.cdi_name(name)


def test_extra_responses():
    twice = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs={"A": "1"})] * 2)
    assert ["extra-container-responses"] == codes(rules.allocation(NPU, twice))


def test_lists():
    good = device("d1", "Healthy")
    assert [] == listed(good)
    assert ["duplicate-id"] == listed(good, good)
    assert ["duplicate-id-health"] == listed(good, device("d1", "Unhealthy"))
    assert ["id-too-long"] == listed(device("x" * 64, "Healthy"))
    assert ["empty-id"] == listed(device("", "Healthy"))
    assert ["health-text"] == listed(device("d1", "HEALTHY"))
    assert ["numa-negative"] == listed(device("d1", numa=[-1]))
    assert ["held-device-dropped"] == listed(good, held={"d2"})
    assert ["id-in-two-resources"] == listed(good, elsewhere={"d1": "acme.dev/gpu"})
    assert ["list-near-limit"] == listed(good, size=4_000_000)


def test_preferred():
    request = api.ContainerPreferredAllocationRequest(
        available_deviceIDs=["a", "b", "c"], must_include_deviceIDs=["a"], allocation_size=2
    )

    def of(*answers):
        responses = [api.ContainerPreferredAllocationResponse(deviceIDs=ids) for ids in answers]
        return codes(rules.preferred(NPU, request, api.PreferredAllocationResponse(container_responses=responses)))

    assert [] == of(["a", "b"])
    assert ["preferred-empty"] == of()
    assert ["preferred-bogus-id"] == of(["a", "x"])
    assert ["preferred-must-include"] == of(["b", "c"])
    assert ["preferred-size"] == of(["a", "b", "c"])
    assert ["preferred-duplicate"] == of(["a", "a"])
    assert ["extra-container-responses"] == of(["a", "b"], ["a"])


def test_endpoints(subtests):
    """An endpoint is a bare file name, short enough for a socket."""
    cases = [
        ("npu.sock", []),
        ("a/b.sock", ["endpoint-with-slash"]),
        ("", ["endpoint-not-a-file"]),
        ("x" * 100, ["socket-path-too-long"]),
    ]
    for endpoint, expected in cases:
        with subtests.test(endpoint=endpoint):
            request = api.RegisterRequest(resource_name=NPU, endpoint=endpoint)
            assert expected == codes(rules.registration(request, "/var/lib/kubelet/device-plugins", streams_open=0))


def test_options():
    """Options are the same in both places, or only in one."""
    request = api.RegisterRequest(resource_name=NPU)
    assert [] == codes(rules.options(request, api.DevicePluginOptions(pre_start_required=True)))
    request.options.pre_start_required = True
    assert ["options-differ"] == codes(rules.options(request, api.DevicePluginOptions()))


def test_merge_conflicts():
    """The first resource counts, and each conflict is listed; equal values are no conflict."""
    first = api.ContainerAllocateResponse(envs={"A": "1", "B": "x"}, devices=[spec()])
    second = api.ContainerAllocateResponse(envs={"A": "2", "B": "x"}, devices=[spec("r")])
    edits, conflicts = merge([("acme.dev/a", first), ("acme.dev/b", second)])
    assert {"A": "1", "B": "x"} == edits.envs
    assert ["environment variable A", "device /dev/null"] == [text.partition(":")[0] for text in conflicts]


async def test_conflict_in_a_pod(kubelet, plugins):
    """Two resources that set a variable to different values are an error."""
    for resource, id_ in ((NPU, "d1"), ("acme.dev/gpu", "g1")):
        await plugins(resource, [id_])
    await kubelet.run_pod(manifest("p", {NPU: 1, "acme.dev/gpu": 1}))
    assert ["conflict"] == codes(kubelet.errors)


async def test_missing_device_node(short_dir, plugins):
    """With a host root, a missing device node is a warning."""
    (short_dir / "dev").mkdir()
    (short_dir / "dev" / "there").touch()
    async with Kubelet(short_dir / "k", clock=ManualClock(), host_root=short_dir) as kubelet:
        plugin = await plugins(NPU, ["d1"], on=kubelet)

        async def answer(_request):
            nodes = [spec(host=f"/dev/{name}", container=f"/dev/{name}") for name in ("there", "gone")]
            return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(devices=nodes)])

        plugin.answer_allocate = answer
        await kubelet.run_pod(manifest("p", {NPU: 1}))
        assert ["device /dev/gone does not exist on the host"] == [finding.message for finding in kubelet.findings]


async def test_the_list_of_an_earlier_instance_is_no_list(kubelet, plugins):
    """A plugin that registered again and has not sent a list has no ids."""
    old = await plugins(NPU, ["d1"])
    await old.stop()
    await kubelet.wait_until(lambda: not kubelet.listed(), what="the end of the old instance")
    await plugins(NPU, None)
    assert {} == kubelet.listed()
    await plugins("acme.dev/gpu", ["d1"])
    assert [] == kubelet.findings


def _constants(node):
    if isinstance(node, ast.IfExp):
        return _constants(node.body) | _constants(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) else set()


def test_every_code_is_known():
    """The codes in the sources are exactly those of `lint.CODES`."""
    makers = {"error", "warning"}
    calls = [
        call
        for path in Path(rules.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", getattr(call.func, "attr", "")) in makers
    ]
    assert rules.CODES == set().union(*(_constants(call.args[0]) for call in calls))
    listed = (Path(rules.__file__).parents[2] / "docs" / "embedded-kubelet.md").read_text()
    assert set() == {code for code in rules.CODES if f"`{code}`" not in listed}
