"""The `partitioning` block: its values and its errors."""

import json

import pytest

from tests.kit.geometry import made_geometry, made_profile
from vdev import config
from vdev.errors import ConfigError

NPU = {
    "slices": 4,
    "profiles": {
        "1x.4gb": {"slices": 1, "memory": "4Gi"},
        "2x.8gb": {"slices": 2, "memory": "8Gi", "placements": [0, 2]},
    },
}


def loaded(block):
    """The partition geometry of devices with this block."""
    entry = {"name": "npu", "resource": "acme.dev/npu", "virtual": {"partitioning": block}}
    return config.load_text(json.dumps({"version": "v1", "devices": [entry]})).spec.entries[0].geometry


def problems(block):
    """The path in the block and the text of each error."""
    with pytest.raises(ConfigError) as refused:
        loaded(block)
    return [(each.path[4:], f"{each.message}; {each.hint}") for each in refused.value.problems]


def test_a_small_block():
    """With slices and profiles only, the rest has its defaults."""
    assert made_geometry(
        slices=4,
        profiles=(
            made_profile(name="1x.4gb", slices=1, memory=4 * 2**30),
            made_profile(name="2x.8gb", slices=2, memory=8 * 2**30, placements=(0, 2)),
        ),
    ) == loaded(NPU)


def test_every_key():
    block = {
        "slices": 8,
        "compute": 7,
        "resourcePrefix": "part-",
        "wholeDevice": True,
        "profiles": {
            "a+m": {
                "slices": 8,
                "memory": 1024,
                "placements": [0],
                "compute": 7,
                "max": 1,
                "attributes": {"cores": 64, "model": "X"},
                "exclusive": "m",
            }
        },
        "layouts": {"one": ["a+m"]},
    }
    profile = made_profile(
        name="a+m",
        slices=8,
        memory=1024,
        placements=(0,),
        compute=7,
        max=1,
        attributes={"cores": "64", "model": "X"},
        exclusive="m",
    )
    assert made_geometry(
        slices=8, compute=7, profiles=(profile,), layouts={"one": ("a+m",)}, resource_prefix="part-", whole_device=True
    ) == loaded(block)


def changed(**more):
    return {**NPU, **more}


def with_profile(name="2x.8gb", **more):
    return {**NPU, "profiles": {**NPU["profiles"], name: {"slices": 2, "memory": "8Gi", **more}}}


def test_errors(subtests):
    """Each wrong value is one error with its path in the block."""
    cases = [
        (changed(slices="4"), ("slices",), "expected a whole number, got the string '4'"),
        (changed(slices=0), ("slices",), "0 is out of range"),
        (changed(profiles={}), ("profiles",), "a device without profiles cannot be partitioned"),
        (with_profile(memory="8GB"), ("profiles", "2x.8gb", "memory"), "did you mean 'G'?"),
        (with_profile(slices=5), ("profiles", "2x.8gb", "slices"), "5 slices do not fit a device of 4"),
        (with_profile(placements=[]), ("profiles", "2x.8gb", "placements"), "no position where it could start"),
        (
            with_profile(placements=[0, 3]),
            ("profiles", "2x.8gb", "placements", 1),
            "cannot start at slice 3: it fits at 0 to 2",
        ),
        (with_profile(placements=[0, 0]), ("profiles", "2x.8gb", "placements", 1), "slice 0 is listed twice"),
        (with_profile(compute=1), ("profiles", "2x.8gb", "compute"), "does not say how many compute slices"),
        (changed(compute=2), ("profiles", "1x.4gb"), "each profile must say how many it takes"),
        (
            with_profile(attributes={"cc": [8]}),
            ("profiles", "2x.8gb", "attributes", "cc"),
            "expected a string, a number",
        ),
        (
            with_profile(name="a b"),
            ("profiles", "a b"),
            "'a b' names the resource <domain>/mig-a b, which Kubernetes would refuse",
        ),
        (with_profile(name="x" * 60), ("profiles", "x" * 60), "Kubernetes would refuse"),
        (
            changed(layouts={"all-1x.4gb": ["1x.4gb"]}),
            ("layouts", "all-1x.4gb"),
            "exists for every device with this profile",
        ),
        (changed(layouts={"a": ["1x.4gb", "3x"]}), ("layouts", "a", 1), "unknown profile '3x'"),
        (changed(layouts={"a": ["2x.8gb"] * 3}), ("layouts", "a", 2), "2x.8gb takes 2 slices from 0 or 2"),
    ]
    for block, where, text in cases:
        with subtests.test(block=block):
            first = problems(block)[0]
            assert (where, True) == (first[0], text in first[1]), first


def test_two_profiles_for_one_resource():
    """`a+me` and `a.me` would both be `mig-a.me`."""
    block = with_profile(name="a+me") | {}
    block["profiles"]["a.me"] = {"slices": 1, "memory": 1}
    (problem,) = problems(block)
    assert "'a.me' and 'a+me' would name the same resource, <domain>/mig-a.me" in problem[1]


def test_all_errors_at_once():
    block = changed(profiles={"a": {"slices": 9, "memory": 1}, "b": {"slices": 1, "memory": 1, "placements": [4]}})
    assert [("profiles", "a", "slices"), ("profiles", "b", "placements", 0)] == [where for where, _ in problems(block)]
