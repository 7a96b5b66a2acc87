"""What a pod may hold is never dropped."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vdev.intervals import Intervals
from vdev.model.entry import MigStrategy
from vdev.planning.in_use import Holdings
from vdev.planning.resources import EMPTY, Inventory, RemovedResource, diff
from vdev.planning.retention import Dropped, overlaps, retain

GPU = "nvidia.com/gpu"


def states(inventory, name=GPU):
    return {slot.id: slot.health.healthy for slot in inventory.resources[name].slots}


def test_a_vanished_device_is_listed_unhealthy(build):
    """An id that the new inventory lacks stays, Unhealthy."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    kept = retain(before, after, {}, Holdings(), 0.0)
    assert {"GPU-gggg0": True, "GPU-gggg1": False} == states(kept.inventory)


def test_it_goes_when_nobody_holds_it_and_it_was_listed_for_a_while(build):
    """After the settling time a reading without a holder lets it go."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    kept = retain(before, after, {}, Holdings(holders={}, read_at=0.0), 0.0)
    assert 2 == len(states(kept.inventory))
    later = retain(kept.inventory, after, kept.retired, Holdings(holders={}, read_at=5.0), 5.0)
    assert {"GPU-gggg0": True} == states(later.inventory)
    assert {} == later.retired


def test_a_reading_from_before_it_was_listed_does_not_count(build):
    """A stale answer proves nothing, however long ago the device went."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    kept = retain(before, after, {}, Holdings(holders={}, read_at=0.0), 1.0)
    later = retain(kept.inventory, after, kept.retired, Holdings(holders={}, read_at=2.0), 100.0)
    assert 2 == len(states(later.inventory))


def test_a_held_device_stays_for_ever(build):
    """As long as the kubelet names a holder, the id stays, with the holder in its reason."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    holdings = Holdings(holders={(GPU, "GPU-gggg1"): "default/train"}, read_at=1e6)
    kept = retain(before, after, {}, holdings, 0.0)
    later = retain(kept.inventory, after, kept.retired, holdings, 1e6)
    assert "pod default/train" in later.inventory.resources[GPU].by_id["GPU-gggg1"].health.reason


def test_an_allocate_in_flight_stays(build):
    """An id that an unfinished Allocate names never goes: dropping it would crash the kubelet."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    kept = retain(before, after, {}, Holdings(holders={}, read_at=0.0), 0.0)
    flying = Holdings(holders={}, read_at=1e6, in_flight=frozenset({(GPU, "GPU-gggg1")}))
    assert 2 == len(states(retain(kept.inventory, after, kept.retired, flying, 1e6).inventory))


