"""Replicas: shared devices, their names, and errors of rules."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vdev.model.device import base_id
from vdev.model.entry import MigStrategy
from vdev.model.spec import SharingKind


@pytest.mark.parametrize(
    ("count", "rules", "ids", "renamed"),
    [
        # A number takes the lowest indices.
        (2, [{"replicas": 2, "devices": 1}], ["0::0", "0::1", "1"], []),
        # With a new name, the other devices keep the old one.
        (
            2,
            [{"replicas": 3, "devices": ("1",), "rename": "nvidia.com/gpu.shared"}],
            ["0"],
            ["1::0", "1::1", "1::2"],
        ),
        # Two items with different devices are joined.
        (
            3,
            [{"replicas": 2, "devices": ("0",)}, {"replicas": 3, "devices": ("GPU-gggg1",)}],
            ["0::0", "0::1", "1::0", "1::1", "1::2", "2"],
            [],
        ),
    ],
)
def test_chosen_devices(build, count, rules, ids, renamed):
    sharing = build.sharing(*({"name": "nvidia.com/gpu", **rule} for rule in rules))
    stock = build.inventory(build.entry(count=count), sharing=sharing)
    assert [f"GPU-gggg{each}" for each in ids] == build.ids(stock, "nvidia.com/gpu")
    if renamed:
        assert [f"GPU-gggg{each}" for each in renamed] == build.ids(stock, "nvidia.com/gpu.shared")


def test_a_partition_by_its_index(build):
    stock = build.inventory(
        build.entry(count=1, partitions={0: ("1g.5gb", "1g.5gb")}),
        sharing=build.sharing({"name": "nvidia.com/mig-1g.5gb", "replicas": 2, "devices": ("0:1",)}),
        mig_strategy=MigStrategy.MIXED,
    )
    assert [False, True, True] == ["::" in each for each in build.ids(stock, "nvidia.com/mig-1g.5gb")]


def test_impossible_rules_are_errors(subtests, build):
    """The error names the rule, and other resources stay."""
    cases = [
        (({"devices": 3},), "3 devices of 'nvidia.com/gpu' are to be shared, but this node has 2"),
        (({"devices": ("7",)},), "has no device with index '7' on this node"),
        (({"devices": ("GPU-zzzz",)},), "has no device with id 'GPU-zzzz' on this node"),
        (({"devices": ("gpus",)},), "has no device with id 'gpus' on this node; did you mean 'gpu'? its indices: 0, 1"),
        (
            ({"devices": ("0",), "where": "t:1:1"}, {"devices": ("0",)}),
            "device 0 of 'nvidia.com/gpu' is already shared by t:1:1",
        ),
        (({"rename": "acme.dev/npu"},), "renaming 'nvidia.com/gpu' to 'acme.dev/npu' collides"),
    ]
    for rules, text in cases:
        with subtests.test(rules=rules):
            sharing = build.sharing(*({"name": "nvidia.com/gpu", "replicas": 2, **rule} for rule in rules))
            stock = build.inventory(build.entry(), build.entry("npu", "acme.dev/npu", nvidia=False), sharing=sharing)
            assert any(text in str(problem) and problem.is_error for problem in stock.problems), stock.problems
            assert 2 == len(stock.resources["acme.dev/npu"].slots)


RULES = st.lists(
    st.tuples(st.sets(st.integers(0, 5), min_size=1), st.integers(2, 12), st.sampled_from(["", "nvidia.com/shared"])),
    max_size=4,
)


@given(count=st.integers(1, 6), drawn=RULES, rename_by_default=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_device_is_in_one_resource_with_all_replicas(build, count, drawn, rename_by_default):
    """Each device is plain or replicated, with replicas 0 to n-1."""
    taken, rules = set(), []
    for devices, replicas, rename in drawn:
        mine = sorted(each for each in devices - taken if each < count)
        taken |= set(mine)
        if mine:
            rule = {"name": "nvidia.com/gpu", "replicas": replicas, "devices": tuple(map(str, mine)), "rename": rename}
            rules.append(rule)
    expected = {f"GPU-gggg{index}": None for index in range(count)}
    expected |= {f"GPU-gggg{index}": rule["replicas"] for rule in rules for index in rule["devices"]}
    sharing = build.sharing(*rules, rename_by_default=rename_by_default) if rules else None
    stock = build.inventory(build.entry(count=count), sharing=sharing)
    assert () == stock.problems
    slots = [(name, slot) for name, resource in stock.resources.items() for slot in resource.slots]
    assert len(slots) == len({slot.id for _, slot in slots})
    for device, replicas in expected.items():
        own = [(name, slot) for name, slot in slots if base_id(slot.id) == device]
        assert 1 == len({name for name, _ in own})
        assert ([device] if replicas is None else [f"{device}::{n}" for n in range(replicas)]) == [s.id for _, s in own]
        assert {device} == {slot.device.id for _, slot in own}


def test_mps_has_a_limit_of_clients(subtests, build):
    """It is 48, or 16 for an old device. A device with too many replicas is left out."""
    cases = [
        ({}, 48, False),
        ({}, 49, True),
        ({"computeCapability": "10.0"}, 48, False),
        ({"computeCapability": "7.5"}, 48, False),
        ({"computeCapability": "7.0"}, 17, True),  # Volta's MPS could serve more, but NVIDIA's daemon does not
        ({"computeCapability": "6.1"}, 16, False),
        ({"computeCapability": "6.1"}, 17, True),
        ({"computeCapability": "6"}, 48, True),
        ({"computeCapability": "new"}, 48, False),
    ]
    for capability, replicas, refused in cases:
        with subtests.test(capability=capability):
            entry = build.entry()
            sharing = build.sharing(
                {"name": "nvidia.com/gpu", "replicas": replicas, "where": "here"}, kind=SharingKind.MPS
            )
            stock = build.inventory(entry, found={"gpu": build.raws(entry, attributes=capability)}, sharing=sharing)
            told = [problem for problem in stock.problems if problem.is_error]
            assert refused == bool(told)
            assert (0 if refused else 2 * replicas) == sum(len(each.slots) for each in stock.resources.values())
            if refused:
                most = 48 if replicas == 49 else 16
                assert ["here"] == [problem.where for problem in told]
                assert f"{replicas} replicas of 'nvidia.com/gpu': MPS serves at most {most} clients" in told[0].message
