"""Claims on the embedded kubelet: allocated, prepared once, shown, and unprepared after the last pod."""

import asyncio
import re

import grpc
import pytest

from tests.kit.dra_driver import RefusalError, device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly, pod, template
from tests.sim.conftest import shows
from vdev.pb import dra_v1_pb2 as v1
from vdev.pb import podresources_v1_pb2 as podresources
from vdev.pb import podresources_v1_pb2_grpc as podresources_grpc
from vdev.sim import Phase

DEVICES = [device("gpu-0"), device("gpu-1")]


async def add(kubelet, *documents):
    for each in documents:
        await kubelet.objects.create(each["kind"], each)


@pytest.fixture
async def driver(dra):
    """A driver of two devices, and their class."""
    await add(dra.kubelet, device_class("acme.dev"))
    return await dra(slice_of("acme.dev", DEVICES))


async def test_a_claim_from_a_template(kubelet, driver):
    """The container gets its device. The claim is deleted with the pod, and the device is free."""
    await add(kubelet, template("gpu"))
    first = await kubelet.run_pod(pod("one", templates=["gpu"]))
    assert Phase.RUNNING is first.phase
    assert {"gpu": ("acme.dev/sim-node/gpu-0",)} == dict(first.container().claims)
    assert {"DRA_MAIN": "gpu-0"} == dict(first.container().edits.envs)
    assert ["/dev/gpu-0"] == [each.container_path for each in first.container().edits.devices]
    (made,) = await kubelet.objects.list("ResourceClaim")
    assert made["metadata"]["name"].startswith("one-gpu-")
    assert [{"resource": "pods", "name": "one", "uid": first.uid}] == made["status"]["reservedFor"]

    await kubelet.delete_pod("one")
    assert [] == await kubelet.objects.list("ResourceClaim")
    assert [[made["metadata"]["name"]]] == driver.asked("NodeUnprepareResources")
    assert {} == driver.prepared()
    assert [] == kubelet.errors


async def test_a_shared_claim_is_prepared_once_and_unprepared_after_the_last_pod(kubelet, driver):
    """Two pods use one device."""
    await add(kubelet, claim("shared"))
    await kubelet.run_pod(pod("one", claims=["shared"]))
    second = await kubelet.run_pod(pod("two", claims=["shared"]))
    assert {"shared": ("acme.dev/sim-node/gpu-0",)} == dict(second.container().claims)
    assert [["shared"]] == driver.asked("NodePrepareResources")
    await kubelet.delete_pod("one")
    assert [] == driver.asked("NodeUnprepareResources")
    await kubelet.finish_pod("two")
    assert [["shared"]] == driver.asked("NodeUnprepareResources")
    assert {} == (await kubelet.objects.get("ResourceClaim", "shared", "default"))["status"]


async def test_a_pod_waits_for_a_device(kubelet, driver):
    """It is bound when another pod ends, and shows the reason until then."""
    await add(kubelet, template("gpu", exactly(count=2)), claim("later"))
    await kubelet.run_pod(pod("one", templates=["gpu"]))
    waiting = await kubelet.run_pod(pod("two", claims=["later"]))
    assert (Phase.PENDING, "Unschedulable") == (waiting.phase, waiting.reason)
    assert "0/1 nodes are available: cannot allocate all claims." == waiting.message
    await kubelet.delete_pod("one")
    await kubelet.wait_until(lambda: kubelet.pod("two").phase is Phase.RUNNING)


async def test_all_claims_of_a_pod_are_prepared_in_one_call(kubelet, driver):
    """There is one call per driver and pod. Each container gets its own claims."""
    await add(kubelet, claim("a"), claim("b"))
    uses = {"main": [{"name": "a"}], "side": [{"name": "b", "request": "main"}]}
    found = await kubelet.run_pod(pod("one", claims=["a", "b"], containers=uses))
    assert [["a", "b"]] == driver.asked("NodePrepareResources")
    assert "gpu-0" == found.container("main").edits.envs["DRA_MAIN"]
    assert "gpu-1" == found.container("side").edits.envs["DRA_MAIN"]
    names = [each["name"] for each in found.container("side").allocated_resources_status]
    assert ["claim:b/main"] == names