def test_without_pod_resources_it_stays_ten_minutes(build):
    """When nobody can say who holds what, ten minutes must do."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    kept = retain(before, after, {}, Holdings(), 0.0)
    assert 2 == len(states(retain(kept.inventory, after, kept.retired, Holdings(), 599.0).inventory))
    assert 1 == len(states(retain(kept.inventory, after, kept.retired, Holdings(), 600.0).inventory))


def test_a_device_that_returns_is_healthy_at_once(build):
    """A re-plug ends the retirement."""
    both, one = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    kept = retain(both, one, {}, Holdings(), 0.0)
    back = retain(kept.inventory, both, kept.retired, Holdings(), 1.0)
    assert ({}, {"GPU-gggg0": True, "GPU-gggg1": True}) == (back.retired, states(back.inventory))


def test_a_removed_resource_drains(build):
    """A resource that the configuration lost lives on with all its devices Unhealthy, then goes as a whole."""
    before = build.inventory(build.entry())
    kept = retain(before, EMPTY, {}, Holdings(holders={}, read_at=0.0), 0.0)
    assert kept.inventory.resources[GPU].draining
    gone = retain(kept.inventory, EMPTY, kept.retired, Holdings(holders={}, read_at=6.0), 6.0)
    assert [RemovedResource] == [type(change) for change in diff(kept.inventory, gone.inventory)]


def test_what_overlaps_a_held_partition_waits(build):
    """A new partition over one that a pod holds is Unhealthy until that one is released; others are not."""
    old = build.inventory(build.entry(count=1, partitions={0: ("3g.20gb", "3g.20gb")}), mig_strategy=MigStrategy.MIXED)
    new = build.inventory(build.entry(count=1, partitions={0: ("7g.40gb",)}), mig_strategy=MigStrategy.MIXED)
    three = build.ids(old, "nvidia.com/mig-3g.20gb")[0]
    held = Holdings(holders={("nvidia.com/mig-3g.20gb", three): "default/a"}, read_at=1.0)
    kept = retain(old, new, {}, held, 1.0)
    (slot,) = kept.inventory.resources["nvidia.com/mig-7g.40gb"].slots
    assert f"overlaps {three}, which pod default/a still holds" == slot.health.reason
    free = retain(kept.inventory, new, kept.retired, Holdings(holders={}, read_at=7.0), 7.0)
    assert [True] == list(states(free.inventory, "nvidia.com/mig-7g.40gb").values())


def test_what_pods_hold_and_nobody_knows_is_listed(build):
    """An id that a pod holds and the configuration lost while the plugin was down is listed as Unhealthy at once."""
    fresh = build.inventory(build.entry())
    holdings = Holdings(
        holders={(GPU, "GPU-lost"): "default/train", ("other.dev/x", "x"): "default/train"}, read_at=0.0
    )
    kept = retain(EMPTY, fresh, {}, holdings, 0.0)
    assert {"GPU-gggg0": True, "GPU-gggg1": True, "GPU-lost": False} == states(kept.inventory)
    assert {GPU} == set(kept.inventory.resources)
    health = kept.inventory.resources[GPU].by_id["GPU-lost"].health
    assert "not in the configuration; pod default/train may still hold it" == health.reason
    free = retain(kept.inventory, fresh, kept.retired, Holdings(holders={}, read_at=6.0), 6.0)
    assert {"GPU-gggg0", "GPU-gggg1"} == set(states(free.inventory))


def test_what_another_resource_lists_meanwhile_waits_and_is_in_one_list(build):
    """An old checkpoint names a holder under the resource that had the id before: two lists must never have one id."""
    old, new = "nvidia.com/old", "nvidia.com/new"
    fresh = build.inventory(build.entry(resource=new))
    holdings = Holdings(holders={(old, "GPU-gggg0"): "default/train"}, read_at=0.0)
    for served, lately in ((fresh, {}), (EMPTY, {"GPU-gggg0": Dropped(new, -0.5)})):
        kept = retain(served, fresh, {}, holdings, 0.0, lately=lately)
        assert {"GPU-gggg0": False, "GPU-gggg1": True} == states(kept.inventory, new)
        assert old not in kept.inventory.resources
        assert kept.again_at is not None
    free = retain(kept.inventory, fresh, kept.retired, Holdings(holders={}, read_at=6.0), 6.0)
    assert {"GPU-gggg0": True, "GPU-gggg1": True} == states(free.inventory, new)


def test_an_id_that_pods_hold_of_two_resources_is_in_one_list(build):
    """Of two resources in old checkpoints the one lists it whose pod the kubelet names."""
    fresh = build.inventory(build.entry())
    one, two = ("nvidia.com/a", "GPU-gggg0"), ("nvidia.com/b", "GPU-gggg0")
    holdings = Holdings(holders={two: "default/train"}, doubted=frozenset({one, two}), read_at=0.0)
    kept = retain(EMPTY, fresh, {}, holdings, 0.0)
    listed = [(name, slot.id) for name, each in kept.inventory.resources.items() for slot in each.slots]
    assert [("nvidia.com/b", "GPU-gggg0"), (GPU, "GPU-gggg1")] == sorted(listed)


def test_a_kubelet_that_fell_silent_keeps_nothing_that_nobody_had(build):
    """After ten minutes in which it serves and PodResources is silent, what no source names goes."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=0))
    silent = Holdings(holders={(GPU, "GPU-gggg0"): "default/train"}, silent=True, read_at=0.0, blind_since=100.0)
    kept = retain(before, after, {}, silent, 150.0)
    soon = retain(kept.inventory, after, kept.retired, silent, 749.0)
    assert {"GPU-gggg0": False, "GPU-gggg1": False} == states(soon.inventory)
    later = retain(soon.inventory, after, soon.retired, silent, 750.0)
    assert {"GPU-gggg0": False} == states(later.inventory)


def test_what_was_given_up_after_ten_blind_minutes_does_not_come_back(build):
    """The kubelet's checkpoint, which goes on naming what ended pods had, counts for ten minutes and not forever."""
    before, after = build.inventory(build.entry()), build.inventory(build.entry(count=1))
    blind = Holdings(blind_since=0.0, complete=False, doubted=frozenset({(GPU, "GPU-gggg1")}))
    kept = retain(before, after, {}, blind, 0.0)
    assert {"GPU-gggg0": True, "GPU-gggg1": False} == states(kept.inventory)
    long = replace(blind, complete=True)
    gone = retain(kept.inventory, after, kept.retired, long, 600.0)
    assert {"GPU-gggg0": True} == states(gone.inventory)
    later = retain(gone.inventory, after, gone.retired, long, 600.1)
    assert {"GPU-gggg0": True} == states(later.inventory)


