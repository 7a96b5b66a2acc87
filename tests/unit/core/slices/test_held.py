"""Held means held: what a prepared claim has stays what it is, over any edits, and nobody else gets a part of it."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.slice_rules import check_pool
from vdev import config
from vdev.core.decide import Decider, World
from vdev.core.faults.targets import Afflictions
from vdev.core.inventory.imagined_nodes import inventory
from vdev.core.slices.objects import cutting

NODE = "n1"
PARTS = st.sampled_from([[], ["1g.6gb"] * 4, ["1g.6gb", "1g.6gb", "2g.12gb"], ["2g.12gb", "2g.12gb"], ["4g.24gb"]])
OWN = {"slices": 2, "profiles": {"half": {"slices": 1, "memory": 1}}}
OTHER = {"slices": 3, "profiles": {"half": {"slices": 1, "memory": 1, "max": 2}, "all": {"slices": 3, "memory": 3}}}


@st.composite
def entries(draw, name):
    entry = {"name": name, "resource": "nvidia.com/gpu", "advertise": "dra", "dra": {"driver": "x.dev"}}
    count = draw(st.integers(1, 3))
    dynamic = draw(st.booleans())
    entry["dra"]["partitions"] = "dynamic" if dynamic else "static"
    entry["dra"]["taints"] = {"lost": draw(st.sampled_from(["none", "NoSchedule"]))}
    if draw(st.booleans()):
        entry["virtual"] = {"preset": "a30", "count": count}
        if not dynamic and draw(st.booleans()):
            entry["partitions"] = {"0": draw(PARTS)}
    else:
        entry["virtual"] = {"count": count, "partitioning": draw(st.sampled_from([OWN, OTHER]))}
    return entry


FILES = st.lists(st.sampled_from("abc"), unique=True, max_size=3).flatmap(
    lambda names: st.tuples(*(entries(name) for name in names))
)


def shares_a_part(one, other):
    """Whether two devices of one physical device, neither of them bound by counters, have something in common."""
    a, b = one.device, other.device
    if a.raw.id != b.raw.id or (one.consumes and other.consumes):
        return False
    return not a.profile or not b.profile or bool(set(a.slices) & set(b.slices))


def overlap(one, other):
    """Whether two devices have a part of one physical device in common."""
    a, b = one.device, other.device
    return a.raw.id == b.raw.id and (not a.profile or not b.profile or bool(set(a.slices) & set(b.slices)))


@settings(deadline=None)
@given(st.data(), st.lists(FILES, min_size=2, max_size=4))
def test_what_claims_have_stays(data, files):
    decider, pools, claimed, meant = Decider(), {}, set(), {}
    for tree in files:
        spec = config.load_text(json.dumps({"devices": list(tree)})).spec
        base = inventory(spec, NODE)
        keys = [(driver, slot.id) for driver, offered in base.claimable.items() for slot in offered.slots]
        gone = data.draw(st.lists(st.sampled_from(keys), max_size=2)) if keys else []
        world = World(
            spec=spec,
            node=NODE,
            base=base,
            pools=pools,
            claimed={"x.dev": claimed},
            afflictions=Afflictions(removed=frozenset(gone)),
        )
        pools = decider.decide(world).pools
        made = pools.get("x.dev")
        assert not claimed or claimed <= made.by_name.keys()
        if made is None:
            continue
        for split in (True, False):
            check_pool(cutting.objects(made, NODE, split=split), split=split)
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
        for name in asked:  # no allocator gives out what overlaps, by counters or by what is offered
            if not any(overlap(made.by_name[name], made.by_name[other]) for other in (*kept, *fresh)):
                fresh.append(name)
        meant |= {name: made.by_name[name].device.id for name in fresh}
        claimed = kept | set(fresh)
