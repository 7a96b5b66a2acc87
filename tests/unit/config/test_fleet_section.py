"""The section `fleet`: its nodes."""

import pytest

from vdev import config
from vdev.errors import ConfigError
from vdev.fleet.scope import Scope

HEAD = (
    "version: v1\ndevices: [{name: a, resource: example.com/a, virtual: {count: 1}}, "
    "{name: b, resource: example.com/b, virtual: {count: 1}, onNodes: a}]\nfleet:\n  nodes:\n"
)


def load(*items):
    """The fleet of a file with these items."""
    return config.load_text(HEAD + "".join(f"    - {each}\n" for each in items), "f.yaml").spec.fleet


def test_nodes_from_ranges():
    """They have labels with the numbers, KWOK's annotation, and the given capacity."""
    spec = load('{name: "r{1..2}-g{0..1}", labels: {rack: "r{1}", slot: "{2}"}, capacity: {cpu: 96, memory: 1Ti}}')
    (node, *others) = Scope(spec).made.values()
    assert ("r1-g0", 3) == (node.name, len(others))
    assert {"rack": "r1", "slot": "0"}.items() <= node.metadata["labels"].items()
    assert {"kwok.x-k8s.io/node": "fake"}.items() <= node.metadata["annotations"].items()
    assert {"cpu": "96", "memory": "1Ti"} == node.of.capacity


def test_a_selector_needs_all_labels():
    (chosen,) = load("{selector: {type: kwok, pool: a}, devicesAfter: 30s}").nodes
    assert (30.0, None) == (chosen.devices_after, chosen.slices_after)
    assert [True, False] == [chosen.includes({"type": "kwok", "pool": "a", "x": ""}), chosen.includes({"type": "kwok"})]


def test_errors(subtests):
    cases = [
        (["{}"], "fleet.nodes[0]: no nodes are given"),
        (["{name: a, selector: {a: b}}"], "fleet.nodes[0]"),
        (['{name: "gpu-{0..999999}"}'], "fleet.nodes[0].name: gpu-{0..999999} makes 1000000 nodes; a file makes 20000"),
        (['{name: "a{0..14999}"}', '{name: "b{0..14999}"}'], "fleet.nodes[1].name: b{0..14999} makes 15000 nodes"),
        (["{name: GPU-1}"], "fleet.nodes[0].name: 'GPU-1' is not a valid name of a node"),
        (['{name: "a{0..3}"}', "{name: a2}"], "fleet.nodes[1].name: the node a2 is made twice; it is among those at f"),
        (
            ['{name: "a{0..1}", labels: {x: "{2}"}}'],
            "labels.x: '{2}' has the unknown placeholder {2}; known: {name}, {1}",
        ),
        (['{name: a, labels: {x: "a b"}}'], "fleet.nodes[0].labels.x: 'a b' is not a valid label value"),
        (["{selector: {a: b}, capacity: {cpu: 1}}"], "fleet.nodes[0].capacity: capacity is for name only"),
        (["{selector: {}}"], "the selector is empty"),
        (["{name: a, capacity: {cpu: '" + "9" * 5000 + "'}}"], "fleet.nodes[0].capacity.cpu"),
        (["{name: a, capacity: {memory: 96K}}"], "fleet.nodes[0].capacity.memory: '96K' is not allowed"),
        (["{name: a, labels: {vdev.dev/made-by: me}}"], "vdev.dev/made-by is reserved"),
        (["{name: a, annotations: {vdev.dev/taints: x}}"], "vdev.dev/taints is reserved"),
    ]
    for items, said in cases:
        with subtests.test(items=items):
            with pytest.raises(ConfigError) as refused:
                load(*items)
            assert said in str(refused.value)


def test_valid_nodes(subtests):
    """Capacity in several forms, a key with several taints, and an own hostname."""
    cases = [
        ["{name: a, capacity: {cpu: 1500m, memory: 1.5Gi, pods: 1k, acme.dev/x: 2, hugepages-2Mi: 1Gi}}"],
        ["{name: a, taints: [{key: x, effect: NoSchedule}, {key: x, effect: NoExecute}]}"],
        ["{name: a, labels: {vdev.dev/config: x}}"],
        ['{name: "n{1..2}.' + "a." * 31 + 'b", labels: {kubernetes.io/hostname: "n{1}"}}'],
    ]
    for items in cases:
        with subtests.test(items=items):
            load(*items)
