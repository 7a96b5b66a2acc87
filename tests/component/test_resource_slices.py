"""ResourceSlices on the API server: publication, updates, repair and removal."""

import asyncio

import pytest

from vdev.agent import status

CONFIG = """
version: v1
devices:
  - name: npu
    resource: acme.dev/npu
    advertise: [dra]
    virtual: {count: 4, memory: 16Gi}
"""
DRIVER = "acme.dev"


@pytest.fixture
def slices(api_server, node):
    """The present slices."""
    return lambda: api_server.all("resourceslices")


def devices(found):
    """The names of the devices in slices."""
    return sorted(each["name"] for slice_ in found for each in slice_["spec"].get("devices", ()))


def pools(found):
    """Generation and slice count of each pool."""
    return {(each["spec"]["pool"]["generation"], each["spec"]["pool"]["resourceSliceCount"]) for each in found}


MAY_PUBLISH = {f"{verb} resourceslices" for verb in ("list", "watch", "create", "update", "delete")}
NPUS = ["npu-0", "npu-1", "npu-2", "npu-3"]


@pytest.fixture
async def agent(start_agent, account, api_server, kubelet, slices):
    """An agent with published slices."""
    (kubelet.device_plugin_dir.parent / "plugins_registry").mkdir(exist_ok=True)
    running = await start_agent(CONFIG, api_server=account, wait=False, fault_injection=True)
    await api_server.until(lambda: NPUS == devices(slices()))
    return running


async def test_a_published_slice(agent, kubelet, slices, node):
    """The pool has the node's name, and the Node owns the slice. The device plugin lists nothing."""
    (only,) = slices()
    assert ("acme.dev", "node-1") == (only["spec"]["driver"], only["spec"]["nodeName"])
    assert {"name": "node-1", "generation": 1, "resourceSliceCount": 1} == only["spec"]["pool"]
    (owner,) = only["metadata"]["ownerReferences"]
    assert (node["metadata"]["uid"], True) == (owner["uid"], owner["controller"])
    assert only["metadata"]["name"].startswith("00000-acme.dev-node-1-")
    assert {} == kubelet.node().capacity


async def test_deleted_slices_are_published_again(agent, api_server, slices):
    """A kubelet deletes them when it starts."""
    for _ in range(3):
        for each in slices():
            await api_server.remove("resourceslices", each["metadata"]["name"])
        await api_server.until(lambda: NPUS == devices(slices()))
        assert {(1, 1)} == pools(slices())


async def test_an_edit_is_an_update_in_place(agent, api_server, slices):
    """The slice keeps its name and generation, and there is one write."""
    (before,) = slices()
    writes = api_server.writes
    agent.edit(CONFIG.replace("count: 4", "count: 5"))
    await api_server.until(lambda: [*NPUS, "npu-4"] == devices(slices()))
    (after,) = slices()
    assert before["metadata"]["name"] == after["metadata"]["name"]
    assert {(1, 1)} == pools(slices())
    assert writes + 1 == api_server.writes


@pytest.mark.parametrize("who", ["kubectl-edit", "zealous-controller"])
async def test_an_edit_by_another_client_is_undone(who, agent, api_server, slices):
    """The slice still belongs to the driver, no matter who wrote last."""
    for spoilt in ({"devices": [{"name": "x"}]}, {"pool": {"generation": 9, "resourceSliceCount": 2}}):
        (only,) = slices()
        await api_server.edit("resourceslices", only["metadata"]["name"], {"spec": spoilt}, manager=who)
        await api_server.until(lambda: NPUS == devices(slices()))
        await api_server.until(lambda: {1} == {count for _, count in pools(slices())})
    assert [] == [each for each in agent.agent.reconciler.problems if "publishes" in str(each)]


async def test_repeated_edits_by_another_client_are_undone_more_slowly(agent, api_server, slices):
    """Three edits are undone at once, later ones after a pause. An edit of the file does not wait for it."""

    async def spoil():
        (only,) = slices()
        change = {"spec": {"devices": [{"name": "x"}]}}
        await api_server.edit("resourceslices", only["metadata"]["name"], change, manager="zealous-controller")

    for _ in range(3):
        await spoil()
        await api_server.until(lambda: NPUS == devices(slices()))
    await spoil()
    await asyncio.sleep(0.5)
    assert ["x"] == devices(slices())
    agent.edit(CONFIG.replace("count: 4", "count: 5"))
    await api_server.until(lambda: [*NPUS, "npu-4"] == devices(slices()), seconds=15)
    await spoil()
    await asyncio.sleep(0.5)
    assert ["x"] == devices(slices())
    agent.clock.advance(30.0)
    await api_server.until(lambda: [*NPUS, "npu-4"] == devices(slices()), seconds=15)


