"""What drives a device: patterns, pods and what they say, partitions and replicas, faults."""

import pytest

from tests.kit.measured import ids, measured, plan_of
from vdev.core.model.telemetry import LoadPattern, Range
from vdev.core.telemetry.drives import LoadSituation, WishError, drives, pieces, wish
from vdev.core.telemetry.history import WHOLE

GPU = "nvidia.com/gpu"
CONFIG = """
flags: {migStrategy: mixed}
telemetry: {}
devices:
- {name: a, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}, partitions: {"1": all-balanced}%s}
"""


def driven(plan, before=None, at=100.0, **changes):
    """What drives each device."""
    situation = LoadSituation(devices=plan.devices, loads=plan.loads, **changes)
    return drives(situation, pieces(situation), before or {}, at)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("75", (75, 75)), ("60-90", (60, 90)), (" 5.5 % - 10% ", (5.5, 10)), ("0", (0, 0)), ("100%", (100, 100))],
)
def test_what_a_pod_says(text, meant):
    """A number or a range, in percent."""
    assert wish(text) == Range(*meant)


@pytest.mark.parametrize("text", ["", "lots", "-5", "90-60", "101", "5-200", "1e2", "5,5", "60-", "nan"])
def test_what_says_no_load(text):
    """Nonsense is refused with a sentence."""
    with pytest.raises(WishError, match=r"expected percent|percent$|begins at"):
        wish(text)


def test_a_device_without_a_pod_is_idle_unless_it_is_always_loaded():
    """And one with a pod has the entry's pattern."""
    plan = plan_of(CONFIG % "")
    device = ids(plan, GPU)[0]
    assert driven(plan)[device].shares[WHOLE].load.pattern is LoadPattern.IDLE
    assert driven(plan, pods={device: {"a/b"}})[device].shares[WHOLE].load.pattern is LoadPattern.BUSY
    always = plan_of(CONFIG % ", telemetry: {pattern: wave, always: true}")
    assert driven(always)[device].shares[WHOLE].load.pattern is LoadPattern.WAVE


def test_pods_that_share_a_device_add_up_to_all_of_it_at_most():
    """Those that say their load with theirs, the others with the entry's."""
    plan = plan_of(CONFIG % ", telemetry: {pattern: steady, gpu: 30}")
    device = ids(plan, GPU)[0]
    wishes = {"a/one": Range(10, 20), "a/two": Range(50, 60), "a/three": Range(40, 90)}

    def load(*pods):
        return driven(plan, pods={device: set(pods)}, wishes=wishes)[device].shares[WHOLE].load.gpu

    assert load("a/one") == Range(10, 20)
    assert load("a/one", "a/two") == Range(60, 80)
    assert load("a/one", "a/other") == Range(40, 50)
    assert load("a/one", "a/two", "a/three") == Range(100, 100)


def test_a_load_counts_from_when_its_pods_came():
    """And goes on while they are the same."""
    plan = plan_of(CONFIG % ", telemetry: {pattern: ramp}")
    device = ids(plan, GPU)[0]
    first = driven(plan, pods={device: {"a/b"}}, at=50.0)
    again = driven(plan, first, pods={device: {"a/b"}}, at=80.0)
    other = driven(plan, again, pods={device: {"a/c"}}, at=90.0)
    assert [each[device].shares[WHOLE].load.since for each in (first, again, other)] == [50, 50, 90]
    assert again[device] == first[device]


def test_partitions_share_the_compute_of_their_device():
    """By their compute slices, of which seven are all; each has its own load."""
    plan = plan_of(CONFIG % "")
    small = ids(plan, "nvidia.com/mig-1g.5gb")[0]
    (cut,) = [drive for drive in driven(plan, pods={small: {"a/b"}}).values() if WHOLE not in drive.shares]
    assert sorted(round(share.of * 7) for share in cut.shares.values()) == [1, 1, 2, 3]
    assert [name for name, share in cut.shares.items() if share.load.pattern is LoadPattern.BUSY] == [small]


def test_nodes_and_seeds_differ_and_runs_do_not():
    """The same configuration on the same node shows the same."""
    config = CONFIG % ", telemetry: {always: true}"

    def loads(node):
        return [round(each.own.gpu_percent, 6) for each in measured(config, node=node)]

    assert loads("n1") == loads("n1")
    assert loads("n1") != loads("n2")
