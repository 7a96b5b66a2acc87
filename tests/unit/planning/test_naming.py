"""MIG strategies, names by pattern, indices."""

import pytest

from tests.kit.geometry import made_geometry, made_profile
from vdev.model.entry import MigStrategy
from vdev.model.problem import Where
from vdev.model.spec import PatternItem
from vdev.planning import naming

MIXED = {0: ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb")}
ALIKE = {0: ("2g.10gb",) * 3, 1: ("2g.10gb",) * 3}


def counts(stock):
    return {name: len(resource.slots) for name, resource in stock.resources.items()}


@pytest.mark.parametrize(
    ("strategy", "partitions", "expected", "ordinals"),
    [
        (MigStrategy.NONE, MIXED, {"gpu": 2}, ["0", "1"]),  # a partitioned device is one whole device
        (MigStrategy.MIXED, MIXED, {"gpu": 1, "mig-1g.5gb": 2, "mig-2g.10gb": 1, "mig-3g.20gb": 1}, ["1"]),
        (MigStrategy.MIXED, ALIKE, {"mig-2g.10gb": 6}, []),  # no resource without devices
        (MigStrategy.SINGLE, ALIKE, {"gpu": 6}, ["0:0", "0:1", "0:2", "1:0", "1:1", "1:2"]),
    ],
)
def test_strategies(build, strategy, partitions, expected, ordinals):
    """Names and indices are those of NVIDIA's plugin."""
    stock = build.inventory(build.entry(partitions=partitions), mig_strategy=strategy)
    assert {f"nvidia.com/{name}": count for name, count in expected.items()} == counts(stock)
    whole = stock.resources["nvidia.com/gpu"].slots if "gpu" in expected else ()
    assert ordinals == [slot.device.ordinal for slot in whole]
    assert () == stock.problems


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        ({0: ("2g.10gb",)}, "found 2g.10gb, whole devices"),
        ({0: ("2g.10gb",), 1: ("1g.5gb",)}, "found 1g.5gb, 2g.10gb"),
        ({0: ("1g.5gb",), 1: ("1g.5gb+me",)}, "found 1g.5gb, 1g.5gb+me"),
        ({0: ("2g.10gb",), 1: ()}, "found 2g.10gb, gpu/1 without partitions"),
    ],
)
def test_single_refuses_a_mix(build, partitions, text):
    """Under `single` a mix is an error that names what differs, and the resource is left out."""
    stock = build.inventory(build.entry(partitions=partitions), mig_strategy=MigStrategy.SINGLE)
    assert {} == stock.resources
    (problem,) = stock.problems
    assert text in problem.message


def test_mixed_warns_of_a_device_without_partitions(build):
    """Under `mixed` a partitionable device with an empty list contributes nothing, with a warning."""
    stock = build.inventory(build.entry(partitions={0: ()}), mig_strategy=MigStrategy.MIXED)
    assert {"nvidia.com/gpu": 1} == counts(stock)
    assert "device gpu/0 has no partitions configured" in stock.problems[0].message
    assert not stock.problems[0].is_error


def test_two_entries_share_one_resource_and_its_indices(build):
    """The indices of the second entry follow those of the first."""
    stock = build.inventory(build.entry("a"), build.entry("b"))
    assert ["0", "1", "2", "3"] == [slot.device.ordinal for slot in stock.resources["nvidia.com/gpu"].slots]


def test_partition_ids_do_not_depend_on_their_neighbours(build):
    one = build.inventory(build.entry(count=1, partitions={0: ("3g.20gb",)}), mig_strategy=MigStrategy.MIXED)
    two = build.inventory(build.entry(count=1, partitions={0: ("1g.5gb", "3g.20gb")}), mig_strategy=MigStrategy.MIXED)
    name = "nvidia.com/mig-3g.20gb"
    assert build.ids(one, name) == build.ids(two, name)
    assert build.ids(one, name)[0].startswith("MIG-")


UNMATCHED = "does not match any resources.gpus pattern ('H100*')"