def failing(text):
    async def answer(_claim):
        return v1.NodePrepareResourceResponse(error=text)

    return answer


async def refuses(_request):
    raise RefusalError(grpc.StatusCode.INTERNAL, "no")


async def skips(_request):
    return v1.NodePrepareResourcesResponse()


async def invents(_request):
    return v1.NodePrepareResourcesResponse(claims={"other": v1.NodePrepareResourceResponse()})


@pytest.mark.parametrize(
    ("attribute", "answer", "text", "code"),
    [
        ("prepare_claim", failing("broken"), "NodePrepareResources failed for ResourceClaim gpu: broken", ""),
        ("answer_prepare", refuses, "NodePrepareResources: rpc error: code = Internal desc = no", ""),
        ("answer_prepare", skips, "NodePrepareResources skipped 1 ResourceClaims", "claim-skipped"),
        (
            "answer_prepare",
            invents,
            "NodePrepareResources returned result for unknown claim UID other",
            "claim-unknown",
        ),
    ],
)
async def test_a_failed_prepare_is_tried_again(kubelet, clock, driver, attribute, answer, text, code):
    """The pod shows the kubelet's text, and runs when the driver answers correctly."""
    await add(kubelet, claim("gpu"))
    sound = getattr(driver, attribute)
    setattr(driver, attribute, answer)
    found = await kubelet.run_pod(pod("one", claims=["gpu"]))
    assert (Phase.PENDING, "ContainerCreating") == (found.phase, found.container().waiting)
    assert "FailedPrepareDynamicResources" == kubelet.events[-1].reason
    message = f"Failed to prepare dynamic resources: prepare dynamic resources: {text}"
    assert message == kubelet.events[-1].message
    assert not code or code in [each.code for each in kubelet.errors]
    setattr(driver, attribute, sound)
    clock.advance(10)
    await kubelet.wait_until(lambda: kubelet.pod("one").phase is Phase.RUNNING)


def hold(driver):
    """Let NodePrepareResources wait until the event is set."""
    release = asyncio.Event()

    async def hangs(_request):
        await release.wait()
        return v1.NodePrepareResourcesResponse()

    driver.answer_prepare = hangs
    return release


async def test_prepare_has_a_deadline(kubelet_of, dra_on, driver_slices):
    """The kubelet waits 45 s for a driver, in this test less."""
    async with kubelet_of(prepare=0.2) as kubelet:
        driver = await dra_on(kubelet, *driver_slices)
        release = hold(driver)
        await add(kubelet, device_class("acme.dev"), claim("gpu"))
        await kubelet.run_pod(pod("one", claims=["gpu"]))
        assert "NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded" in (
            kubelet.events[-1].message
        )
        release.set()


async def test_a_prepare_is_tried_again_if_its_driver_registers_again(kubelet, clock, driver):
    """The connection of the call is closed."""
    sound = driver.answer_prepare
    release = hold(driver)
    await add(kubelet, claim("gpu"))
    creating = asyncio.create_task(kubelet.run_pod(pod("one", claims=["gpu"])))
    await kubelet.wait_until(lambda: driver.asked("NodePrepareResources"))
    driver.answer_prepare = sound
    await driver.register()
    clock.advance(1)
    assert Phase.PENDING is (await creating).phase
    text = "NodePrepareResources: rpc error: code = Canceled desc = grpc: the client connection is closing"
    assert text in kubelet.events[-1].message
    await kubelet.wait_until(lambda: driver.statuses[1:])
    release.set()
    clock.advance(10)
    await kubelet.wait_until(lambda: kubelet.pod("one").phase is Phase.RUNNING)


async def test_a_driver_that_hangs_does_not_delay_other_pods(kubelet, dra, driver):
    """Each pod has its own worker."""
    pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python, which evaluates selectors, is not installed")
    release = hold(driver)
    only_other = device_class("other", "device.driver == 'other.dev'")
    only_acme = device_class("acme", "device.driver == 'acme.dev'")
    await dra(slice_of("other.dev", [device("x")]), driver="other.dev")
    await add(kubelet, only_other, only_acme, claim("slow", exactly("acme")), claim("quick", exactly("other")))
    slow = asyncio.create_task(kubelet.run_pod(pod("slow", claims=["slow"])))
    await kubelet.wait_until(lambda: driver.asked("NodePrepareResources"))
    assert Phase.RUNNING is (await kubelet.run_pod(pod("quick", claims=["quick"]))).phase
    release.set()
    assert Phase.PENDING is (await slow).phase


