"""Devices of prepared claims stay unchanged over any edits, and no other claim gets a part of them."""

import json
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.rules import rule
from tests.kit.slice_rules import check_pool
from vdev import config
from vdev.dra import slices as cutting
from vdev.faults.targets import ActiveFaults
from vdev.planning.inventory import inventory
from vdev.planning.plan import ObservedState, Previous, desired_state

NODE = "n1"
PARTS = st.sampled_from([[], ["1g.6gb"] * 4, ["1g.6gb", "1g.6gb", "2g.12gb"], ["2g.12gb", "2g.12gb"], ["4g.24gb"]])
OWN = {"slices": 2, "profiles": {"half": {"slices": 1, "memory": 1}}}
OTHER = {"slices": 3, "profiles": {"half": {"slices": 1, "memory": 1, "max": 2}, "all": {"slices": 3, "memory": 3}}}


@st.composite
def entries(draw, name, board):
    """An entry of this name. Its devices may have the ids of a board that belonged to another entry before."""
    entry = {"name": name, "resource": "nvidia.com/gpu", "advertise": "dra", "dra": {"driver": "x.dev"}}
    count = draw(st.integers(1, 3))
    dynamic = draw(st.booleans())
    entry["dra"]["partitions"] = "dynamic" if dynamic else "static"
    entry["dra"]["taints"] = {"lost": draw(st.sampled_from(["none", "NoSchedule"]))}
    if draw(st.booleans()):
        entry["virtual"] = {"preset": "a30", "count": count}
        if dynamic:
            entry["dra"]["migEnabled"] = draw(st.booleans())
        elif draw(st.booleans()):
            entry["partitions"] = {"0": draw(PARTS)}
    else:
        ids = [f"{board}-{number}" for number in range(count)]
        devices = draw(st.sampled_from([{"count": count}, {"ids": ids}]))
        entry["virtual"] = devices | {"partitioning": draw(st.sampled_from([OWN, OTHER]))}
    return entry


FILES = st.lists(st.sampled_from("abc"), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(*(entries(name, f"board-{number}") for number, name in enumerate(names)))
)


def shares_a_part(one, other):
    """Whether two devices overlap and counters do not prevent a common allocation."""
    return not (one.consumes and other.consumes) and overlap(one, other)


def overlap(one, other):
    """Whether two devices have a part of one physical device in common."""
    a, b = one.device, other.device
    return a.raw.id == b.raw.id and (not a.profile or not b.profile or bool(set(a.slices) & set(b.slices)))


@settings(deadline=None)
@given(st.data(), st.lists(FILES, min_size=2, max_size=4))
def test_claimed_devices_stay(data, files):
    pools, claimed, meant = {}, set(), {}
    for tree in files:
        spec = config.load_text(json.dumps({"devices": list(tree)})).spec
        base = inventory(spec, NODE)
        keys = [(driver, slot.id) for driver, offered in base.claimable.items() for slot in offered.slots]
        gone = data.draw(st.lists(st.sampled_from(keys), max_size=2)) if keys else []
        world = ObservedState(
            spec=spec,
            node=NODE,
            inventory=base,
            previous=Previous(pools=pools),
            claimed={"x.dev": dict.fromkeys(claimed)},
            faults=ActiveFaults(((rule(remove=True), frozenset(gone)),)),
        )
        pools = desired_state(world).pools
        made = pools.get("x.dev")
        assert not claimed or claimed <= made.by_name.keys()
        if made is None:
            continue
        check_pool(cutting.objects(made, NODE))
        for name in claimed:
            held = made.by_name[name]
            assert meant[name] == held.device.id
            assert not [
                each.name for each in made.devices if each is not held and held.lost and shares_a_part(held, each)
            ]
        free = sorted(each.name for each in made.devices if not each.lost)
        asked = data.draw(st.lists(st.sampled_from(free), unique=True, max_size=2)) if free else []
        kept = {name for name in sorted(claimed) if data.draw(st.booleans())}
        fresh = []
        for name in asked:  # an allocator never allocates overlapping devices
            if not any(overlap(made.by_name[name], made.by_name[other]) for other in (*kept, *fresh)):
                fresh.append(name)
        meant |= {name: made.by_name[name].device.id for name in fresh}
        claimed = kept | set(fresh)


def test_one_claimed_partition_stays_and_one_is_lost():
    """In the new file, the device has one of the two claimed partitions and another geometry."""
    pools, claimed = {}, set()
    for partitioning in (OTHER, OWN):
        entry = {"name": "c", "resource": "nvidia.com/gpu", "advertise": "dra", "dra": {"driver": "x.dev"}}
        entry["dra"]["partitions"] = "dynamic"
        tree = [entry | {"virtual": {"count": 1, "partitioning": partitioning}}]
        spec = config.load_text(json.dumps({"devices": tree})).spec
        pools = desired_state(
            ObservedState(
                spec=spec,
                node=NODE,
                inventory=inventory(spec, NODE),
                previous=Previous(pools=pools),
                claimed={"x.dev": dict.fromkeys(claimed)},
            )
        ).pools
        claimed = {"c-0-half-0", "c-0-half-2"}
        made = pools["x.dev"]
        assert claimed <= made.by_name.keys()
        check_pool(cutting.objects(made, NODE))
    assert {"c-0-half-0": False, "c-0-half-2": True} == {each.name: each.lost for each in made.devices}


def test_an_entry_is_renamed_and_repartitioned_with_claims():
    """One partition stays as the new entry's, and one is lost. Later plans know only the new entry."""
    pools, claimed = {}, {}
    for name, partitioning in (("a", OTHER), ("b", OWN), ("b", OWN)):
        entry = {"name": name, "resource": "acme.dev/npu", "advertise": "dra"}
        entry["dra"] = {"driver": "x.dev", "partitions": "dynamic"}
        entry["virtual"] = {"ids": ["board-1"], "partitioning": partitioning}
        spec = config.load_text(json.dumps({"devices": [entry]})).spec
        world = ObservedState(
            spec=spec,
            node=NODE,
            inventory=inventory(spec, NODE),
            previous=Previous(pools=pools),
            claimed={"x.dev": claimed},
        )
        pools = desired_state(world).pools
        claimed = {"board-1-half-0": None, "board-1-half-2": None}
    assert {"board-1-half-0": ("b", False), "board-1-half-2": ("a", True)} == {
        each.name: (each.entry, each.lost) for each in pools["x.dev"].devices
    }


def test_a_claimed_device_that_no_pool_contains():
    """The claim was prepared before records existed. A lost partition of the same device keeps its counters."""

    def world(slices, *profiles):
        cut = {"slices": slices, "profiles": {name: {"slices": 1, "memory": 1} for name in profiles}}
        entry = {"name": "a", "resource": "nvidia.com/gpu", "virtual": {"count": 1, "partitioning": cut}}
        entry |= {"advertise": "dra", "dra": {"driver": "x.dev", "partitions": "dynamic"}}
        spec = config.load_text(json.dumps({"devices": [entry]})).spec
        return ObservedState(spec=spec, node=NODE, inventory=inventory(spec, NODE))

    before = desired_state(world(3, "part")).pools
    claimed = {"x.dev": {"a-0-part-2": None, "a-0-other-0": None}}
    after = desired_state(replace(world(2, "part", "other"), previous=Previous(pools=before), claimed=claimed)).pools[
        "x.dev"
    ]
    assert {"a-0-part-2": True} == {each.name: each.lost for each in after.devices}
