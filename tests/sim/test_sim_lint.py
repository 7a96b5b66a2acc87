"""What the real kubelet lets pass and the embedded one reports."""

import ast
from pathlib import Path

import pytest

from vdev.cli import main
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.sim import Kubelet, ManualClock, manifest
from vdev.sim import lint as rules
from vdev.sim.objects.container_edits import merge
from vdev.sim.objects.node_devices import Device

NPU = "acme.dev/npu"


def codes(findings):
    """The codes of findings, in order."""
    return [finding.code for finding in findings]


def allocated(**parts):
    """The findings of an Allocate answer with one container response made of `parts`."""
    response = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(**parts)])
    return codes(rules.allocation(NPU, response))


def listed(*devices, **more):
    """The findings of a device list."""
    return codes(rules.device_list(NPU, devices, size=more.pop("size", 100), **more))


def spec(permissions="rw", host="/dev/null", container="/dev/null"):
    """A device node of an answer."""
    return api.DeviceSpec(host_path=host, container_path=container, permissions=permissions)


def test_good_answer():
    """An answer without mistakes has no findings."""
    assert [] == allocated(
        envs={"NPU": "d1"},
        devices=[spec("mrw")],
        mounts=[api.Mount(host_path="/a", container_path="/a")],
        annotations={"acme.dev/npu": "d1"},
        cdi_devices=[api.CDIDevice(name="acme.dev/npu=d1:0")],
    )


@pytest.mark.parametrize("permissions", ["", "x", "rr", "rwmx", "rwmr", "RW"])
def test_permissions(permissions):
    """Permissions are a combination of r, w and m, each at most once, and never none."""
    assert ["device-permissions"] == allocated(devices=[spec(permissions)])


@pytest.mark.parametrize(
    "parts",
    [
        {"devices": [spec(host="dev/null")]},
        {"devices": [spec(container="null")]},
        {"mounts": [api.Mount(host_path="a", container_path="/a")]},
        {"mounts": [api.Mount(host_path="/a", container_path="")]},
    ],
)
def test_relative_paths(parts):
    """Host and container paths are absolute."""
    assert ["relative-path"] == allocated(**parts)


@pytest.mark.parametrize(
    ("severity", "parts"),
    [
        ("error", {"devices": [spec(), spec(host="/dev/zero")]}),
        ("error", {"devices": [spec("rw"), spec("r")]}),
        ("error", {"mounts": [api.Mount(host_path=host, container_path="/a") for host in ("/a", "/b")]}),
        ("warning", {"devices": [spec(), spec()]}),
        ("warning", {"mounts": [api.Mount(host_path="/a", container_path="/a")] * 2}),
    ],
)
def test_duplicate_container_paths(severity, parts):
    """Two devices or two mounts at one place of the container are a mistake; a repeated one is dropped without harm."""
    response = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(**parts)])
    (found,) = rules.allocation(NPU, response)
    assert ("duplicate-container-path", severity) == (found.code, found.severity.value)


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "é"])
def test_env_names(name):
    """Environment variables have the name of a C identifier."""
    assert ["env-name"] == allocated(envs={name: "1"})


def test_env_values():
    """The runtime starts no container with a NUL byte; other odd characters it takes."""
    assert ["env-name"] == allocated(envs={"A": "x\0y"})
    assert [] == allocated(envs={"A": "x\ny", "B": "", "C": "é"})


@pytest.mark.parametrize("key", ["", "a b", "/x", "x/", "-x", "a/" + "x" * 64])
def test_annotation_keys(key):
    """Annotation keys are qualified names."""
    assert ["annotation-key"] == allocated(annotations={key: "1"})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("d1", "expected vendor/class=device"),
        ("acme.dev=d1", "expected vendor/class=device"),
        ("acme.dev/npu=", "the device name"),
        ("acme.dev/npu=d1::0", "'::'"),
        ("a/npu=d1", "one letter"),
        ("acme.dev/n=d1", "one letter"),
        ("1acme/npu=d1", "start with a letter"),
        ("acme.dev/npu=d 1", "the device name"),
    ],
)
def test_cdi_names(name, hint):
    """Each way in which a CDI name is wrong is named."""
    assert hint in rules.cdi_name(name)


@pytest.mark.parametrize("name", ["acme.dev/npu=0", "k8s.device-plugin.nvidia.com/mig-1g.5gb=MIG-1", "aa/bb=a:b"])
def test_good_cdi_names(name):
    """Names that runtimes resolve are fine."""
    assert None is rules.cdi_name(name)


def test_empty_and_extra_responses():
    """An answer with nothing in it, and one with too much."""
    assert ["empty-response"] == allocated()
    twice = api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(envs={"A": "1"})] * 2)
    assert ["extra-container-responses"] == codes(rules.allocation(NPU, twice))


def test_lists():
    """What can be wrong with a device list."""
    good = Device("d1", "Healthy")
    assert [] == listed(good)
    assert ["duplicate-id"] == listed(good, good)
    assert ["duplicate-id-health"] == listed(good, Device("d1", "Unhealthy"))
    assert ["id-too-long"] == listed(Device("x" * 64, "Healthy"))
    assert ["empty-id"] == listed(Device("", "Healthy"))
    assert ["health-text"] == listed(Device("d1", "HEALTHY"))
    assert ["numa-negative"] == listed(Device("d1", "Healthy", (-1,)))
    assert ["held-device-dropped"] == listed(good, held={"d2"})
    assert ["id-in-two-resources"] == listed(good, elsewhere={"d1": "acme.dev/gpu"})
    assert ["list-near-limit"] == listed(good, size=4_000_000)