async def test_slices_that_are_deleted_repeatedly(agent, api_server, slices):
    """After a burst, they are created at most twice per second."""
    writes, begun = api_server.writes, agent.clock.now()
    for _ in range(16):
        for each in slices():
            await api_server.remove("resourceslices", each["metadata"]["name"])
        await api_server.until(lambda: NPUS == devices(slices()))
    assert api_server.writes - writes <= 10 + 2 * (agent.clock.now() - begun)


async def test_an_unhealthy_device_has_a_taint(agent, api_server, slices):
    """The taint is removed when the device is healthy."""
    do = agent.agent.faults.store.commands
    await do["device-set"]({"id": "npu-1", "health": "Unhealthy", "reason": "too hot", "for": None})
    await api_server.until(lambda: any("taints" in each for each in slices()[0]["spec"]["devices"]))
    (sick,) = [each for each in slices()[0]["spec"]["devices"] if "taints" in each]
    assert ("npu-1", "NoSchedule") == (sick["name"], sick["taints"][0]["effect"])
    await do["device-clear"]({"id": "npu-1"})
    await api_server.until(lambda: not any("taints" in each for each in slices()[0]["spec"]["devices"]))


async def test_slices_are_removed_with_their_entry(agent, api_server, slices, shows):
    """The device plugin may list its devices then."""
    agent.edit(CONFIG.replace("advertise: [dra]", "advertise: [device-plugin]"))
    await api_server.until(lambda: [] == slices())
    await shows("acme.dev/npu", 4, 4)


async def test_a_restart_after_a_crash_writes_nothing(start_agent, account, api_server, slices, agent):
    """The slices of the earlier process are up to date."""
    agent.task.cancel()
    writes = api_server.writes
    assert NPUS == devices(slices())
    again = await start_agent(CONFIG, api_server=account, wait=False)
    await api_server.until(lambda: again.agent.dra.document() and again.agent.dra.document()[0]["slices"])
    assert writes == api_server.writes


async def test_a_foreign_driver_of_the_same_name(start_agent, account, api_server, slices, kubelet):
    """Its slices are not changed, and a problem names it until the file has no such driver."""
    theirs = {
        "metadata": {"name": "theirs"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-1",
            "pool": {"name": "node-1", "generation": 7, "resourceSliceCount": 1},
            "devices": [{"name": "x"}],
        },
    }
    await api_server.add("resourceslices", theirs, manager="kubelet-plugin")
    agent = await start_agent(CONFIG, api_server=account, wait=False)
    await api_server.until(lambda: any("kubelet-plugin" in str(each) for each in agent.agent.reconciler.problems))
    agent.edit(CONFIG.replace("advertise: [dra]", "advertise: [device-plugin]"))
    await api_server.until(lambda: not any("kubelet-plugin" in str(each) for each in agent.agent.reconciler.problems))
    assert ["x"] == devices(slices())


async def test_the_agent_is_not_ready_while_slices_are_not_published(start_agent, account, api_server, node):
    """At the start, and after they were deleted."""
    allowed = {"get nodes", "list nodes", "watch nodes", *MAY_PUBLISH}
    api_server.permissions = allowed - {"create resourceslices"}
    agent = await start_agent(CONFIG, api_server=account, wait=False)
    missing = ["the ResourceSlices of acme.dev are not published"]
    await api_server.until(lambda: agent.agent.reconciler.published and missing == status.not_ready(agent.agent))
    api_server.permissions = allowed
    agent.clock.advance(60.0)
    await api_server.until(lambda: not status.not_ready(agent.agent))
    assert NPUS == devices(api_server.all("resourceslices"))
    api_server.permissions = allowed - {"create resourceslices"}
    for each in api_server.all("resourceslices"):
        await api_server.remove("resourceslices", each["metadata"]["name"])
    await api_server.until(lambda: missing == status.not_ready(agent.agent))