@pytest.mark.parametrize(
    ("kind", "patterns", "partitions", "expected", "problems"),
    [
        ("gpus", {"*A100*": "a100", "*": "other"}, None, {"a100": 2}, []),  # the first one wins
        (
            "gpus",
            {"H100*": "h100"},
            None,
            {},
            [("t.yaml:1:1: devices.gpu", True, UNMATCHED)],
        ),
        ("gpus", {"T4": "t4", "*": "gpu"}, None, {"gpu": 2}, []),
        ("mig", {"1g.*": "small"}, MIXED, {"small": 2, "mig-2g.10gb": 1, "mig-3g.20gb": 1, "gpu": 1}, []),
        ("mig", {"*": "gpu"}, {0: ("1g.5gb",)}, {"gpu": 2}, []),
    ],
)
def test_patterns_name_devices_and_partitions(build, kind, patterns, partitions, expected, problems):
    """A problem has the place of its pattern, or of the entry that no pattern matches."""
    items = tuple(
        PatternItem(pattern=pattern, name=f"nvidia.com/{name}").model_copy(update={"where": Where(f"t:{number}:1")})
        for number, (pattern, name) in enumerate(patterns.items())
    )
    entry = build.entry(partitions=partitions) if partitions else build.entry()
    stock = build.inventory(entry, mig_strategy=MigStrategy.MIXED, **{kind: items})
    assert {f"nvidia.com/{name}": count for name, count in expected.items()} == counts(stock)
    found = [(problem.where, problem.is_error) for problem in stock.problems]
    assert [(where, is_error) for where, is_error, _ in problems] == found
    for (_, _, text), problem in zip(problems, stock.problems, strict=True):
        assert text in problem.message


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("*", "anything at all", True),
        ("1g.24gb", "1g.24gb-me", False),
        ("1g.*", "1gx5gb", False),
        ("1g.*", "1g.5gb+me", True),
        ("*A100*", "NVIDIA A100-SXM4-40GB", True),
        ("A[1]00", "A100", False),
    ],
)
def test_patterns_are_anchored_and_know_only_the_star(pattern, text, expected):
    """A pattern matches the whole text; `*` is the only wildcard."""
    assert expected is naming.matches(pattern, text)


AMD = made_geometry(
    slices=8,
    whole_device=True,
    resource_prefix="",
    profiles=(
        made_profile(name="spx_nps1", slices=8, memory=192 * 2**30, placements=(0,)),
        made_profile(name="cpx_nps4", slices=1, memory=24 * 2**30),
    ),
)


def amd(build, strategy, **changes):
    entry = build.entry("mi", "amd.com/gpu", nvidia=False, geometry=AMD, **changes)
    return build.inventory(entry, mig_strategy=strategy)


def test_a_device_cut_as_a_whole_is_always_in_a_mode(build):
    """As with ROCm's plugin, an unpartitioned MI300X is one `spx_nps1` under `mixed`, with its own id."""
    stock = amd(build, MigStrategy.MIXED, partitions={1: ("cpx_nps4",) * 8})
    assert {"amd.com/spx_nps1": 1, "amd.com/cpx_nps4": 8} == counts(stock)
    (slot,) = stock.resources["amd.com/spx_nps1"].slots
    assert ("mi-0", "0", "spx_nps1") == (slot.id, slot.device.ordinal, slot.device.profile)


@pytest.mark.parametrize("strategy", [MigStrategy.NONE, MigStrategy.SINGLE])
def test_devices_in_their_first_mode_keep_their_resource(build, strategy):
    """Under `none` and `single` devices in SPX are `amd.com/gpu`."""
    assert {"amd.com/gpu": 2} == counts(amd(build, strategy))


def test_single_refuses_devices_in_different_modes(build):
    """One device in CPX, and one in SPX because it is not partitioned."""
    stock = amd(build, MigStrategy.SINGLE, partitions={1: ("cpx_nps4",) * 8})
    assert {} == stock.resources
    assert "found cpx_nps4, spx_nps1" in stock.problems[0].message


def test_an_impossible_layout_has_a_hint(build):
    stock = build.inventory(build.entry(partitions={0: ("1c.3g.20gb",)}), mig_strategy=MigStrategy.MIXED)
    (problem,) = stock.problems
    assert "is a compute instance inside a 3g.20gb" in problem.message
    assert "use '3g.20gb'" == problem.hint
