"""The health of claimed devices in a pod's status, as the driver's stream reports it."""

import pytest

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly, pod


@pytest.fixture
async def driver(dra):
    """A driver of two healthy devices, which a pod holds."""
    kubelet = dra.kubelet
    await kubelet.objects.create("DeviceClass", device_class("acme.dev"))
    found = await dra(slice_of("acme.dev", [device("gpu-0"), device("gpu-1")]))
    await kubelet.objects.create("ResourceClaim", claim("gpu", exactly(count=2)))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    found.report_health(gpu_0="HEALTHY", gpu_1="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])
    return found


def words(kubelet):
    ((_, health),) = kubelet.pod("one").container().health.items()
    return [health[key] for key in sorted(health)]


async def test_health_and_message(kubelet, driver):
    driver.report_health(gpu_0="HEALTHY", gpu_1="UNHEALTHY: too hot")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Unhealthy"])
    (row,) = kubelet.pod("one").container().allocated_resources_status
    assert "too hot" == row["resources"][1]["message"]
    driver.report_health(gpu_0="UNKNOWN", gpu_1="UNHEALTHY: still")
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unhealthy"])


async def test_a_device_that_a_message_leaves_out(kubelet, clock, driver):
    """It keeps its health until its timeout; the next message after that updates the pod."""
    driver.report_health(gpu_0="UNHEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Unhealthy", "Healthy"])
    clock.advance(31)
    driver.report_health(gpu_0="UNHEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Unhealthy", "Unknown"])


async def test_a_timeout(kubelet, clock, driver):
    """The device is Unknown, by default after 30 s. A pod shows it when the kubelet looks at it again."""
    clock.advance(31)
    await kubelet.run_pod(pod("other"))
    assert ["Healthy", "Healthy"] == words(kubelet)
    clock.advance(60)
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unknown"])


async def test_a_stream_that_is_opened_again(kubelet, clock, driver):
    """The kubelet opens it again after five seconds."""
    driver.health = {"gpu-0": "UNHEALTHY", "gpu-1": "HEALTHY"}
    driver.end_streams()

    def heard():
        clock.advance(5)  # by when it has seen the end of the first
        return words(kubelet) == ["Unhealthy", "Healthy"]

    await kubelet.wait_until(heard)


async def test_init_containers_and_sidecars_have_no_health(kubelet, driver):
    """The kubelet writes it only into `containerStatuses`."""
    both = pod("two", claims=["gpu"])
    uses = both["spec"]["containers"][0]["resources"]
    sidecar = {"name": "side", "image": "none", "restartPolicy": "Always", "resources": uses}
    both["spec"]["initContainers"] = [{"name": "first", "image": "none", "resources": uses}, sidecar]
    found = await kubelet.run_pod(both)
    assert {"first": False, "side": False, "main": True} == {each.name: bool(each.health) for each in found.containers}
    assert {("gpu",)} == {tuple(each.claims) for each in found.containers}


async def test_a_driver_without_a_health_stream(kubelet, dra):
    """A kubelet of 1.36 opens it anyway, and logs an error every time."""

    def found():
        return [each.code for each in kubelet.findings]

    from tests.kit.dra_driver import DraDriver

    driver = DraDriver(kubelet.root, kubelet.objects, kubelet.root / "cdi", driver="mute.dev")
    driver.serves_health = False
    try:
        await driver.start()
        await kubelet.wait_until(lambda: "health-unserved" in found())
    finally:
        await driver.stop()
