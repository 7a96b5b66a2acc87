"""The section `node`, and the labels and conditions of entries."""

import pytest

from tests.kit.refused import check_refusals, refusals
from vdev import config
from vdev.model.entry import Condition, TrueWhen
from vdev.model.spec import Node

ENTRY = "devices:\n- name: a\n  resource: example.com/a\n  virtual: {attributes: {m: x}}\n  "


def test_everything_is_off_by_default():
    assert Node() == config.load_text("devices: []").spec.node
    assert Node() == config.load_text("devices: []\nnode: {}").spec.node


@pytest.mark.parametrize(("written", "meant"), [("false", False), ("true", True), ("nfd", "nfd"), ('"nfd"', "nfd")])
def test_values_of_labels(written, meant):
    loaded = config.load_text(f"devices: []\nnode: {{labels: {written}, events: true, conditions: true, status: true}}")
    assert Node(labels=meant, events=True, conditions=True, status=True) == loaded.spec.node


def test_errors_in_the_section(subtests):
    cases = [
        ("{labels: yes}", "expected true, false or nfd"),
        ('{labels: "true"}', "remove the quotes"),
        ("{labels: NFD}", "expected true, false or nfd, got the string 'NFD'"),
        ("{labels: 1}", "expected true, false or nfd, got the number 1"),
        ("{labels: }", "node.labels: 'labels' has no value"),
        ("{events: 1}", "node.events: expected true or false"),
        ("{label: true}", "unknown key 'label'"),
        ("[]", "node: expected a mapping"),
    ]
    check_refusals(subtests, cases, "devices: []\nnode: @")


def test_labels_and_conditions_of_an_entry():
    text = (
        "node: {labels: true, conditions: true}\n" + ENTRY + 'labels: {acme.dev/l: "m-{attributes.m}", empty: ""}\n  '
        "conditions: [{type: GpuHealthy}, {type: GpuLost, trueWhen: unhealthy, reason: Lost, message: gone}]"
    )
    loaded = config.load_text(text)
    assert () == loaded.problems
    (entry,) = loaded.spec.entries
    assert {"acme.dev/l": "m-x", "empty": ""} == {
        key: template.render({"attributes.m": "x"}) for key, template in entry.labels.items()
    }
    assert (
        Condition(type="GpuHealthy"),
        Condition(type="GpuLost", trueWhen=TrueWhen.UNHEALTHY, reason="Lost", message="gone"),
    ) == entry.conditions


def test_errors_in_an_entry(subtests):
    cases = [
        ("labels: {a b: x}", "f:5:12: devices[0].labels[\"a b\"]: 'a b' is not a valid label key"),
        ("labels: {kubernetes.io/hostname: x}", "belongs to Kubernetes"),
        ("labels: {a: -x}", "is not a valid label value"),
        ("labels: {a: x y}", "is not a valid label value"),
        (f"labels: {{a: {'x' * 64}}}", "has 64 characters; at most 63 are allowed"),
        (f"labels: {{a: '{{id}}{'x' * 64}'}}", "has 65 characters; at most 63 are allowed"),
        ("labels: {a: '-{id}'}", "is not a valid label value"),
        ("labels: {a: '{id}/{index}'}", "is not a valid label value"),
        ("labels: {a: '{attributes.n}'}", "unknown attribute 'n'"),
        ("labels: {a: '{nope}'}", "unknown placeholder {nope}"),
        ("labels: {a: '{id'}", "stray '{'"),
        ("labels: {a: 1}", "write it in quotes"),
        ("labels: {a: }", "labels.a: 'a' has no value"),
        ("conditions: [{}]", "'type' is missing"),
        ("conditions: [{type: Ready}]", "conditions[0].type: the condition Ready belongs to the kubelet"),
        ("conditions: [{type: a b}]", "'a b' is not a valid type of a condition"),
        ("conditions: [{type: A, reason: a b}]", "'a b' is not a valid reason"),
        ("conditions: [{type: A, trueWhen: never}]", "expected healthy or unhealthy"),
        ("conditions: [{type: A}, {type: A}]", "f:5:34: devices[0].conditions[1].type: the condition A is given twice"),
    ]
    check_refusals(subtests, cases, f"{ENTRY}@")


def test_entries_with_the_same_condition_must_agree():
    def text(*both):
        return "".join(
            f"- {{name: {name}, resource: a.b/{name}, virtual: {{}}, onNodes: [{node}], "
            f"conditions: [{{type: A, trueWhen: {when}}}]}}\n"
            for name, (when, node) in zip("ab", both, strict=True)
        )

    head = "node: {conditions: true}\ndevices:\n"
    assert () == config.load_text(head + text(("healthy", "x"), ("healthy", "x"))).problems
    apart = text(("healthy", "x"), ("unhealthy", "y"))
    assert () == config.load_text(head + apart).problems
    (said,) = refusals(head + text(("healthy", "x"), ("unhealthy", "x")))
    assert "the condition A is True while devices are healthy at f:3:" in said


def test_entries_cannot_set_labels_that_select_a_layout():
    """This includes the label with the state, and labels of any entry."""
    text = """\
node: {labels: true}
flags: {migStrategy: mixed}
devices:
- {name: b, resource: a.b/c, virtual: {}, labels: {nvidia.com/mig.config.state: success}}
- name: a
  resource: nvidia.com/gpu
  virtual: {preset: a100-sxm4-40gb, count: 1}
  labels: {nvidia.com/mig.config: all-1g.5gb, nvidia.com/mig: x}
  partitions: {fromLabel: nvidia.com/mig.config}
"""
    state, chooser = refusals(text)
    assert (
        "the label nvidia.com/mig.config.state reports the state of nvidia.com/mig.config, which selects the" in state
    )
    assert "the label nvidia.com/mig.config selects the partitions of a; set it by other means than vdev" in chooser