def test_preferred():
    """What can be wrong with a preferred allocation."""
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


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("npu.sock", []),
        ("a/b.sock", ["endpoint-with-slash"]),
        ("", ["endpoint-not-a-file"]),
        ("x" * 100, ["socket-path-too-long"]),
    ],
)
def test_endpoints(endpoint, expected):
    """An endpoint is a bare file name, short enough for a socket."""
    request = api.RegisterRequest(resource_name=NPU, endpoint=endpoint)
    assert expected == codes(rules.registration(request, "/var/lib/kubelet/device-plugins", streams_open=0))


def test_registration_while_streaming():
    """Registering while a stream is open is what kills the new connection in 1.36."""
    request = api.RegisterRequest(resource_name=NPU, endpoint="e")
    assert ["registered-while-streaming"] == codes(rules.registration(request, "/d", streams_open=1))


def test_options():
    """Options are said alike in both places, or in one only."""
    request = api.RegisterRequest(resource_name=NPU)
    assert [] == codes(rules.options(request, api.DevicePluginOptions(pre_start_required=True)))
    request.options.pre_start_required = True
    assert ["options-differ"] == codes(rules.options(request, api.DevicePluginOptions()))


def test_merge_conflicts():
    """The first resource wins, and each conflict is named; equal values are none."""
    first = api.ContainerAllocateResponse(envs={"A": "1", "B": "x"}, devices=[spec()])
    second = api.ContainerAllocateResponse(envs={"A": "2", "B": "x"}, devices=[spec("r")])
    edits = merge([("acme.dev/a", first), ("acme.dev/b", second)])
    assert {"A": "1", "B": "x"} == edits.envs
    assert ["environment variable A", "device /dev/null"] == [text.partition(":")[0] for text in edits.conflicts]


async def test_conflict_in_a_pod(kubelet, plugins):
    """Two resources that set one variable differently are an error finding on the pod."""
    for resource, id_ in ((NPU, "d1"), ("acme.dev/gpu", "g1")):
        await plugins(resource, [id_])
    await kubelet.run_pod(manifest("p", {NPU: 1, "acme.dev/gpu": 1}))
    assert ["conflict"] == codes(kubelet.errors)


async def test_missing_device_node(short_dir, plugin_class):
    """With a host root, a device node that is not there is a warning."""
    (short_dir / "dev").mkdir()
    (short_dir / "dev" / "there").touch()
    async with Kubelet(short_dir / "k", clock=ManualClock(), host_root=short_dir) as kubelet:
        plugin = await (await plugin_class(kubelet, NPU, ["d1"]).serve()).register()
        await kubelet.wait_until(lambda: kubelet.devices().capacity)

        async def answer(_request):
            nodes = [spec(host=f"/dev/{name}", container=f"/dev/{name}") for name in ("there", "gone")]
            return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse(devices=nodes)])

        plugin.answer_allocate = answer
        await kubelet.run_pod(manifest("p", {NPU: 1}))
        assert ["device /dev/gone does not exist on the host"] == [finding.message for finding in kubelet.findings]
        await plugin.stop()


async def test_same_id_in_two_resources(kubelet, plugins):
    """An id that another resource lists too is found."""
    await plugins(NPU, ["d1"])
    await plugins("acme.dev/gpu", ["d1"])
    assert ["id-in-two-resources"] == codes(kubelet.findings)


async def test_the_list_of_an_earlier_instance_is_no_list(kubelet, plugins):
    """A plugin that has registered again and not listed yet lists nothing: an id may have moved meanwhile."""
    old = await plugins(NPU, ["d1"])
    await old.stop()
    await kubelet.wait_until(lambda: not kubelet.listed(), what="the end of the old instance")
    await plugins(NPU, None)
    assert {} == kubelet.listed()
    await plugins("acme.dev/gpu", ["d1"])
    assert [] == kubelet.findings


def _constants(node):
    """The texts that an expression can be."""
    if isinstance(node, ast.IfExp):
        return _constants(node.body) | _constants(node.orelse)
    return {node.value} if isinstance(node, ast.Constant) else set()


def test_every_code_is_known():
    """The codes of all findings that the embedded kubelet makes, and no others, are those that may be named."""
    calls = [
        call
        for path in Path(rules.__file__).parent.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"error", "warning", "Finding", "Problem"}
    ]
    assert rules.CODES == set().union(*(_constants(call.args[0]) for call in calls))
    listed = (Path(rules.__file__).parents[2] / "docs" / "embedded-kubelet.md").read_text()
    assert set() == {code for code in rules.CODES if f"`{code}`" not in listed}


@pytest.mark.parametrize(
    ("code", "hint"), [("held-device-droped", "did you mean 'held-device-dropped'?"), ("zzz", "the codes are ")]
)
def test_a_code_that_is_none_is_refused(code, hint, capsys):
    """Else a misspelt one would let everything count as before, or nothing be checked."""
    assert 2 == main(["sim", "--exec", "true", "--allow", "panic", "--allow", code])
    assert f"vdev: --allow: there is no finding {code!r}; {hint}" in capsys.readouterr().err
