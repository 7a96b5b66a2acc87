"""Layouts that a label of a Node chooses, where no kubelet is."""

from tests.kit.fleet import capacity, node

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


async def test_a_label_chooses_the_layout_of_a_node(start, api_server, until):
    """As an agent follows it: what a pod holds is not cut, and the state is told on the Node."""
    await api_server.add("nodes", {"metadata": {"name": "n", "labels": {"type": "kwok"}}})

    async def choose(value):
        labels = {"nvidia.com/mig.config": value}
        await api_server.edit("nodes", "n", {"metadata": {"labels": labels}}, manager="kubectl")

    def state():
        return node(api_server, "n")["metadata"]["labels"].get("nvidia.com/mig.config.state")

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
