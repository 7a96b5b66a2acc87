"""Imagined nodes: their names fit what they stand for, and their devices are those of the real node of that name."""

from fnmatch import fnmatchcase
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from vdev import config, discovery
from vdev.hostfs import HostRoot
from vdev.planning import inventory

PATTERNS = st.text("abx0-*?[]!", min_size=1, max_size=6)


@given(st.lists(PATTERNS, max_size=4))
@example(["*"])
@example(["gpu-[!a-z]?"])
@example(["[ab]", "[!ab]"])
@example(["node", "n*", "x", "o*", "[0-9]"])
def test_there_is_a_node_for_each_pattern_and_one_that_none_means(patterns: list[str]) -> None:
    """A pattern that can match something has its node; a node that no pattern means is there unless `*` is."""
    names = inventory.node_names(patterns)
    assert names
    for pattern in patterns:
        plain = not set("[!]") & set(pattern)
        assert not plain or any(fnmatchcase(name, pattern) for name in names)
    if not any(set("*?[") & set(pattern) for pattern in patterns):
        assert any(name not in patterns for name in names)


def test_the_node_of_a_set_is_one_that_it_means() -> None:
    """Also where the set says what it does not mean."""
    assert ("node", "gpu-0x", "npu-a") == inventory.node_names(["gpu-[!a-z]?", "npu-[a-c]"])


def test_imagined_devices_are_those_of_the_real_node() -> None:
    """One way to make ids for `validate`, `plan` and the plugin."""
    text = "devices: [{name: a, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 2}}]"
    spec = config.load_text(text).spec
    found = discovery.discover(spec.entries[0], HostRoot(Path("/")), node="gpu-7")
    resource = inventory.inventory(spec, "gpu-7").resources["nvidia.com/gpu"]
    assert [device.id for device in found.devices] == [slot.id for slot in resource.slots]
