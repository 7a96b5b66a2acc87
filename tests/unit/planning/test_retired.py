"""A device that a pod may hold never leaves its list."""

from dataclasses import replace

import pytest

from vdev.intervals import Intervals
from vdev.model.entry import MigStrategy
from vdev.planning.in_use import Holder, InUse
from vdev.planning.plan import Previous
from vdev.planning.resources import EMPTY, diff
from vdev.planning.retired import keep_in_use, overlaps

GPU = "nvidia.com/gpu"
HELD = (GPU, "GPU-gggg1")


def asked(at, holders=None):
    """`InUse` after a trusted answer."""
    return InUse(devices={key: Holder(pod) for key, pod in (holders or {}).items()}, asked_at=at, answers_since=-1e9)


def silent(at, since, holders=None):
    """`InUse` after a request without an answer."""
    return replace(asked(at, holders), answers_since=None, silent_since=since, is_complete=False)


def again(lists, devices, in_use, now):
    """The lists after the next reconciliation."""
    return keep_in_use(devices, in_use, now, Previous(advertised=lists.inventory, retired=lists.retired))


def states(inventory, name=GPU):
    return {slot.id: slot.health.healthy for slot in inventory.resources[name].slots}


@pytest.fixture
def before(build):
    """Two devices."""
    return build.inventory(build.entry())


@pytest.fixture
def after(build):
    """The first of them."""
    return build.inventory(build.entry(count=1))


def test_a_removed_device_is_unhealthy_until_no_pod_can_hold_it(before, after):
    """Only answers some time after the device was listed as Unhealthy count."""
    kept = keep_in_use(after, asked(0.0), 1.0, Previous(advertised=before))
    assert {"GPU-gggg0": True, "GPU-gggg1": False} == states(kept.inventory)
    assert 2 == len(states(again(kept, after, asked(5.9), 100.0).inventory))
    later = again(kept, after, asked(6.0), 6.0)
    assert {"GPU-gggg0": True} == states(later.inventory)
    assert {} == later.retired
    assert later.again_at is None


def test_a_held_device_stays(before, after):
    """Its reason names the pod that holds it, and the kubelet is asked less and less often."""
    held = asked(1e6, {HELD: "default/train"})
    kept = keep_in_use(after, held, 0.0, Previous(advertised=before))
    assert Intervals().retire_recheck == kept.again_at
    later = again(kept, after, held, 1e6)
    assert "pod default/train" in later.inventory.resources[GPU].by_id["GPU-gggg1"].health.reason
    assert 1e6 + Intervals().retire_recheck_most == later.again_at


def test_an_allocate_in_flight_stays(before, after):
    """The kubelet crashes if an id disappears during its Allocate."""
    kept = keep_in_use(after, asked(0.0), 0.0, Previous(advertised=before))
    in_flight = replace(asked(1e6), in_flight=frozenset({HELD}))
    assert 2 == len(states(again(kept, after, in_flight, 1e6).inventory))


@pytest.mark.parametrize(("removed", "since"), [(0.0, 0.0), (100.0, 0.0), (0.0, 100.0)])
def test_without_pod_resources_it_stays_ten_minutes(build, before, removed, since):
    """The ten minutes begin when it was removed and a kubelet serves that does not answer. A held device stays."""
    after, held = build.inventory(build.entry(count=0)), {(GPU, "GPU-gggg0"): "default/train"}
    kept = keep_in_use(after, silent(removed, since, held), removed, Previous(advertised=before))
    ready = max(removed, since) + 600
    soon = again(kept, after, silent(ready - 1, since, held), ready - 1)
    assert {"GPU-gggg0": False, "GPU-gggg1": False} == states(soon.inventory)
    later = again(soon, after, silent(ready, since, held), ready)
    assert {"GPU-gggg0": False} == states(later.inventory)


def test_a_removed_resource_drains(build):
    """All devices of a removed resource are Unhealthy; then the resource goes."""
    before = build.inventory(build.entry())
    kept = keep_in_use(EMPTY, asked(0.0), 0.0, Previous(advertised=before))
    assert kept.inventory.resources[GPU].draining
    gone = again(kept, EMPTY, asked(6.0), 6.0)
    assert [None] == [change.new for change in diff(kept.inventory, gone.inventory)]


