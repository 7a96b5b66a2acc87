"""The driver writes the status of its devices into claims, by server-side apply."""

import pytest

from tests.kit import dra
from vdev.model.device import Health

DRIVER = "gpu.acme.dev"


def health(**reasons):
    """The health of the devices gpu-0 to gpu-2; a reason makes one unhealthy."""
    names = [f"gpu-{number}" for number in range(3)]
    given = {name: reasons.get(name.replace("-", "_"), "") for name in names}
    return {name: Health(healthy=not reason, reason=reason) for name, reason in given.items()}


@pytest.fixture
def devices(api_server):
    """Read the devices in a claim's status."""

    def look(name):
        return (api_server.object("resourceclaims", name, "default").get("status") or {}).get("devices") or []

    return look


def ready(device):
    """The status, reason and message of the condition Ready."""
    (condition,) = device["conditions"]
    return condition["type"], condition["status"], condition["reason"], condition["message"]


async def test_a_prepared_device_is_ready(api, start_driver, kubelet, allocate, devices):
    """Its status has its id, and is removed at unprepare."""
    running = await start_driver(api)
    running.publish(health())
    called = await kubelet.register()
    claim = await allocate("c", ("r", "gpu-0"), ("r", "gpu-1"))
    await called.prepare(claim)
    await running.until(lambda: devices("c"))
    assert [("gpu-0", {"id": "GPU-0"}), ("gpu-1", {"id": "GPU-1"})] == [
        (each["device"], each["data"]) for each in devices("c")
    ]
    assert [("Ready", "True", "Prepared", "")] * 2 == [ready(each) for each in devices("c")]
    await called.unprepare(claim)
    await running.until(lambda: not devices("c"))


async def test_ignored_configuration_is_in_the_status(api, start_driver, kubelet, allocate, devices):
    """It is named by API version and kind."""
    running = await start_driver(api)
    running.publish(health())
    called = await kubelet.register()
    parameters = {"apiVersion": "gpu.resource.example.com/v1alpha1", "kind": "GpuConfig"}
    await called.prepare(await allocate("c", ("r", "gpu-0"), config=[dra.config(parameters, DRIVER)]))
    await running.until(lambda: devices("c"))
    (device,) = devices("c")
    assert {"id": "GPU-0", "ignoredConfig": ["gpu.resource.example.com/v1alpha1 GpuConfig"]} == device["data"]


async def test_the_ready_condition_follows_health(api, start_driver, kubelet, allocate, devices, api_server):
    """The status is written only if it changes."""
    running = await start_driver(api)
    running.publish(health())
    called = await kubelet.register()
    await called.prepare(await allocate("c", ("r", "gpu-0")))
    await running.until(lambda: devices("c"))
    running.publish(health(gpu_0="Xid 79"))
    await running.until(lambda: ready(devices("c")[0])[1] == "False")
    assert ("Ready", "False", "Unhealthy", "Xid 79") == ready(devices("c")[0])
    writes = api_server.writes
    running.publish(health(gpu_0="Xid 79", gpu_1="of another claim"))
    running.publish(health())
    await running.until(lambda: ready(devices("c")[0])[1] == "True")
    assert writes + 1 == api_server.writes
    running.publish({name: each for name, each in health().items() if name != "gpu-0"})
    await running.until(lambda: ready(devices("c")[0])[2] == "NotPublished")


async def test_two_drivers_write_the_status_of_one_claim(api, start_driver, kubelet, allocate, devices):
    """Each driver writes its own devices, as its own field manager."""
    others = {"b.acme.dev": ("s", "gpu-1")}
    claim = await allocate("c", ("r", "gpu-0"), others=others)
    for name in (DRIVER, "b.acme.dev"):
        running = await start_driver(api, name=name)
        running.publish(health())
    for socket in kubelet.sockets:
        await (await kubelet.register(socket)).prepare(claim)
    await running.until(lambda: len(devices("c")) == 2)
    assert {DRIVER, "b.acme.dev"} == {each["driver"] for each in devices("c")}


async def test_a_missing_status_permission_is_logged_once(api, start_driver, kubelet, allocate, api_server, devices):
    """Claims are prepared without it."""
    api_server.permissions = {"get resourceclaims"}
    running = await start_driver(api)
    running.publish(health())
    called = await kubelet.register()
    claims = [await allocate(f"c{number}", ("r", f"gpu-{number}")) for number in (0, 1)]
    for claim in claims:
        assert "" == (await called.prepare(claim))[claim["metadata"]["uid"]].error
        await running.until(lambda: running.retrier.problems)
    (problem,) = running.retrier.problems
    assert f"writing the status of claims of {DRIVER} failed" in problem.message
    assert "give it a role with the verb patch on resourceclaims/status" in problem.message
    assert 1 == sum(each["event"] == "step failed; trying again" for each in running.logs)
    api_server.permissions = None
    # Repeated, because a write may be refused after the first advance.
    await running.until(lambda: running.clock.advance(31) or (devices("c0") and devices("c1")))
    await running.until(lambda: not running.retrier.problems)