async def test_unprepare_follows_a_failed_prepare(kubelet, driver):
    """The driver may have prepared a part."""
    driver.prepare_claim = failing("broken")
    await add(kubelet, claim("gpu"))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    await kubelet.delete_pod("one")
    assert [["gpu"]] == driver.asked("NodeUnprepareResources")
    assert [] == kubelet.pods()


async def test_an_unregistered_driver(kubelet):
    """The pod waits, and can be deleted. Other pods run."""
    await add(kubelet, device_class("acme.dev"), claim("gpu"), slice_of("acme.dev", DEVICES, name="static"))
    found = await kubelet.run_pod(pod("one", claims=["gpu"]))
    assert "ContainerCreating" == found.container().waiting
    assert "DRA driver acme.dev is not registered" in kubelet.events[-1].message
    assert Phase.RUNNING is (await kubelet.run_pod(pod("other"))).phase
    await kubelet.delete_pod("one")
    assert ["other"] == [each.name for each in kubelet.pods()]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (None, "fetch ResourceClaim gpu: "),
        ({}, r"pod one \(u1\) is not allowed to use ResourceClaim gpu \(.*\)"),
        ({"reservedFor": [{"uid": "u1", "name": "one", "resource": "pods"}]}, "ResourceClaim gpu: not allocated"),
    ],
)
async def test_a_pod_that_names_its_node_gets_no_allocation(kubelet, driver, status, text):
    """The kubelet refuses a claim that does not exist, is not allocated, or not reserved for the pod."""
    if status is not None:
        await add(kubelet, {**claim("gpu"), "status": status})
    await kubelet.run_pod(pod("one", claims=["gpu"], node="sim-node", uid="u1"))
    assert re.search(text, kubelet.events[-1].message)
    assert [] == driver.asked("NodePrepareResources")


async def test_a_failed_unprepare_keeps_the_pod_terminating(kubelet, clock, driver):
    """The pod is deleted when a later call succeeds."""
    await add(kubelet, claim("gpu"))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    sound = driver.unprepare_claim

    async def fails(_claim):
        return v1.NodeUnprepareResourceResponse(error="busy")

    driver.unprepare_claim = fails
    await kubelet.delete_pod("one")
    found = kubelet.pod("one")
    assert found.terminating
    assert "unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim gpu: busy" == found.message
    driver.unprepare_claim = sound
    clock.advance(10)
    await kubelet.wait_until(lambda: not kubelet.pods())


async def test_a_kubelet_restart_prepares_nothing_again(kubelet, driver):
    """It deletes the slices, finds the driver, and reads the prepared claims from its file."""
    await add(kubelet, claim("gpu"))
    first = await kubelet.run_pod(pod("one", claims=["gpu"]))
    await kubelet.restart()
    await kubelet.wait_until(lambda: driver.statuses[1:], what="a second registration")
    await kubelet.wait_until(lambda: kubelet.pod("one").container().claims == first.container().claims)
    assert [["gpu"]] == driver.asked("NodePrepareResources")
    await kubelet.delete_pod("one")
    assert [["gpu"]] == driver.asked("NodeUnprepareResources")


async def test_a_reboot_prepares_again(kubelet, clock, driver):
    """After a reboot no container runs and CDI files in memory are lost, although the kubelet's file has the claim."""
    await add(kubelet, claim("gpu"))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    await kubelet.power_off()
    for each in driver.cdi_dir.iterdir():
        each.unlink()
    await kubelet.start(readmit=False)
    await kubelet.wait_until(lambda: driver.statuses[1:] and kubelet.drivers()["acme.dev"][0].connected)
    await kubelet.readmit()
    assert [["gpu"], ["gpu"]] == driver.asked("NodePrepareResources")
    assert "gpu-0" == kubelet.pod("one").container().edits.envs["DRA_MAIN"]


