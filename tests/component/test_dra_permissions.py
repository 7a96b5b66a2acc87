"""DRA does its work with exactly the permissions of its component in deploy/, and says which one is missing."""

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

NODES = {"get nodes", "list nodes", "watch nodes"}


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet whose claims and slices are those of the API server."""
    async with dra_kubelet(directory, api_server, device_class("acme.dev", "device.driver == 'acme.dev'")) as running:
        await running.objects.create("ResourceClaimTemplate", template("npu", exactly("acme.dev")))
        yield running


@pytest.fixture
def devices(api_server):
    """What the claims' status say of devices: names and whether they are ready."""

    def look():
        found = [each.get("status", {}).get("devices", ()) for each in api_server.all("resourceclaims")]
        return [(each["device"], each["conditions"][0]["status"]) for some in found for each in some]

    return look


async def test_the_component_is_enough(kubelet, start_agent, account, api_server, devices):
    """Slices made, changed, made again, taken away; a claim prepared, with its status; nothing is ever missed."""
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
    assert [] == api_server.all("resourceslices")
    assert [] == kubelet.errors
    used = {f"{each.verb} {each.resource}" for each in api_server.asked}
    spare = {"get nodes"}  # for a cluster that lets it neither list nor watch
    assert used | spare == {each for each in permissions_of("dra") if "resourceclaims/driver" not in each}


async def test_a_driver_that_the_role_does_not_name(kubelet, start_agent, account, api_server, devices):
    """Its claims are prepared all the same; only their status says nothing, and a problem names the permission."""
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
async def test_slices_that_may_not_be_published(missing, kubelet, start_agent, account, api_server):
    """A problem names the permission; with it they are published after all."""
    api_server.permissions = permissions_of("dra") - missing
    agent = await start_agent(CONFIG.replace("COUNT", "2"), api_server=account, wait=False)
    said = "may not " + min(missing)
    await api_server.until(lambda: any(said in str(each) for each in agent.agent.reconciler.problems))
    assert [] == api_server.all("resourceslices")
    api_server.permissions = permissions_of("dra")
    agent.clock.advance(60.0)
    await until_published(agent, api_server)
    assert [] == kubelet.errors
