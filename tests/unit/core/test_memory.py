"""Arranging again costs what changed: counted in parts made, and never with another result."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev import config
from vdev.core.inventory.arrange import arrange
from vdev.core.memory import Memory
from vdev.core.model.device import DeviceNode, RawDevice

ENTRIES, DEVICES = 16, 20


def device(entry, index, path=""):
    """A device node that a glob found."""
    path = path or f"/dev/{entry}/n{index}"
    node = DeviceNode(path, path)
    return RawDevice(id=f"{entry}-n{index}", entry=entry, index=index, nodes=(node,), paths=(path,), owns=(path,))


def found(count=ENTRIES, devices=DEVICES):
    """All devices of all entries."""
    return {f"e{n}": tuple(device(f"e{n}", index) for index in range(devices)) for n in range(count)}


def configured(resource, more=""):
    """What `texts` says."""
    return config.load_text(texts(resource, more), "f.yaml").spec


def texts(resource, more=""):
    """Entries with globs; `resource` is a template of their resource's name."""
    entries = (f"  - {{name: e{n}, resource: {resource.format(n)}, glob: /dev/e{n}/n*}}\n" for n in range(ENTRIES))
    return f"version: v1\ndevices:\n{''.join(entries)}{more}"


def without(stock, entry, index):
    """What is found when one device is gone."""
    return stock | {entry: tuple(each for each in stock[entry] if each.index != index)}


of_each_form = pytest.mark.parametrize(
    ("resource", "more"),
    [
        ("acme.dev/r{}", ""),
        ("acme.dev/one", ""),
        ("acme.dev/r{}", "sharing: {timeSlicing: {resources: [{name: acme.dev/r3, replicas: 4}]}}\n"),
    ],
    ids=["a resource each", "one resource", "shared"],
)


@of_each_form
def test_one_device_of_many(resource, more):
    """When one device goes, and when it comes back, one part of each kind is made, and other slots are the same."""
    spec, memory, stock = configured(resource, more), Memory(), found()
    before = arrange(spec, "n", stock, memory)
    for now in (without(stock, "e3", 7), stock | {"e3": (*stock["e3"],)}):
        after = arrange(spec, "n", now, memory)
        assert {1} == set(memory.made.values())
        changed = {name for name, each in after.resources.items() if each is not before.resources[name]}
        assert {resource.format(3)} == changed
        same = set(map(id, before.resources[resource.format(3)].slots))
        kept = [slot for slot in after.resources[resource.format(3)].slots if slot.device.raw.index != 7]
        assert all(id(slot) in same for slot in kept)
        before = after


def test_nothing_changed():
    """Nothing is made, and all resources are the same objects."""
    spec, memory, stock = configured("acme.dev/r{}"), Memory(), found()
    before = arrange(spec, "n", stock, memory)
    after = arrange(spec, "n", dict(stock), memory)
    assert not memory.made
    assert all(after.resources[name] is each for name, each in before.resources.items())


SPECS = [
    configured("acme.dev/r{}"),
    configured("acme.dev/one"),
    configured(
        "acme.dev/one",
        "sharing:\n  timeSlicing:\n    resources: "
        "[{name: acme.dev/one, replicas: 2, devices: [0, 1], rename: acme.dev/two}]\n",
    ),
]
STEP = st.tuples(
    st.sampled_from(SPECS),
    st.dictionaries(
        st.integers(0, 3),
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "/dev/twice"])), unique_by=lambda each: each[0]),
    ),
)


@given(st.lists(STEP, min_size=1, max_size=6))
def test_memory_changes_no_result(steps):
    """Whatever came before: other specifications, entries that come and go, nodes that two entries reach."""
    memory, known = Memory(), {}
    for spec, stock in steps:
        raws = {
            f"e{n}": tuple(known.setdefault((n, *each), device(f"e{n}", *each)) for each in members)
            for n, members in stock.items()
        }
        with_memory = arrange(spec, "n", raws, memory)
        assert arrange(spec, "n", raws) == with_memory
        for resource in with_memory.resources.values():
            counted = replace(resource)  # knows nothing but its slots
            for fact in ("by_id", "ids", "raws", "by_raw", "healthy", "list_bytes"):
                assert getattr(counted, fact) == getattr(resource, fact)