def test_replicas_do_not_overlap_each_other_but_the_whole_device(build):
    """Fewer replicas block nothing; sharing a device that a pod has alone waits for it."""
    plain = build.inventory(build.entry()).resources[GPU].slots
    shared = build.inventory(build.entry(), sharing=build.sharing({"name": GPU, "replicas": 2})).resources[GPU].slots
    assert not overlaps(shared[0], shared[1])
    assert overlaps(plain[0], shared[0])
    assert not overlaps(plain[1], shared[0])


def test_a_node_that_is_held_under_another_name_waits(build):
    """The entry was renamed, or another one took the node over: who holds it holds the node."""
    old = build.entry("old", "a.b/old", nvidia=False, count=1, geometry=None)
    new = build.entry("new", "a.b/new", nvidia=False, count=1, geometry=None)
    here, elsewhere = ("char 188:0",), ("char 188:1",)
    before = build.inventory(old, found={"old": build.raws(old, owns=here)})
    holdings = Holdings(holders={("a.b/old", "old-0"): "default/train"}, read_at=0.0)
    for nodes, reason in (
        ({"owns": here}, "overlaps old-0, which pod default/train still holds"),
        ({"owns": elsewhere, "uses": here}, "overlaps old-0, which pod default/train still holds"),
        ({"owns": elsewhere}, ""),
        ({}, ""),
    ):
        after = build.inventory(new, found={"new": build.raws(new, **nodes)})
        kept = retain(before, after, {}, holdings, 0.0)
        assert reason == kept.inventory.resources["a.b/new"].by_id["new-0"].health.reason
        free = retain(kept.inventory, after, kept.retired, Holdings(holders={}, read_at=6.0), 6.0)
        assert {"new-0": True} == states(free.inventory, "a.b/new")


@given(
    served=st.sets(st.integers(0, 9)),
    fresh=st.sets(st.integers(0, 9)),
    held=st.sets(st.integers(0, 9)),
    wait=st.floats(0, 1000),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the builder keeps no state
def test_a_held_id_is_in_every_list(build, served, fresh, held, wait):
    """Whatever changes and however long it takes: what is served and held stays listed."""
    whole = build.inventory(build.entry(count=10))

    def part(indices) -> Inventory:
        resource = whole.resources[GPU]
        slots = tuple(slot for slot in resource.slots if int(slot.device.ordinal) in indices)
        return Inventory({GPU: replace(resource, slots=slots)})

    ids = {f"GPU-gggg{index}" for index in held}
    holdings = Holdings(holders={(GPU, each): "ns/p" for each in ids}, read_at=wait)
    kept = retain(part(served), part(fresh), {}, holdings, 0.0)
    later = retain(kept.inventory, part(fresh), kept.retired, holdings, wait)
    listed = set(later.inventory.resources[GPU].by_id)
    assert {f"GPU-gggg{index}" for index in fresh} | (ids & {f"GPU-gggg{index}" for index in served}) <= listed
    assert diff(later.inventory, later.inventory) == ()


def test_a_moved_id_waits_for_the_kubelet_to_see_that_it_left(build):
    """However soon it is decided again, another resource lists it only some time after the old one dropped it."""
    fresh = build.inventory(build.entry(resource="nvidia.com/other"))
    dropped = {"GPU-gggg0": Dropped(GPU, 10.0), "GPU-gggg1": Dropped("nvidia.com/other", 10.0)}
    soon = retain(EMPTY, fresh, {}, Holdings(holders={}, read_at=10.0), 10.1, lately=dropped)
    assert {"GPU-gggg1": True} == states(soon.inventory, "nvidia.com/other")
    assert 10.1 + Intervals().retire_recheck == soon.again_at
    later = retain(soon.inventory, fresh, {}, Holdings(holders={}, read_at=10.0), 12.0, lately=dropped)
    assert {"GPU-gggg0": True, "GPU-gggg1": True} == states(later.inventory, "nvidia.com/other")


def test_a_moved_id_that_a_pod_keeps_is_looked_at_less_and_less_often(build):
    """While it is held, it is the old resource's, and a turn each second would find just that."""
    served = build.inventory(build.entry())
    fresh = build.inventory(build.entry(resource="nvidia.com/other"))
    holdings = Holdings(holders={(GPU, each): "default/train" for each in served.resources[GPU].ids}, read_at=0.0)
    kept = retain(served, fresh, {}, holdings, 0.0)
    assert 0.0 + Intervals().retire_settle == kept.again_at
    later = retain(kept.inventory, fresh, kept.retired, replace(holdings, read_at=200.0), 200.0)
    assert 200.0 + 20.0 == later.again_at
    assert {"GPU-gggg0", "GPU-gggg1"} == set(states(later.inventory))
    free = retain(later.inventory, fresh, later.retired, Holdings(holders={}, read_at=220.0), 220.0)
    assert 220.0 + Intervals().retire_recheck == free.again_at, "the other resource lists it soon"
