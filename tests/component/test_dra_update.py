"""A rolling update with claims: two agents on a node, whose sockets have the uids of their pods in their names."""

import pytest

from tests.kit.dra_node import dra_kubelet, runs, until_published
from tests.kit.dra_objects import device_class, exactly, pod, template
from tests.kit.manifests import permissions_of
from vdev.agent import status

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

CONFIG = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, advertise: [dra], virtual: {count: 2}}
  - {name: plain, resource: acme.dev/plain, virtual: {count: 1}}
"""
OLD, NEW = "0b3f7a1e-0000-4000-8000-000000000001", "0b3f7a1e-0000-4000-8000-000000000002"


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet that uses the claims and slices of the API server."""
    async with dra_kubelet(directory, api_server, device_class("acme.dev", "device.driver == 'acme.dev'")) as running:
        await running.objects.create("ResourceClaimTemplate", template("npu", exactly("acme.dev")))
        yield running


@pytest.fixture
def sockets(directory):
    """The registration sockets on the node."""
    return lambda: sorted(path.name for path in (directory / "kubelet" / "plugins_registry").glob("*.sock"))


def slices(api_server):
    """Uid and version of each slice."""
    return [(each["metadata"]["uid"], each["metadata"]["resourceVersion"]) for each in api_server.all("resourceslices")]


async def test_slices_stay_for_the_next_agent(kubelet, start_agent, account, api_server, monkeypatch):
    """So the node always has devices, in an update and over a restart."""
    monkeypatch.setenv("POD_UID", OLD)
    old = await start_agent(CONFIG, api_server=account)
    await until_published(old, api_server)
    before = slices(api_server)
    monkeypatch.setenv("POD_UID", NEW)
    new = await start_agent(CONFIG, api_server=account, wait=False)
    await api_server.until(lambda: new.agent.lock.stand_by and not status.not_ready(new.agent))
    await old.stop()
    assert before == slices(api_server)
    await until_published(new, api_server)
    assert before == slices(api_server)
    await new.stop()
    last = await start_agent(CONFIG, api_server=account)
    await until_published(last, api_server)
    assert before == slices(api_server)
    assert [] == kubelet.errors


async def test_the_new_pod_takes_over(kubelet, start_agent, account, api_server, sockets, monkeypatch):
    """A claim of the old pod stays prepared, keeps its device, and is unprepared by the new pod."""
    api_server.permissions = permissions_of("dra")
    monkeypatch.setenv("POD_UID", OLD)
    old = await start_agent(CONFIG, api_server=account)
    await until_published(old, api_server)
    assert [f"acme.dev-{OLD}-reg.sock"] == sockets()
    await runs(kubelet, pod("one", templates=["npu"]))
    monkeypatch.setenv("POD_UID", NEW)
    new = await start_agent(CONFIG, api_server=account, wait=False)
    await api_server.until(lambda: new.agent.lock.stand_by and not status.not_ready(new.agent))
    await old.stop()
    await until_published(new, api_server)
    assert [f"acme.dev-{NEW}-reg.sock"] == sockets()
    second = await runs(kubelet, pod("two", templates=["npu"]))
    claims = [each.container().claims for each in (kubelet.pod("one"), second)]
    assert [{"npu": (f"acme.dev/node-1/npu-{number}",)} for number in range(2)] == claims
    for name in ("one", "two"):
        await kubelet.delete_pod(name)
    await api_server.until(lambda: [[]] == [each["claims"] for each in new.agent.dra.document()])
    assert [] == kubelet.errors
