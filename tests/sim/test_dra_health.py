"""The health of claimed devices in a pod's status, as the driver's stream says it."""

import pytest

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly, pod


@pytest.fixture
async def driver(dra):
    """A driver of two devices, which a pod has."""
    kubelet = dra.kubelet
    await kubelet.objects.create("DeviceClass", device_class("acme.dev"))
    found = await dra(slice_of("acme.dev", [device("gpu-0"), device("gpu-1")]))
    await kubelet.objects.create("ResourceClaim", claim("gpu", exactly(count=2)))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    return found


def words(kubelet):
    ((_, health),) = kubelet.pod("one").container().health.items()
    return [health[key] for key in sorted(health)]


async def test_devices_that_nobody_speaks_of_are_unknown(kubelet, driver):
    """By the name of the claim in the pod; the id is the first CDI name."""
    (row,) = kubelet.pod("one").container().allocated_resources_status
    assert "claim:gpu" == row["name"]
    assert ["Unknown", "Unknown"] == [each["health"] for each in row["resources"]]
    assert all(each["resourceID"].startswith("k8s.acme.dev/claim=") for each in row["resources"])


async def test_a_word_and_its_message(kubelet, driver):
    """A message that is too long is cut."""
    driver.say(gpu_0="HEALTHY", gpu_1="UNHEALTHY: " + "x" * 2000)
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Unhealthy"])
    (row,) = kubelet.pod("one").container().allocated_resources_status
    assert "x" * 1021 + "..." == row["resources"][1]["message"]
    driver.say(gpu_0="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Unknown"])


async def test_a_device_not_heard_of_becomes_unknown(kubelet, clock, driver):
    """After its time-out, 30 s by default."""
    driver.say(gpu_0="HEALTHY", gpu_1="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])
    clock.advance(29)
    assert ["Healthy", "Healthy"] == words(kubelet)
    clock.advance(2)
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unknown"])


async def test_the_end_of_the_stream_clears_it(kubelet, clock, driver):
    """The kubelet asks again after five seconds."""
    driver.say(gpu_0="HEALTHY", gpu_1="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])
    driver.end_streams()
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unknown"])
    clock.advance(5)
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])


async def test_a_driver_that_unregisters_is_heard_no_more(kubelet, clock, driver):
    """Its stream ends with it, and with that what it said, which would have held for an hour."""
    driver.timeout = 3600
    driver.say(gpu_0="HEALTHY", gpu_1="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])
    driver.registration_socket.unlink()
    clock.advance(1)
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unknown"])


async def test_containers_before_the_others_have_no_health(kubelet, driver):
    """The kubelet writes it into `containerStatuses` alone, which sidecars and init containers are not in."""
    driver.say(gpu_0="HEALTHY", gpu_1="HEALTHY")
    both = pod("two", claims=["gpu"])
    uses = both["spec"]["containers"][0]["resources"]
    sidecar = {"name": "side", "image": "none", "restartPolicy": "Always", "resources": uses}
    both["spec"]["initContainers"] = [{"name": "first", "image": "none", "resources": uses}, sidecar]
    found = await kubelet.run_pod(both)
    assert {"first": False, "side": False, "main": True} == {each.name: bool(each.health) for each in found.containers}
    assert {("gpu",)} == {tuple(each.claims) for each in found.containers}


async def test_a_driver_without_a_health_stream(kubelet, dra):
    """A kubelet of 1.36 asks all the same, and logs an error every time."""

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
