"""DRA needs exactly the permissions of its component in deploy/, and problems name a missing one."""

import pytest

from tests.kit.dra_node import dra_kubelet, runs, until_published
from tests.kit.dra_objects import device_class, exactly, pod, template
from tests.kit.manifests import permissions_of

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

CONFIG = """
version: v1
devices:
  - name: npu
    resource: acme.dev/npu
    advertise: [dra]
    virtual: {count: COUNT}
"""

NODES = {"list nodes", "watch nodes"}


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet that uses the claims and slices of the API server."""
    async with dra_kubelet(directory, api_server, device_class("acme.dev", "device.driver == 'acme.dev'")) as running:
        await running.objects.create("ResourceClaimTemplate", template("npu", exactly("acme.dev")))
        yield running


@pytest.fixture
def devices(api_server):
    """Read the devices in the claims' status: names, and the status of their condition."""

    def look():
        found = [each.get("status", {}).get("devices", ()) for each in api_server.all("resourceclaims")]
        return [(each["device"], each["conditions"][0]["status"]) for some in found for each in some]

    return look


async def test_the_permissions_of_the_component_are_enough(kubelet, start_agent, account, api_server, devices):
    """Slices are created, changed, recreated and deleted, and a claim is prepared and gets a status."""
    api_server.permissions = permissions_of("dra")
    agent = await start_agent(CONFIG.replace("COUNT", "2"), api_server=account, wait=False)
    await until_published(agent, api_server)
    await runs(kubelet, pod("one", templates=["npu"]))
    await api_server.until(lambda: [("npu-0", "True")] == devices())
    agent.edit(CONFIG.replace("COUNT", "3"))
    await api_server.until(lambda: [3] == [len(each["spec"]["devices"]) for each in api_server.all("resourceslices")])
    await kubelet.restart()
    await api_server.until(lambda: api_server.all("resourceslices"))
    await until_published(agent, api_server)
    assert [] == [each for each in agent.agent.reconciler.problems if each.is_error]
    await agent.stop()
    assert [] == kubelet.errors
    used = {f"{each.verb} {each.resource}" for each in api_server.asked}
    spare = {"get nodes", "delete resourceslices"}  # for `vdev node show`, and for a driver that leaves the file
    assert used | spare == {each for each in permissions_of("dra") if "resourceclaims/driver" not in each}


async def test_without_the_permission_for_the_drivers_status(kubelet, start_agent, account, api_server, devices):
    """Claims are prepared without a status, and a problem names the permission."""
    api_server.permissions = {each for each in permissions_of("dra") if not each.endswith(" acme.dev")}
    agent = await start_agent(CONFIG.replace("COUNT", "2"), api_server=account, wait=False)
    await until_published(agent, api_server)
    await runs(kubelet, pod("one", templates=["npu"]))
    await api_server.until(
        lambda: any("resourceclaims/driver" in str(each) for each in agent.agent.reconciler.problems)
    )
    assert [] == devices()
    assert [] == kubelet.errors


@pytest.mark.parametrize(
    "missing",
    [{"list resourceslices"}, {"create resourceslices"}, NODES],
    ids=["slices are not seen", "slices are not made", "the node is not seen"],
)
async def test_without_a_permission_for_slices(missing, kubelet, start_agent, account, api_server):
    """A problem names the permission. Slices are published when it is granted."""
    api_server.permissions = permissions_of("dra") - missing
    agent = await start_agent(CONFIG.replace("COUNT", "2"), api_server=account, wait=False)
    said = "may not " + min(missing)
    await api_server.until(lambda: any(said in str(each) for each in agent.agent.reconciler.problems))
    assert [] == api_server.all("resourceslices")
    api_server.permissions = permissions_of("dra")
    agent.clock.advance(60.0)
    await until_published(agent, api_server)
    assert [] == kubelet.errors
