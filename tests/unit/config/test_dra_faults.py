"""Fault rules about claims, ResourceSlices and the health of their devices: what they mean, and what is wrong."""

import pytest

from tests.kit.rules import with_rules
from vdev.config import load_text
from vdev.errors import ConfigError

HEAD = """version: v1
devices:
  - {name: npu, resource: acme.dev/npu, advertise: [dra], virtual: {count: 4}}
  - {name: uart, resource: example.com/uart, virtual: {count: 2}}
"""


def loaded(*rules, head=HEAD):
    """The configuration with these rules, each in flow style."""
    return load_text(with_rules(head, *rules), "f.yaml")


def test_what_is_wrong(subtests):
    """With its place."""
    cases = [
        ("rpc: NodePrepare, hang: true", "NodePrepareResources"),
        ("rpc: NodePrepareResources", "nothing happens to the calls"),
        ("rpc: NodePrepareResources, answer: {empty: true}", "only Allocate and GetPreferredAllocation can have"),
        ("rpc: NodeUnprepareResources, answer: {wrongDevice: true}", "only NodePrepareResources can have this answer"),
        ("rpc: Allocate, answer: {skipClaim: true}", "not Allocate"),
        ("rpc: NodePrepareResources, answer: {skipClaim: true, claimError: x}", "exclude each other"),
        ("rpc: NodePrepareResources, hang: true, resource: acme.dev/npu", "unknown driver 'acme.dev/npu'"),
        ("slices: {}", "nothing fails"),
        ("slices: {wiped: true, withheld: true}", "withheld and wiped exclude each other"),
        ("slices: {withheld: true}, resource: example.com/uart", "known: acme.dev"),
        ("slices: {withheld: true}, devices: [npu/0]", "devices is for faults of devices, and this is slices"),
        ("slices: {withheld: true}, every: 1m", "without `for` it never ends"),
        ("slices: {late: 0s}", "late"),
        ("healthStream: {silent: true, ended: true}", "silent and ended exclude each other"),
        ("taint: {key: two words}", "not a valid key of a taint"),
        ("taint: {key: acme.dev/x, value: a b}", "not a valid label value"),
        ("taint: {key: acme.dev/x, effect: Never}", "expected NoSchedule, NoExecute or None"),
        ("taint: {}", "key"),
        ("taint: {key: acme.dev/x}, health: Unhealthy", "health and taint exclude each other"),
        ("taint: {key: acme.dev/x}, reason: y", "reason is for health, xid and flap only"),
        ("taint: {key: acme.dev/x}, devices: [npu/7]", "there is no device 7"),
    ]
    for rule, why in cases:
        with subtests.test(rule=rule):
            with pytest.raises(ConfigError) as error:
                loaded(f"name: x, {rule}")
            assert why in str(error.value)
            assert "f.yaml:7:" in str(error.value)