async def test_a_rejected_pod_releases_its_claims(kubelet, driver, plugins):
    """Another pod gets the device."""
    await plugins("acme.dev/npu", ["d1"])
    await shows(kubelet, "acme.dev/npu", 1)
    await add(kubelet, template("gpu"))
    rejected = await kubelet.run_pod(pod("one", templates=["gpu"], limits={"acme.dev/npu": 2}))
    assert Phase.FAILED is rejected.phase
    assert len(DEVICES) == len([await kubelet.run_pod(pod(each["name"], templates=["gpu"])) for each in DEVICES])
    await kubelet.wait_until(lambda: all(kubelet.pod(each["name"]).phase is Phase.RUNNING for each in DEVICES))
    assert [] == [each for names in driver.asked("NodePrepareResources") for each in names if each.startswith("one-")]


async def test_a_force_deleted_pod_while_the_kubelet_is_down(kubelet, clock, driver):
    """Its claim stays prepared. A new claim with its name must wait until the kubelet has noticed."""
    await add(kubelet, claim("gpu"))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    await kubelet.stop()
    await kubelet.delete_pod("one", force=True)
    await kubelet.objects.delete("ResourceClaim", "gpu", "default")
    await add(kubelet, claim("gpu"))
    await kubelet.start()
    await kubelet.wait_until(kubelet.drivers)
    await kubelet.run_pod(pod("two", claims=["gpu"]))
    await kubelet.wait_until(lambda: kubelet.events)
    assert "old ResourceClaim with same name gpu and different UID" in kubelet.events[-1].message
    clock.advance(60)
    await kubelet.wait_until(lambda: driver.asked("NodeUnprepareResources"))
    clock.advance(10)
    await kubelet.wait_until(lambda: kubelet.pod("two").phase is Phase.RUNNING)


async def test_podresources_names_all_devices_of_a_claim(kubelet, driver):
    """The real kubelet also ignores the container's request, and repeats the CDI names of earlier devices."""
    await add(kubelet, claim("two", exactly(name="first"), exactly(name="second")))
    first, second = ({"name": "two", "request": name} for name in ("first", "second"))
    claims = {"one": [first], "both": [first, second], "none": []}
    await kubelet.run_pod(pod("p", claims=["two"], containers=claims))
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}") as channel:
        answer = await podresources_grpc.PodResourcesListerStub(channel).List(podresources.ListPodResourcesRequest())
    found = {each.name: each.dynamic_resources for each in answer.pod_resources[0].containers}
    assert not found["none"]
    for name in ("one", "both"):
        (listed,) = found[name]
        assert ("two", "default") == (listed.claim_name, listed.claim_namespace)
        rows = listed.claim_resources
        assert {("acme.dev", "sim-node")} == {(each.driver_name, each.pool_name) for each in rows}
        assert ["gpu-0", "gpu-1"] == [each.device_name for each in rows]
        first, second = ([each.name for each in row.cdi_devices] for row in rows)
        assert first == second[: len(first)] != second


async def test_an_extended_resource_of_a_class(kubelet, dra, plugins):
    """DRA serves a pod with a limit and no claim, unless a device plugin has the resource."""
    await add(kubelet, device_class("acme.dev", extendedResourceName="acme.dev/gpu"))
    driver = await dra(slice_of("acme.dev", DEVICES))
    found = await kubelet.run_pod(pod("one", limits={"acme.dev/gpu": "2"}))
    assert Phase.RUNNING is found.phase
    assert "gpu-0,gpu-1" == found.container().edits.envs["DRA_CONTAINER_0_REQUEST_0"]
    assert [] == found.container().allocated_resources_status
    (made,) = await kubelet.objects.list("ResourceClaim")
    assert made["metadata"]["name"].startswith("one-extended-resources-")
    assert "container-0-request-0" == made["spec"]["devices"]["requests"][0]["name"]
    await kubelet.delete_pod("one")
    assert [] == await kubelet.objects.list("ResourceClaim")

    await plugins("acme.dev/gpu", ["d1"])  # from now on the device plugin wins on this node
    await kubelet.run_pod(pod("two", limits={"acme.dev/gpu": "1"}))
    assert {"acme.dev/gpu": ("d1",)} == dict(kubelet.pod("two").container().devices)
    assert 1 == len(driver.asked("NodePrepareResources"))
