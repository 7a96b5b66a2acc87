"""A device that an edit moves between the device plugin and claims is not given out again while it is in use."""

import json
from dataclasses import replace

import pytest

from vdev import config
from vdev.dra.published_devices import record
from vdev.planning.in_use import Holder, InUse
from vdev.planning.inventory import inventory
from vdev.planning.plan import ObservedState, desired_state

NODE = "n1"


class Node:
    """Plans repeatedly, each time a minute later, with the results of the last plan."""

    def __init__(self):
        self.plan = None
        self.now = 0.0
        self.world = ObservedState()

    def turn(self, way, *, holders=(), claimed=None, **entry):
        """Plan with this advertisement. Returns the listed ids (healthy?) and the names in the pool (lost?)."""
        virtual = {"count": 2, **entry}
        tree = {"devices": [{"name": "npu", "resource": "x.dev/npu", "advertise": way, "virtual": virtual}]}
        spec = config.load_text(json.dumps(tree)).spec
        self.now += 60
        held = {("x.dev/npu", each): Holder("default/pod") for each in holders}
        self.world = replace(
            self.world,
            spec=spec,
            node=NODE,
            inventory=inventory(spec, NODE),
            in_use=InUse(devices=held, asked_at=self.now, answers_since=0.0),
            claimed={"x.dev": claimed or {}},
            now=self.now,
        )
        self.plan = plan = desired_state(self.world)
        self.world = replace(self.world, previous=plan.as_previous())
        lists = {slot.id: slot.health.healthy for each in plan.advertised.resources.values() for slot in each.slots}
        pool = plan.pools.get("x.dev")
        return lists, {each.name: each.lost for each in pool.devices} if pool else {}


def test_a_pod_keeps_a_device_that_moves_to_claims():
    """Claims get the device when the pod that holds it has ended."""
    node = Node()
    assert ({"npu-0": True, "npu-1": True}, {}) == node.turn(["device-plugin"], holders=["npu-0"])
    assert ({"npu-0": False, "npu-1": False}, {}) == node.turn(
        ["dra"], holders=["npu-0"]
    )  # whether npu-1 is free is not known yet
    assert ({"npu-0": False}, {"npu-1": False}) == node.turn(["dra"], holders=["npu-0"])
    assert ({}, {"npu-0": False, "npu-1": False}) == node.turn(["dra"])


@pytest.mark.parametrize("restarted", [False, True])
def test_a_claim_keeps_a_device_that_moves_to_pods(restarted):
    """The device is Healthy when its claim is unprepared. A record of the claim survives a restart."""
    node = Node()
    assert ({}, {"npu-0": False, "npu-1": False}) == node.turn(["dra"])
    pool = node.plan.pools["x.dev"]
    claimed = {"npu-0": json.loads(json.dumps(record(pool, pool.by_name["npu-0"])))}
    if restarted:
        node = Node()
    assert ({"npu-0": False, "npu-1": True}, {"npu-0": True}) == node.turn(["device-plugin"], claimed=claimed)
    (slot,) = (each for each in node.plan.advertised.resources["x.dev/npu"].slots if each.id == "npu-0")
    assert slot.health.reason == "a claim still has npu-0"
    assert ({"npu-0": True, "npu-1": True}, {}) == node.turn(["device-plugin"])


def test_a_device_in_both_apis_is_counted_twice():
    """The configuration requests it, and has a warning."""
    node = Node()
    both = ["device-plugin", "dra"]
    everything = {"npu-0": True, "npu-1": True}, {"npu-0": False, "npu-1": False}
    assert everything == node.turn(both)
    pool = node.plan.pools["x.dev"]
    claimed = {"npu-0": record(pool, pool.by_name["npu-0"])}
    assert everything == node.turn(both, holders=["npu-0"], claimed=claimed)
    lists, names = node.turn(["dra"], holders=["npu-0", "npu-1"], claimed=claimed)
    assert ({"npu-0": False, "npu-1": False}, {"npu-0": False}) == (lists, names)  # the current user keeps it
