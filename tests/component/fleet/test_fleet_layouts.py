"""Partition layouts that a label of a Node selects, in a fleet."""

import pytest

from tests.kit.fleet import add_claim, capacity, node, slices

LAYOUTS = """
version: v1
flags: {migStrategy: mixed}
devices:
  - name: gpu
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 1}
    partitions: {fromLabel: nvidia.com/mig.config, default: all-disabled}
node: {labels: true}
fleet: {nodes: [{selector: {type: kwok}}]}
"""
MEDIUM, LARGE = (f"nvidia.com/mig-{profile}" for profile in ("2g.10gb", "3g.20gb"))


@pytest.fixture
def choose(api_server):
    """Set the label that selects the layout."""

    async def choose(value):
        labels = {"nvidia.com/mig.config": value}
        await api_server.edit("nodes", "n", {"metadata": {"labels": labels}}, manager="kubectl")

    return choose


@pytest.fixture
def state(api_server):
    """Read the label with the state of the layout."""
    return lambda: node(api_server, "n")["metadata"]["labels"].get("nvidia.com/mig.config.state")


async def test_a_label_selects_the_layout_of_a_node(start, api_server, until, choose, state):
    """As with an agent: devices that a pod holds are not repartitioned, and a label shows the state."""
    await api_server.add("nodes", {"metadata": {"name": "n", "labels": {"type": "kwok"}}})

    first = await start(LAYOUTS)
    await until(lambda: ["1", "1"] == capacity(api_server, "n", "nvidia.com/gpu"))
    assert state() is None
    await choose("all-3g.20gb")
    await until(lambda: ["2", "2"] == capacity(api_server, "n", LARGE) and "success" == state())
    held = {"containers": [{"name": "main", "image": "x", "resources": {"limits": {LARGE: "1"}}}], "nodeName": "n"}
    await api_server.add("pods", {"metadata": {"name": "holder"}, "spec": held}, namespace="default")
    await until(
        lambda: (
            "vdev.dev/devices" in (api_server.object("pods", "holder", "default")["metadata"].get("annotations") or {})
        )
    )
    await choose("all-1g.5gb")
    await until(lambda: "failed" == state())
    assert ["2", "2"] == capacity(api_server, "n", LARGE)
    await first.stop()
    again = await start(LAYOUTS)
    await until(lambda: again.has_begun and again.is_settled and "failed" == state())
    assert ["2", "2"] == capacity(api_server, "n", LARGE)
    await api_server.remove("pods", "holder", namespace="default")
    await choose("all-2g.10gb")
    await until(lambda: ["3", "3"] == capacity(api_server, "n", MEDIUM) and "success" == state())
    await choose(None)
    await until(lambda: ["1", "1"] == capacity(api_server, "n", "nvidia.com/gpu") and state() is None)


CLAIMED = LAYOUTS.replace("    partitions:", "    advertise: [dra]\n    partitions:")


async def test_claimed_partitions_are_kept_after_a_restart(start, api_server, until, choose, state):
    """Even if the label changed while no controller ran, and no pod has an annotation about the device."""
    labels = {"type": "kwok", "nvidia.com/mig.config": "all-3g.20gb"}
    await api_server.add("nodes", {"metadata": {"name": "n", "labels": labels}})
    first = await start(CLAIMED)
    large = ["gpu-0-mig-3g20gb-9-0", "gpu-0-mig-3g20gb-9-4"]
    await until(lambda: large == slices(api_server, "n") and "success" == state())
    await add_claim(api_server, large[1], ("acme.dev", "x"), pod="p")
    await first.stop()
    await choose("all-1g.5gb")
    again = await start(CLAIMED)
    await until(lambda: again.has_begun and again.is_settled and "failed" == state())
    assert large == slices(api_server, "n")
    await api_server.remove("resourceclaims", "c", namespace="default")
    await choose("all-2g.10gb")
    await until(lambda: 3 == len(slices(api_server, "n")) and "success" == state())
