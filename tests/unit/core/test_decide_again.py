"""What need not be decided again: a plan that still follows is the one that a decision would come to."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from vdev import config
from vdev.core.decide import Decider, World
from vdev.core.inventory.difference import diff
from vdev.core.inventory.imagined_nodes import inventory
from vdev.core.inventory.resources import EMPTY
from vdev.core.model.device import Health
from vdev.core.retention.holders import Holdings
from vdev.core.retention.retain import dropped

NODE, A, B = "n1", "x.dev/a", "x.dev/b"


def base(resource, count):
    """What a file with one entry comes to; another `resource` has the same ids."""
    entry = {"name": "npu", "resource": resource, "virtual": {"count": count}}
    spec = config.load_text(json.dumps({"devices": [entry]})).spec
    return spec, inventory(spec, NODE)


KNOWN = {(resource, count): base(resource, count) for resource in (A, B) for count in (1, 2)}

KEYS = st.frozensets(st.tuples(st.sampled_from([A, B]), st.sampled_from(["npu-0", "npu-1"])), max_size=2)
HOLDINGS = st.builds(
    lambda held, doubted, silent, told: {
        "holders": dict.fromkeys(held, "default/pod") if told else None,
        "doubted": doubted,
        "silent": silent,
        "complete": told and not silent,
    },
    KEYS,
    KEYS,
    st.sampled_from([False, False, False, True]),
    st.sampled_from([True, True, True, False]),
)
TURNS = st.lists(
    st.one_of(
        st.tuples(st.just("file"), st.sampled_from(sorted(KNOWN))),
        st.tuples(st.just("holdings"), HOLDINGS),
        st.tuples(st.just("answer"), st.none()),
        st.tuples(st.just("sick"), st.booleans()),
        st.tuples(st.just("nothing"), st.none()),
    ),
    max_size=20,
)
STEPS = st.sampled_from([0.0, 0.05, 0.3, 1.0, 4.0, 30.0, 700.0])


@given(TURNS, st.data())
def test_a_plan_that_still_follows_is_what_would_be_decided(turns, data):
    """Whatever happens in between: files, pods, answers, health, and nothing but time."""
    spec, stock = KNOWN[A, 2]
    holdings = Holdings(holders={}, read_at=0.0)
    world = World(spec=spec, node=NODE, base=stock, holdings=holdings)
    before, plan, lately = None, None, {}
    for kind, value in (("nothing", None), *turns):
        now = world.now + data.draw(STEPS)
        match kind:
            case "file":
                spec, stock = KNOWN[value]
            case "holdings":
                holdings = Holdings(**value, read_at=now, blind_since=0.0 if value["silent"] else float("inf"))
            case "answer":
                holdings = replace(holdings, read_at=now)
        sick = {"npu-0": Health(healthy=False, reason="drill")} if kind == "sick" and value else world.verdicts
        lately = {each: it for each, it in lately.items() if now - it.at < 1.0}
        world = replace(
            world,
            spec=spec,
            base=stock,
            holdings=holdings,
            verdicts={} if kind == "sick" and not value else sick,
            dropped=lately,
            now=now,
            listed=plan.inventory if plan else EMPTY,
            retired=plan.retired if plan else {},
            devices=plan.devices if plan else EMPTY,
            lost=plan.lost if plan else {},
        )
        decided = Decider().decide(world)
        if plan is not None and plan.still_follows(before, world):
            assert plan == replace(decided, holdings=plan.holdings, again_at=plan.again_at)
            assert plan.holdings.says(decided.holdings)
            assert (plan.again_at is None) is (decided.again_at is None)
            assert plan.again_at is None or now < plan.again_at <= decided.again_at
            plan = replace(plan, holdings=world.holdings)
        else:
            lately = {**lately, **dropped(diff(world.listed, decided.inventory), now)}
            before, plan = world, decided


def test_time_alone_changes_no_plan_that_waits_for_nothing():
    """And an answer of the kubelet that says the same changes none."""
    spec, stock = KNOWN[A, 2]
    world = World(spec=spec, node=NODE, base=stock, holdings=Holdings(holders={}, read_at=0.0))
    plan = Decider().decide(world)
    world = replace(world, listed=plan.inventory, devices=plan.devices)
    plan = Decider().decide(world)
    later = replace(world, now=5000.0, holdings=Holdings(holders={}, read_at=4999.0))
    assert plan.still_follows(world, later)
    assert not plan.still_follows(world, replace(later, holdings=Holdings(holders={(A, "npu-0"): "default/p"})))
    assert not plan.still_follows(world, replace(later, verdicts={"npu-0": Health(healthy=False, reason="x")}))


def test_what_is_retired_is_decided_about_when_it_is_due():
    """Not before, unless the kubelet answered meanwhile."""
    (spec, stock), (_, less) = KNOWN[A, 2], KNOWN[A, 1]
    holdings = Holdings(holders={(A, "npu-1"): "default/p"}, read_at=0.0)
    plan = Decider().decide(World(spec=spec, node=NODE, base=stock, holdings=holdings))
    world = World(spec=spec, node=NODE, base=less, listed=plan.inventory, devices=plan.devices, holdings=holdings)
    plan = Decider().decide(world)
    world = replace(world, listed=plan.inventory, devices=plan.devices, retired=plan.retired, lost=plan.lost)
    plan = Decider().decide(world)
    assert plan.again_at is not None
    assert plan.still_follows(world, replace(world, now=plan.again_at - 0.1))
    assert not plan.still_follows(world, replace(world, now=plan.again_at))
    answered = replace(world, now=plan.again_at - 0.1, holdings=replace(holdings, read_at=1.0))
    assert not plan.still_follows(world, answered)
    silent = replace(world, holdings=replace(holdings, silent=True))
    assert not plan.still_follows(silent, replace(silent, now=0.1))
