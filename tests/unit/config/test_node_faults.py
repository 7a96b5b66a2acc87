"""Fault rules about Xids and about the node's door to the API server: what they mean, and what is wrong with them."""

import pytest

from tests.kit.rules import with_rules
from vdev.config import load_text
from vdev.errors import ConfigError
from vdev.faults.effects import ApiFaults, ConditionFault, EventFault
from vdev.faults.rules import words
from vdev.model.device import Health

HEAD = """version: v1
node: {events: true, conditions: true}
devices:
  - {name: a100, resource: nvidia.com/gpu, virtual: {preset: a100-sxm4-40gb, count: 4}}
"""
FALLEN = "Xid 79: GPU has fallen off the bus"


def loaded(*rules, head=HEAD):
    """The configuration with these rules, each in flow style."""
    return load_text(with_rules(head, *rules), "f.yaml")


def refused(*rules):
    """Why these rules are refused."""
    with pytest.raises(ConfigError) as error:
        loaded(*rules)
    return str(error.value)


@pytest.mark.parametrize(
    ("rule", "verdict", "said"),
    [
        ("xid: 79", (False, FALLEN), f"xid: 79 ({FALLEN})"),
        ("xid: 200", (False, "Xid 200"), "xid: 200 (Xid 200)"),
        ("xid: 79, reason: gone", (False, "gone"), f"xid: 79, reason: gone ({FALLEN})"),
        ("xid: 79, health: Healthy", (True, ""), f"health: Healthy, xid: 79 ({FALLEN})"),
        ("xid: 31", None, "xid: 31 (Xid 31: GPU memory page fault)"),
        ("xid: 31, health: Unhealthy", (False, "Xid 31: GPU memory page fault"), "health: Unhealthy, xid: 31"),
    ],
)
def test_what_xids_mean(rule, verdict, said):
    """And what is said of them to people."""
    (made,) = loaded(f"name: x, {rule}").spec.faults.rules
    assert made.verdict == (verdict and Health(*verdict, "x"))
    assert said in words(made)


def test_what_rules_mean(subtests):
    """And what is said of them to people."""
    cases = [
        (
            "event: {reason: GpuHot, message: too hot}",
            EventFault(reason="GpuHot", message="too hot"),
            "event: {reason: GpuHot, message: too hot}",
        ),
        (
            "event: {reason: A, message: b, type: Normal}",
            EventFault(reason="A", message="b", type="Normal"),
            "event: {reason: A, message: b, type: Normal}",
        ),
        (
            "condition: {type: GpuHealthy, status: false, reason: Dead, message: all dead}",
            ConditionFault(type="GpuHealthy", status=False, reason="Dead", message="all dead"),
            "condition: {type: GpuHealthy, status: false, reason: Dead, message: all dead}",
        ),
        (
            "condition: {type: Odd, status: true}",
            ConditionFault(type="Odd", status=True, reason="Drill"),
            "condition: {type: Odd, status: true}",
        ),
        ("api: {unreachable: true}", ApiFaults(unreachable=True), "api: {unreachable: true}"),
        (
            "api: {status: 429, retryAfter: 5s}, everyNth: 3",
            ApiFaults(status=429, retryAfter=5),
            "everyNth: 3, api: {status: 429, retryAfter: 5.0}",
        ),
        (
            "api: {status: 403, verbs: patch, resources: [nodes/status, events]}",
            ApiFaults(status=403, verbs=["patch"], resources=["nodes/status", "events"]),
            "api: {status: 403, verbs: [patch], resources: [nodes/status, events]}",
        ),
        ("api: {watch: broken}", ApiFaults(watch="broken"), "api: {watch: broken}"),
    ]
    for rule, meant, said in cases:
        with subtests.test(rule=rule):
            (made,) = loaded(f"name: x, {rule}").spec.faults.rules
            assert meant in (made.event, made.condition, made.api)
            assert said in words(made)


def test_what_is_wrong(subtests):
    """With its place."""
    cases = [
        ("xid: 0", "out of range"),
        ("xid: 79, flap: {up: 1s, down: 1s}", "xid and flap exclude each other"),
        ("xid: 31, reason: because", "leaves the health alone"),
        ("event: {reason: two words, message: x}", "not a valid reason"),
        ("event: {reason: A, message: x}, for: 5s", "an Event is of a moment"),
        ("event: {reason: A, message: x}, devices: [a100/0]", "devices is for faults of devices, and this is event"),
        ("event: {reason: A, message: x}, resource: nvidia.com/gpu", "concerns the whole plugin"),
        ("event: {reason: A, message: x, type: Bad}", "expected Normal or Warning"),
        ("event: {reason: A}", "message"),
        (f"event: {{reason: A, message: {'x' * 1025}}}", "at most 1024"),
        ("condition: {type: Ready, status: false}", "belongs to the kubelet"),
        ("condition: {type: GpuHealthy}", "status"),
        ("condition: {type: GpuHealthy, status: Unknown}", "expected true or false"),
        ("api: {}", "no request fails"),
        ("api: {unreachable: true, status: 403}", "unreachable and status exclude each other"),
        ("api: {status: 404}", "expected 403, 409, 429, 500 or 503"),
        ("api: {status: 403, retryAfter: 5s}", "retryAfter is for status 429 and 503 only"),
        ("api: {status: 429, retryAfter: 500ms}", "whole seconds"),
        ("api: {watch: broken, verbs: [get]}", "watch and verbs exclude each other"),
        ("api: {unreachable: true, verbs: [head]}", "expected get, list, watch, create, update, patch or delete"),
        ("api: {unreachable: true}, error: {}", "error is for rpc only, and this is api"),
    ]
    for rule, why in cases:
        with subtests.test(rule=rule):
            text = refused(f"name: x, {rule}")
            assert why in text
            assert "f.yaml:7:" in text


def test_what_can_go_together():
    """Several Xids of one device, conditions of different types, failures of different requests."""
    loaded(
        "name: a, xid: 79",
        "name: b, xid: 31",
        "name: c, health: Unhealthy",
        "name: d, condition: {type: A, status: true}",
        "name: e, condition: {type: B, status: false}",
        "name: f, api: {status: 403, verbs: [patch]}",
        "name: g, api: {watch: broken}",
    )
