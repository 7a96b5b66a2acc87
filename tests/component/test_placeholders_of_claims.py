"""Placeholder nodes of virtual devices that are allocated to claims."""

import asyncio
import os
import threading

import pytest

from tests.kit.dra_node import dra_kubelet, runs, until_published
from tests.kit.dra_objects import claim, device_class, exactly, pod
from vdev.dra.applier import DraDrivers
from vdev.dra.checkpoint import write_cdi_file

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

NODES = {
    "a serial line": 'pty: echo, containerPath: "/dev/ttyUSB{index}"',
    "a file": 'file: "seat {id}", containerPath: /etc/seat',
    "a directory": 'directory: {seat: "{id}"}, containerPath: /run/seat',
}
SEAT = """
  - name: seat
    resource: acme.dev/seat
    advertise: [dra]
    virtual: {count: 1, node: {NODE}}
"""
OTHER = """
version: v1
devices:
  - {name: other, resource: acme.dev/other, advertise: [dra], virtual: {count: 1}}
"""


def config(node):
    """Seats with this placeholder, and another entry."""
    return OTHER + SEAT.replace("NODE", node)


@pytest.fixture
async def kubelet(directory, api_server):
    """A kubelet that uses the claims and slices of the API server."""
    seats = device_class("seat", "device.attributes['acme.dev'].id.startsWith('seat-')")
    async with dra_kubelet(directory, api_server, seats) as running:
        yield running


@pytest.fixture
def start(start_agent, account, api_server):
    """Start an agent, and wait until its slices are published."""

    async def start(text):
        agent = await start_agent(text, api_server=account, wait=False)
        await until_published(agent, api_server)
        return agent

    return start


@pytest.fixture
def placeholder(directory):
    """The path of the only seat's placeholder."""
    return directory / "devices" / "vdev-seat-0"


async def seated(kubelet):
    """Run a pod with the seat."""
    await kubelet.objects.create("ResourceClaim", claim("one", exactly("seat")))
    return await runs(kubelet, pod("sitter", claims=["one"]))


@pytest.mark.parametrize("what", ["a serial line", "a directory"])
async def test_a_placeholder_exists_when_its_device_is_published(kubelet, start, placeholder, what):
    """The runtime can mount the path in the claim's specification."""
    await start(config(NODES[what]))
    assert placeholder.exists()
    (mount,) = (await seated(kubelet)).container().edits.mounts
    assert str(placeholder) == mount.host_path
    assert [] == kubelet.errors


async def test_the_runtime_makes_device_nodes(kubelet, start, placeholder):
    """Claims use CDI, so `like` needs no capability, whatever the strategy of the device plugin is."""
    await start(config('like: zero, containerPath: "/dev/seat"'))
    edits = (await seated(kubelet)).container().edits
    assert ["/dev/seat"] == [each.container_path for each in edits.devices]
    assert not placeholder.parent.exists()


@pytest.mark.parametrize("what", ["a serial line", "a file"])
async def test_a_placeholder_stays_while_a_claim_has_the_device(kubelet, start, api_server, placeholder, what):
    """It stays after an edit removed the entry, because a container may restart, and is removed after the claim."""
    agent = await start(config(NODES[what]))
    await seated(kubelet)
    agent.edit(OTHER)
    await agent.settled(kubelet)
    assert placeholder.exists()
    await kubelet.delete_pod("sitter")
    await api_server.until(lambda: not os.path.lexists(placeholder))
    assert [] == kubelet.errors


async def test_a_placeholder_is_removed_after_the_driver_is_updated(
    kubelet, start, api_server, placeholder, monkeypatch
):
    """A claim may be prepared until the driver has the edit."""
    seen = []

    async def apply(self, plan, apply=DraDrivers.apply):
        if plan.pools and plan.pools["acme.dev"].offered.entries["seat"].virtual.node is None:
            seen.append(await asyncio.to_thread(placeholder.exists))
        await apply(self, plan)

    monkeypatch.setattr(DraDrivers, "apply", apply)
    agent = await start(config(NODES["a file"]))
    holders = agent.agent.holders
    await kubelet.wait_until(lambda: holders.known.is_complete, what="what pods hold, without which nothing goes")
    agent.edit(OTHER + SEAT.replace(", node: {NODE}", ""))
    await api_server.until(lambda: not os.path.lexists(placeholder))
    assert seen[0]


async def test_a_placeholder_stays_while_a_claim_is_being_prepared(kubelet, start, placeholder, monkeypatch):
    """An edit removes the entry between the driver's lookup of the device and its answer."""
    begun, go_on = threading.Event(), threading.Event()

    def write(path, claim):
        begun.set()
        assert go_on.wait(60)
        write_cdi_file(path, claim)

    monkeypatch.setattr("vdev.dra.claims.write_cdi_file", write)
    agent = await start(config(NODES["a file"]))
    await kubelet.objects.create("ResourceClaim", claim("one", exactly("seat")))
    sitter = asyncio.create_task(runs(kubelet, pod("sitter", claims=["one"])))
    assert await asyncio.to_thread(begun.wait, 60)
    agent.edit(OTHER)
    await kubelet.wait_until(lambda: len(agent.agent.reconciler.spec.entries) == 1, what="the edit")
    for _ in range(10):  # until the agent trusts a new kubelet to know all its pods
        await asyncio.sleep(0.1)
        await agent.settled(kubelet)
    go_on.set()
    await sitter
    await agent.settled(kubelet)
    assert placeholder.read_text() == "seat seat-0"
    assert [] == kubelet.errors


@pytest.mark.parametrize(("what", "restarts"), [("a file", True), ("a directory", False)])
async def test_changes_of_a_pod_are_gone_before_the_next_claim(kubelet, start, placeholder, what, restarts):
    """The placeholder is recreated during unprepare."""

    def content():
        return placeholder.read_text() if placeholder.is_file() else sorted(os.listdir(placeholder))

    agent = await start(config(NODES[what]))
    new = content()
    await seated(kubelet)
    if placeholder.is_file():
        placeholder.write_text("mine")
    else:
        (placeholder / "secret").write_text("mine")
    if restarts:
        await agent.stop()
        await start(config(NODES[what]))
    assert new != content()
    await kubelet.delete_pod("sitter")
    assert new == content()
    assert [] == kubelet.errors


async def test_a_removed_placeholder_gets_its_content_again(kubelet, start, directory):
    """The device is no longer in the file, and is kept for its claim by a new agent."""
    seat = SEAT.replace("NODE", 'file: "{id} {attributes.model} {memory.mib}", containerPath: "/etc/seat{index}"')
    seat = seat.replace("count: 1,", "count: 2, memory: 2Gi, attributes: {model: X1},")
    agent = await start(OTHER + seat)
    await kubelet.objects.create("ResourceClaim", claim("both", exactly("seat", count=2)))
    await runs(kubelet, pod("sitter", claims=["both"]))
    last = directory / "devices" / "vdev-seat-1"
    assert "seat-1 X1 2048" == last.read_text()
    await agent.stop()
    last.unlink()
    agent = await start(OTHER + seat.replace("count: 2,", "count: 1,"))
    await agent.settled(kubelet)
    assert "seat-1 X1 2048" == last.read_text()
    assert [] == kubelet.errors
