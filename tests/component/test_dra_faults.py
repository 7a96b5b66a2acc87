"""Faults of DRA: rules in the file, and their effects on the kubelet, its pods and the API server."""

import asyncio
from dataclasses import replace

import pytest

from tests.kit import quick
from tests.kit.dra_node import dra_kubelet, runs, until_published
from tests.kit.dra_objects import device_class, exactly, pod, template
from tests.kit.rules import with_rules
from vdev.sim import LeapClock, Phase

pytest.importorskip("cel_expr_python", reason="cel-expr-python, which evaluates selectors, is not installed")

CONFIG = """
version: v1
devices:
  - name: npu
    resource: acme.dev/npu
    advertise: [dra]
    virtual: {count: 2, memory: 16Gi}
"""
NPU = "acme.dev"
NPUS = ["npu-0", "npu-1"]


def config(*rules, head=CONFIG):
    """The configuration with these rules, each in flow style."""
    return with_rules(head, *rules)


@pytest.fixture
def kubelet_clock():
    """The kubelet's clock."""
    return LeapClock()


@pytest.fixture
async def kubelet(directory, api_server, kubelet_clock):
    """A kubelet with an API server, and a claim template for a device."""
    timings = replace(quick.KUBELET, retry=0.05)
    npus = device_class(NPU, "device.driver == 'acme.dev'")
    async with dra_kubelet(directory, api_server, npus, timings=timings, clock=kubelet_clock) as running:
        await running.objects.create("ResourceClaimTemplate", template("npu", exactly(NPU)))
        yield running


@pytest.fixture
def start(start_agent, account, api_server, kubelet):
    """Start an agent with these rules. With `published`, wait for registered drivers and for slices."""

    async def start(*rules, published=True, head=CONFIG, **options):
        options |= {"api_server": account, "wait": False, "fault_injection": True}
        agent = await start_agent(config(*rules, head=head), **options)
        if published:
            await until_published(agent, api_server)
        return agent

    return start


@pytest.fixture
def slices(api_server):
    return lambda: api_server.all("resourceslices")


@pytest.fixture
def clear():
    async def clear(agent, name="x"):
        await agent.agent.faults.store.commands["fault-clear"]({"name": name})

    return clear


def devices(found):
    """The names of the devices in slices, in order."""
    return sorted(each["name"] for slice_ in found for each in slice_["spec"].get("devices", ()))


def pools(found):
    """Generation and slice count of each pool."""
    return sorted((each["spec"]["pool"]["generation"], each["spec"]["pool"]["resourceSliceCount"]) for each in found)


def claims(agent):
    """The number of prepared claims."""
    return sum(len(each["claims"]) for each in agent.agent.dra.document())


def injected(agent):
    return {each["name"]: each["injected"] for each in agent.agent.faults.store.status()["rules"]}


def found(kubelet):
    """The findings of the kubelet's checks."""
    return {each.code for each in kubelet.errors}


# --- calls about claims -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "why", "findings"),
    [
        ("error: {code: RESOURCE_EXHAUSTED, message: no more}", "no more", set()),
        ("answer: {claimError: the device is on fire}", "the device is on fire", set()),
        ("answer: {skipClaim: true}", "NodePrepareResources skipped 1 ResourceClaims", {"claim-skipped"}),
    ],
)
async def test_prepare_fails(kubelet, start, clear, fault, why, findings):
    """The pod waits with the kubelet's message, and starts after the fault."""
    agent = await start(f"name: x, rpc: NodePrepareResources, {fault}")
    waiting = await kubelet.run_pod(pod("one", templates=["npu"]))
    assert Phase.PENDING is waiting.phase
    assert any(why in each.message for each in kubelet.events)
    await clear(agent)
    await kubelet.wait_until(lambda: kubelet.pod("one").phase is Phase.RUNNING, what="the pod")
    assert 1 <= injected(agent)["x"]
    assert found(kubelet) == findings


async def test_prepare_answers_with_another_device(kubelet, start):
    """The kubelet reports it, and the runtime cannot resolve the names."""
    await start("name: x, rpc: NodePrepareResources, answer: {wrongDevice: true}")
    running = await kubelet.run_pod(pod("one", templates=["npu"]))
    assert Phase.RUNNING is not running.phase
    assert {"prepared-not-allocated", "allocated-not-prepared", "cdi-unresolved"} <= found(kubelet)


async def test_a_device_fails_once_a_claim_has_it(kubelet, start, clear):
    """The rule's times start with the first preparation; a second call for the claim does not count."""
    agent = await start("name: x, onAllocate: true, nth: 1, at: 20s, devices: [npu/0-1], health: Unhealthy")
    await kubelet.run_pod(pod("one", templates=["npu"]))
    await kubelet.run_pod(pod("two", templates=["npu"]))
    await kubelet.wait_until(lambda: ["Healthy"] == health(kubelet), what="a healthy device")
    agent.clock.advance(20.0)
    await kubelet.wait_until(lambda: ["Unhealthy"] == health(kubelet), what="the failure")
    assert ["Healthy"] == health(kubelet, "two")
    assert 1 == agent.agent.faults.engine.runs["x"].injections.total()
    await clear(agent)
    await kubelet.wait_until(lambda: ["Healthy"] == health(kubelet), what="the end of it")
    assert [] == kubelet.errors


# --- health streams ---------------------------------------------------------------------------------------------------


