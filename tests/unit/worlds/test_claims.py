"""Worlds with claims: what their file comes to, the weather of their API server, and rules that can be broken."""

import asyncio
import json
import random

import pytest

from tests.kit import quick
from tests.worlds.api.claim_model import ClaimModel, pieces
from tests.worlds.api.weather import Weather, WeatheredServer
from tests.worlds.claims import claim_rules
from tests.worlds.invariants import Broken
from tests.worlds.machine.memory_tcp import MemoryTcp
from vdev import kube
from vdev.aio.timing import Timing
from vdev.core.intervals import Intervals
from vdev.errors import ApiServerError
from vdev.kube import NODES
from vdev.preview import preview
from vdev.sim.api.store import Objects

NODE = {"metadata": {"name": "n"}}


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [[], [(0, 0), (2, 2)], [(3, 0), (4, 0), (7, 1)], [(5, 0), (2, 0), (7, 0), (8, 1)]])
def test_the_model_knows_what_its_file_comes_to(directory, changes):
    """The names of devices and the labels, by the documented naming alone."""
    (directory / "host/dev").mkdir(parents=True)
    model = ClaimModel(directory)
    model.build()
    for what, one in changes:
        model.change(what, one)
    file = directory / "vdev.yaml"
    file.write_text("\n".join(["version: v1", model.node(), "devices:", *model.entries()]) + "\n")
    seen = preview([file], node="node-1", host_root=directory / "host", overrides={})
    cells = {f"cell-w{number}" for number in model.plugged}  # plain files, which are devices in worlds alone
    published = {driver: devices - cells for driver, devices in model.published().items() if devices - cells}
    assert published == {driver: frozenset(pool.by_name) for driver, pool in seen.pools.items() if pool.by_name}
    assert model.wanted_labels() == dict(seen.labels)


def test_hardware_behind_names():
    """Partitions overlap with their device, and with others on the same slices."""
    whole, left, right = (pieces("acme.dev", f"card-0{each}") for each in ("", "-2x-0", "-1x-3"))
    assert left < whole
    assert right < whole
    assert not left & right
    assert not whole & pieces("acme.dev", "card-1")
    assert not whole & pieces("beam.dev", "card-0")


# --- rules ------------------------------------------------------------------------------------------------------------


def record(directory, driver, **claims):
    """A driver's record of prepared claims, by uid with their devices."""
    path = directory / "plugins" / driver / "prepared-claims.json"
    path.parent.mkdir(parents=True)
    rows = [{"uid": uid, "devices": [{"device": each} for each in devices]} for uid, devices in claims.items()]
    path.write_bytes(json.dumps({"version": 1, "claims": rows}).encode() + b"\nchecksum\n")


def test_devices_that_two_claims_have(directory):
    """By hardware: a partition and its device are one."""
    record(directory, "acme.dev", one=["card-0-1x-0", "core-1"], two=["card-0-2x-2"])
    record(directory, "beam.dev", three=["core-1"])
    claim_rules.judge_devices(directory)
    record(directory, "other/../acme.dev2", four=["core-1"])
    claim_rules.judge_devices(directory)
    (directory / "plugins/acme.dev/prepared-claims.json").unlink()
    (directory / "plugins/acme.dev").rmdir()
    record(directory, "acme.dev", one=["card-0-1x-2"], two=["card-0-2x-2"])
    with pytest.raises(Broken, match="no device is prepared for two"):
        claim_rules.judge_devices(directory)


# --- weather ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def under(directory):
    """Run a story with a server in this weather, and a client that tries once."""
    (directory / "token").write_text("token")

    def run(weather, story, *, seed=1):
        async def play():
            async with WeatheredServer(random.Random(seed)) as server:
                server.objects.create(server.kind("nodes"), "", NODE, "kubelet")
                server.weather = weather
                address = kube.ApiServerAddress(address=server.address, token=directory / "token")
                intervals = Intervals(**quick.INTERVALS | {"api_patience": 0.0, "api_answer": 0.5})
                async with kube.Api(address, timing=Timing(intervals)) as api:
                    return await asyncio.wait_for(story(server, api), 30)

        with asyncio.Runner(loop_factory=MemoryTcp) as runner:
            return runner.run(play())

    return run


async def label(api, value):
    """Write a label; what became of that."""
    try:
        await api.patch(NODES, "n", {"metadata": {"labels": {"a": value}}})
    except ApiServerError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    ("weather", "became", "stored"),
    [
        (Weather(), None, {"a": "1"}),
        (Weather(refused=1.0, statuses=(409,)), kube.Conflict, {}),
        (Weather(refused=1.0, statuses=(429,)), kube.Throttled, {}),
        (Weather(refused=1.0, statuses=(500,)), kube.Unreachable, {}),
        (Weather(late=1.0, seconds=1e4), kube.Unreachable, {}),
        (Weather(cut=1.0), kube.Unreachable, {}),
        (Weather(lost=1.0), kube.Unreachable, {"a": "1"}),
    ],
    ids=["fair", "conflict", "throttled", "error", "late", "cut", "lost"],
)
def test_weather(under, weather, became, stored):
    """What a client is told, and what the server has all the same."""

    async def story(server, api):
        found = await label(api, "1")
        return found, server.objects.get(server.kind("nodes"), "", "n")["metadata"].get("labels", {})

    assert (became, stored) == under(weather, story)


def test_watches_end_and_versions_are_forgotten(under):
    """Who watches goes on, or lists again."""

    async def story(server, api):
        told = []
        async with api.follow(NODES) as changes:
            async for change in changes:
                told.append(type(change).__name__)
                if told == ["Listed"]:
                    server.end_watches()
                    server.forget()
                    await server.objects.tell()
                if told.count("Listed") == 2:
                    return told
        return told

    assert under(Weather(), story)[-1] == "Listed"


def test_a_store_that_is_restored():
    """The same objects with other versions; what happened before is forgotten, and who listens is told on."""
    old, heard = Objects(), []
    kind = next(each for each in old._found if each.kind == "Namespace")
    old.listen(lambda: heard.append(1))
    new = old.restored(7)
    assert [each["metadata"]["uid"] for each in old.all(kind)] == [each["metadata"]["uid"] for each in new.all(kind)]
    assert {each["metadata"]["resourceVersion"] for each in new.all(kind)} == {"7"}
    new.create(kind, "", {"metadata": {"name": "late"}}, "kubectl")
    assert new.get(kind, "", "late")["metadata"]["resourceVersion"] == "8"
    assert not old.has(kind, "", "late")
    asyncio.run(new.tell())
    assert heard == [1]
