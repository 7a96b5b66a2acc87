"""Which slots a rule selects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.rules import rule
from vdev.faults import targets
from vdev.faults.rules import Select
from vdev.faults.schedule import Dice
from vdev.model.entry import MigStrategy

DICE = Dice(7, "node-a")


def sick(devices=None, **fields):
    """A rule that makes these devices Unhealthy."""
    return rule(name="r", health="Unhealthy", devices=devices, **fields)


def selected(stock, made):
    """The ids that a rule selects, by resource."""
    found = {}
    for name, each in sorted(targets.select(made, stock, DICE)):
        found.setdefault(name, []).append(each)
    return found


@pytest.fixture
def cards(build):
    """Two GPUs, the first with three partitions, of which the small ones have two replicas each; and four NPUs."""
    gpu = build.entry(count=2, partitions={0: ("1g.5gb", "1g.5gb", "2g.10gb")})
    npu = build.entry("npu", "acme.dev/npu", nvidia=False, count=4, geometry=None)
    sharing = build.sharing({"name": "nvidia.com/mig-1g.5gb", "replicas": 2})
    return build.inventory(gpu, npu, sharing=sharing, mig_strategy=MigStrategy.MIXED)


def test_a_profile_selects_only_its_partitions(cards):
    assert ["nvidia.com/mig-2g.10gb"] == list(selected(cards, sick({"profile": "2g.*"})))


def test_a_partition_by_its_number(cards):
    found = selected(cards, sick("gpu/0:0"))
    assert 1 == len({slot.partition("::")[0] for ids in found.values() for slot in ids})


def test_a_replica_by_its_id(cards):
    one = cards.resources["nvidia.com/mig-1g.5gb"].slots[1].id
    assert {"nvidia.com/mig-1g.5gb": [one]} == selected(cards, sick({"id": one}))


def test_count_takes_the_lowest_indices(cards):
    assert {"acme.dev/npu": ["npu-0", "npu-1"]} == selected(cards, sick({"entry": "npu", "count": 2}))


@given(st.integers(0, 50), st.integers(1, 4))
def test_pick_is_deterministic(seed, number):
    """The order of the units does not matter."""
    units = [("raw", f"npu-{index}") for index in range(4)]
    chosen = targets._chosen(units, Select(pick=number), Dice(seed, "n"), "r")
    assert number == len(chosen)
    assert chosen == targets._chosen(list(reversed(units)), Select(pick=number), Dice(seed, "n"), "r")


@pytest.mark.parametrize(("share", "number"), [(0.01, 1), (0.25, 1), (0.5, 2), (1.0, 4)])
def test_share_is_at_least_one(cards, share, number):
    """A share of few devices is rounded, and is at least one."""
    assert number == len(selected(cards, sick({"entry": "npu", "share": share}))["acme.dev/npu"])