def health(kubelet, name="one"):
    """The health of the device in the pod's status."""
    rows = kubelet.pod(name).container().allocated_resources_status
    return [device["health"] for row in rows for device in row["resources"]]


@pytest.mark.parametrize("fault", ["silent", "ended"])
async def test_health_streams(kubelet, start, clear, kubelet_clock, fault):
    """The health of a pod's device is unknown during the fault."""
    agent = await start(f"name: x, manual: true, for: 1h, healthStream: {{{fault}: true}}")
    await runs(kubelet, pod("one", templates=["npu"]))
    await kubelet.wait_until(lambda: ["Healthy"] == health(kubelet), what="a healthy device")
    await agent.agent.faults.store.commands["fault-trigger"]({"name": "x"})
    await kubelet.wait_until(lambda: injected(agent)["x"], what="the fault")
    kubelet_clock.advance(60.0)
    await kubelet.wait_until(lambda: ["Unknown"] == health(kubelet), what="the unknown")
    await clear(agent)
    async with asyncio.timeout(60):
        while health(kubelet) != ["Healthy"]:  # the kubelet updates pods at intervals
            agent.clock.advance(10.0)
            await kubelet.journal.next_change(at_most=0.1)
            kubelet_clock.advance(10.0)


# --- taints -----------------------------------------------------------------------------------------------------------


async def test_a_taint(kubelet, start, slices, api_server, clear):
    """Claims get another device until the fault ends. The device's health does not change."""
    agent = await start("name: x, devices: [npu/0], taint: {key: acme.dev/drain, value: soon}")

    def tainted():
        return {
            each["name"]: [{key: taint[key] for key in ("key", "value", "effect")} for taint in each["taints"]]
            for slice_ in slices()
            for each in slice_["spec"]["devices"]
            if each.get("taints")
        }

    assert {"npu-0": [{"key": "acme.dev/drain", "value": "soon", "effect": "NoSchedule"}]} == tainted()
    running = await runs(kubelet, pod("one", templates=["npu"]))
    assert "npu-1" == running.container().edits.envs["ACME_DEV_NPU_VISIBLE_DEVICES"]
    await clear(agent)
    await api_server.until(lambda: {} == tainted())
    assert 1 == injected(agent)["x"]
    assert [] == kubelet.errors


# --- slices -----------------------------------------------------------------------------------------------------------


async def test_slices_are_withheld(start, slices, api_server, clear, kubelet):
    """Nothing is written until the fault ends, even after the slices were deleted."""
    agent = await start("name: x, manual: true, for: 1h, slices: {withheld: true}")
    await agent.agent.faults.store.commands["fault-trigger"]({"name": "x"})
    agent.edit(config("name: x, manual: true, for: 1h, slices: {withheld: true}").replace("count: 2", "count: 3"))
    await api_server.until(lambda: injected(agent)["x"])
    await agent.settled(kubelet)
    assert NPUS == devices(slices())
    await kubelet.restart()
    assert [] == slices()
    await clear(agent)
    await api_server.until(lambda: [*NPUS, "npu-2"] == devices(slices()))
    assert [] == kubelet.errors


async def allocates_nothing(kubelet):
    waiting = await kubelet.run_pod(pod("waits", templates=["npu"]))
    assert (Phase.PENDING, "Unschedulable") == (waiting.phase, waiting.reason)
    await kubelet.delete_pod("waits")


@pytest.mark.parametrize(
    ("fault", "names", "counts"),
    [("duplicateName", ["npu-0", "npu-0", "npu-1"], [(1, 2), (1, 2)]), ("incomplete", NPUS, [(1, 2)])],
)
async def test_a_pool_is_invalid(start, slices, api_server, clear, kubelet, fault, names, counts):
    """Nothing is allocated from a pool with a device in two slices, or with more slices announced than exist."""
    agent = await start(f"name: x, slices: {{{fault}: true}}")
    assert (names, counts) == (devices(slices()), pools(slices()))
    await allocates_nothing(kubelet)
    writes = api_server.writes
    await agent.settled(kubelet)
    assert writes == api_server.writes
    await clear(agent)
    await api_server.until(lambda: NPUS == devices(slices()) and [(2, 1)] == pools(slices()))
    await runs(kubelet, pod("one", templates=["npu"]))


async def test_requests_about_slices_fail(start, slices, api_server, clear):
    """The API server refuses slices until the fault ends, and the problem names the rule."""
    agent = await start("name: x, api: {status: 403, verbs: create, resources: resourceslices}", published=False)
    await api_server.until(lambda: any("'x'" in str(each) for each in agent.agent.reconciler.problems))
    assert [] == slices()
    await clear(agent)
    agent.clock.advance(60.0)
    await api_server.until(lambda: NPUS == devices(slices()))


# --- unprepare --------------------------------------------------------------------------------------------------------


async def test_unprepare_fails(kubelet, start, clear):
    """The pod is Terminating and the claim stays prepared until the fault ends."""
    agent = await start("name: x, rpc: NodeUnprepareResources, answer: {claimError: the device is stuck}")
    await runs(kubelet, pod("one", templates=["npu"]))
    await kubelet.delete_pod("one")
    await kubelet.wait_until(lambda: injected(agent)["x"] >= 2, what="two calls")
    assert "the device is stuck" in kubelet.pod("one").message
    assert 1 == claims(agent)
    await clear(agent)
    await kubelet.wait_until(lambda: 0 == claims(agent), what="the end of the claim")
    assert [] == kubelet.errors
