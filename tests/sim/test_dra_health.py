"""The health of claimed devices in a pod's status, as the driver's stream reports it."""

import pytest

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly, pod


@pytest.fixture
async def driver(dra):
    """A driver of two devices, which a pod holds."""
    kubelet = dra.kubelet
    await kubelet.objects.create("DeviceClass", device_class("acme.dev"))
    found = await dra(slice_of("acme.dev", [device("gpu-0"), device("gpu-1")]))
    await kubelet.objects.create("ResourceClaim", claim("gpu", exactly(count=2)))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    return found


def words(kubelet):
    ((_, health),) = kubelet.pod("one").container().health.items()
    return [health[key] for key in sorted(health)]


async def test_devices_without_a_report_are_unknown(kubelet, driver):
    """They are shown by the name of the claim in the pod; the id is the first CDI name."""
    (row,) = kubelet.pod("one").container().allocated_resources_status
    assert "claim:gpu" == row["name"]
    assert ["Unknown", "Unknown"] == [each["health"] for each in row["resources"]]
    assert all(each["resourceID"].startswith("k8s.acme.dev/claim=") for each in row["resources"])


async def test_health_and_message(kubelet, driver):
    """A long message is shortened."""
    driver.say(gpu_0="HEALTHY", gpu_1="UNHEALTHY: " + "x" * 2000)
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Unhealthy"])
    (row,) = kubelet.pod("one").container().allocated_resources_status
    assert "x" * 1021 + "..." == row["resources"][1]["message"]
    driver.say(gpu_0="UNKNOWN", gpu_1="UNHEALTHY: still")
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unhealthy"])


async def test_a_device_that_a_message_leaves_out(kubelet, clock, driver):
    """It keeps its health until its timeout; the next message after that updates the pod."""
    driver.say(gpu_0="HEALTHY", gpu_1="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])
    driver.say(gpu_0="UNHEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Unhealthy", "Healthy"])
    clock.advance(31)
    driver.say(gpu_0="UNHEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Unhealthy", "Unknown"])


async def test_a_driver_that_unregisters(kubelet, clock, driver):
    """Its reports no longer count. Pods show it when the kubelet looks at them again."""
    driver.timeout = 3600
    driver.say(gpu_0="HEALTHY", gpu_1="HEALTHY")
    await kubelet.wait_until(lambda: words(kubelet) == ["Healthy", "Healthy"])
    driver.registration_socket.unlink()
    clock.advance(1)
    await kubelet.wait_until(lambda: not kubelet.drivers())
    assert ["Healthy", "Healthy"] == words(kubelet)
    clock.advance(60)
    await kubelet.wait_until(lambda: words(kubelet) == ["Unknown", "Unknown"])


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
