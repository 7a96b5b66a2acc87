"""Which slots a rule means: whole hardware, what a resource offers, or a lot of them."""

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
    """A rule that makes these devices sick."""
    return rule(name="r", health="Unhealthy", devices=devices, **fields)


def meant(stock, made):
    """The ids that a rule means, by resource."""
    found = {}
    for name, each in sorted(targets.select(made, stock, DICE)):
        found.setdefault(name, []).append(each)
    return found


@pytest.fixture
def cards(build):
    """Two cards, the first cut in three, of which the small partitions are shared by two; and four NPUs."""
    gpu = build.entry(count=2, partitions={0: ("1g.5gb", "1g.5gb", "2g.10gb")})
    npu = build.entry("npu", "acme.dev/npu", nvidia=False, count=4, geometry=None)
    sharing = build.sharing({"name": "nvidia.com/mig-1g.5gb", "replicas": 2})
    return build.inventory(gpu, npu, sharing=sharing, mig_strategy=MigStrategy.MIXED)


def test_a_profile_means_the_partitions(cards):
    """The neighbours on the same card are spared."""
    assert ["nvidia.com/mig-2g.10gb"] == list(meant(cards, sick({"profile": "2g.*"})))


def test_a_partition_by_its_number(cards):
    """`gpu/0:0` is one partition, with its replicas."""
    found = meant(cards, sick("gpu/0:0"))
    assert 1 == len({slot.partition("::")[0] for ids in found.values() for slot in ids})


def test_a_replica_by_its_id(cards):
    """A replica's own id means that replica alone."""
    one = cards.resources["nvidia.com/mig-1g.5gb"].slots[1].id
    assert {"nvidia.com/mig-1g.5gb": [one]} == meant(cards, sick({"id": one}))


def test_count_takes_the_first(cards):
    """`count` takes the lowest indices."""
    assert {"acme.dev/npu": ["npu-0", "npu-1"]} == meant(cards, sick({"entry": "npu", "count": 2}))


@given(st.integers(0, 50), st.integers(1, 4))
def test_pick_is_a_lot_that_can_be_repeated(seed, number):
    """So many units are picked, the same ones again, whatever else is on the node."""
    units = [("raw", f"npu-{index}") for index in range(4)]
    chosen = targets._chosen(units, Select(pick=number), Dice(seed, "n"), "r")
    assert number == len(chosen)
    assert chosen == targets._chosen(list(reversed(units)), Select(pick=number), Dice(seed, "n"), "r")


@pytest.mark.parametrize(("share", "number"), [(0.01, 1), (0.25, 1), (0.5, 2), (1.0, 4)])
def test_share_is_at_least_one(cards, share, number):
    """A share of few devices is rounded, and never nothing."""
    assert number == len(meant(cards, sick({"entry": "npu", "share": share}))["acme.dev/npu"])