def test_a_partition_that_overlaps_a_held_one_is_unhealthy(build):
    """It becomes Healthy when the held one is free."""
    old = build.inventory(build.entry(count=1, partitions={0: ("3g.20gb", "3g.20gb")}), mig_strategy=MigStrategy.MIXED)
    new = build.inventory(build.entry(count=1, partitions={0: ("7g.40gb",)}), mig_strategy=MigStrategy.MIXED)
    three = build.ids(old, "nvidia.com/mig-3g.20gb")[0]
    kept = keep_in_use(new, asked(1.0, {("nvidia.com/mig-3g.20gb", three): "default/a"}), 1.0, Previous(advertised=old))
    (slot,) = kept.inventory.resources["nvidia.com/mig-7g.40gb"].slots
    assert f"overlaps {three}, which pod default/a still holds" == slot.health.reason
    free = again(kept, new, asked(7.0), 7.0)
    assert [True] == list(states(free.inventory, "nvidia.com/mig-7g.40gb").values())


def test_without_pod_resources_a_device_of_the_checkpoint_blocks_as_long_as_it_is_listed(build):
    """Time ran out before the edit, because the pod was admitted long ago, but it may still run."""
    before = build.inventory(build.entry())
    after = build.inventory(build.entry(), sharing=build.sharing({"name": GPU, "replicas": 2}))
    blind = replace(silent(1000.0, 0.0), ended=frozenset({HELD}), is_complete=True)
    kept = keep_in_use(after, blind, 1000.0, Previous(advertised=before))
    assert HELD in kept.retired
    assert not states(kept.inventory)["GPU-gggg1::0"]
    assert states(kept.inventory)["GPU-gggg0::0"]
    later = again(kept, after, replace(blind, asked_at=1600.0), 1600.0)
    assert states(later.inventory)["GPU-gggg1::0"]
    assert not later.retired


def test_an_unknown_held_device_is_listed(build):
    """A held id that the configuration lost while vdev was down is listed as Unhealthy at once."""
    fresh = build.inventory(build.entry())
    held = asked(0.0, {(GPU, "GPU-lost"): "default/train", ("other.dev/x", "x"): "default/train"})
    kept = keep_in_use(fresh, held, 0.0, Previous())
    assert {"GPU-gggg0": True, "GPU-gggg1": True, "GPU-lost": False} == states(kept.inventory)
    assert {GPU} == set(kept.inventory.resources)
    health = kept.inventory.resources[GPU].by_id["GPU-lost"].health
    assert "removed; pod default/train may still hold it" == health.reason
    free = again(kept, fresh, asked(6.0), 6.0)
    assert {"GPU-gggg0", "GPU-gggg1"} == set(states(free.inventory))


def test_replicas_overlap_only_the_whole_device(build):
    plain = build.inventory(build.entry()).resources[GPU].slots
    shared = build.inventory(build.entry(), sharing=build.sharing({"name": GPU, "replicas": 2})).resources[GPU].slots
    assert not overlaps(shared[0], shared[1])
    assert overlaps(plain[0], shared[0])
    assert not overlaps(plain[1], shared[0])


def test_a_node_that_is_held_under_another_name(build):
    """A pod that holds a device under its old name holds the same host node under the new one."""
    old = build.entry("old", "a.b/old", nvidia=False, count=1, geometry=None)
    new = build.entry("new", "a.b/new", nvidia=False, count=1, geometry=None)
    here, elsewhere = ("char 188:0",), ("char 188:1",)
    before = build.inventory(old, found={"old": build.raws(old, owns=here)})
    held = asked(0.0, {("a.b/old", "old-0"): "default/train"})
    for nodes, reason in (
        ({"owns": here}, "overlaps old-0, which pod default/train still holds"),
        ({"owns": elsewhere, "uses": here}, "overlaps old-0, which pod default/train still holds"),
        ({"owns": elsewhere}, ""),
        ({}, ""),
    ):
        after = build.inventory(new, found={"new": build.raws(new, **nodes)})
        kept = keep_in_use(after, held, 0.0, Previous(advertised=before))
        assert reason == kept.inventory.resources["a.b/new"].by_id["new-0"].health.reason
        free = again(kept, after, asked(6.0), 6.0)
        assert {"new-0": True} == states(free.inventory, "a.b/new")


def test_a_moved_id_is_listed_after_a_delay(build):
    """The kubelet must see first that the other resource dropped it."""
    fresh = build.inventory(build.entry(resource="nvidia.com/other"))
    dropped = {(GPU, "GPU-gggg0"): 10.0, ("nvidia.com/other", "GPU-gggg1"): 10.0}
    soon = keep_in_use(fresh, asked(10.0), 10.1, Previous(dropped=dropped))
    assert {"GPU-gggg1": True} == states(soon.inventory, "nvidia.com/other")
    assert 10.1 + Intervals().retire_recheck == soon.again_at
    later = keep_in_use(fresh, asked(10.0), 12.0, Previous(advertised=soon.inventory, dropped=dropped))
    assert {"GPU-gggg0": True, "GPU-gggg1": True} == states(later.inventory, "nvidia.com/other")
