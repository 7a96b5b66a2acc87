"""The section `faults`: its meaning, and its errors with their places."""

import re

import pytest

from vdev.config import load_rules, load_text
from vdev.errors import ConfigError
from vdev.faults.effects import (
    ApiFaults,
    ConditionFault,
    EventFault,
)
from vdev.faults.rules import Select, words
from vdev.model.device import Health

HEAD = """version: v1
flags: {migStrategy: mixed}
node: {events: true, conditions: true}
devices:
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 4}
    partitions: {"0": [1g.5gb, 2g.10gb]}
  - {name: acme, resource: acme.dev/npu, virtual: {count: 2, numa: [0, 1]}}
  - {name: edge, resource: example.com/edge, onNodes: ["edge-*"], virtual: {count: 1}}
  - {name: uart, resource: example.com/uart, glob: /dev/ttyUSB*}
  - {name: claims, resource: acme.dev/claims, advertise: [dra], virtual: {count: 4}}
"""
FALLEN = "Xid 79: GPU has fallen off the bus"
FIRST = HEAD.count("\n") + 4  # the line of the first rule


def faults(*rules, seed=7):
    """Load a configuration with these rules, each in flow style."""
    text = HEAD + f"faults:\n  seed: {seed}\n  rules:\n" + "".join(f"    - {{{rule}}}\n" for rule in rules)
    return load_text(text, "f.yaml").spec.faults


def refused(*rules, seed=7):
    """The error text for these rules."""
    with pytest.raises(ConfigError) as error:
        faults(*rules, seed=seed)
    return str(error.value)


def test_references():
    """A reference is an entry, an entry with an index, a range, a partition or all, or an id."""
    (rule,) = faults('name: x, devices: [acme, "a100/1-2", "a100/0:1", "uart/*", acme-1], health: Unhealthy').rules
    expected = (
        Select(entry="acme"),
        Select(entry="a100", index=["1-2"]),
        Select.model_construct(entry="a100", index=("0:1",)),
        Select(entry="uart"),
        Select(id="acme-1"),
    )
    assert expected == rule.devices.alternatives(["a100", "acme", "edge", "uart"])


WRONG = [
    ('devices: ["a10/3"], health: Unhealthy', "devices[0]", "unknown device entry 'a10'.*did you mean 'a100'"),
    ('devices: ["a100/4"], health: Unhealthy', "devices[0]", "no device 4; the entry has 4"),
    ("devices: [acme-npu], health: Unhealthy, resource: acme.dev/nup", "resource", "did you mean 'acme.dev/npu'"),
    ("devices: [a100], health: Unhealthy, resource: nvidia.com/mig-7g.40gb", "resource", "unknown resource"),
    ("devices: [nothing-1], health: Unhealthy", "devices[0]", "unknown device 'nothing-1'"),
    ("devices: {entry: acm}, health: Unhealthy", "devices.entry", "unknown device entry"),
    ("devices: {profile: 9g.1gb}, health: Unhealthy", "devices.profile", "unknown profile"),
    ("devices: {entry: acme, index: 2}, health: Unhealthy", "devices.index", "there is no device 2"),
    ('devices: ["a100/2-9"], health: Unhealthy', "devices[0]", "no device 4; the entry has 4"),
    ("devices: [GPU-0000], health: Unhealthy", "devices[0]", "unknown device 'GPU-0000'"),
    ("devices: {pick: 2, share: 10%}, health: Unhealthy", "devices.share", "exclude each other"),
    ("devices: [acme], at: -1s, health: Unhealthy", "at", "expected a duration"),
    ("devices: [acme], for: 0s, health: Unhealthy", "for", "expected more than 0"),
    ("devices: [acme], every: 10s, health: Unhealthy", "every", "without `for` it never ends"),
    ("devices: [acme], every: 10s, for: 11s, health: Unhealthy", "for", "begin again before it ends"),
    ("devices: [acme], every: 10s, for: 8s, jitter: 20%, health: Unhealthy", "for", "at most 6 s fit"),
    ("devices: [acme], jitter: 20%, health: Unhealthy", "jitter", "needs every, at or flap"),
    ("devices: [acme], jitter: 60%, at: 5s, health: Unhealthy", "jitter", "too much"),
    ("devices: [acme], times: 3, health: Unhealthy", "times", "times needs every"),
    ("devices: [acme], flap: {up: 0s, down: 5s}", "flap.up", "expected more than 0"),
    ("devices: [acme], health: Unhealthy, remove: true", "remove", "health and remove exclude"),
    ("devices: [acme], health: Sick", "health", "expected Healthy or Unhealthy"),
    ("devices: [acme]", "", "has no effect"),
    ("devices: [acme], drop: true", "drop", "allowHarmful: true"),
    ("stream: {oversized: true}", "stream", "allowHarmful: true"),
    ("stream: {close: true, stall: true}", "stream", "exactly one of"),
    ("stream: {}", "stream", "nothing fails"),
    ("rpc: Allocate", "", "nothing happens to the calls"),
    ("delay: 5s", "", "no calls are named"),
    ("rpc: Alocate, hang: true", "rpc", "did you mean 'Allocate'"),
    ("rpc: Allocate, delay: {p50: 9s, max: 8s}", "delay", "p50 9 s is longer than max 8 s"),
    ("rpc: Allocate, hang: true, error: {}", "error", "exclude each other"),
    ("rpc: ListAndWatch, answer: {empty: true}", "answer", "use stream for wrong lists"),
    ("rpc: Allocate, error: {code: OOPS}", "error.code", "expected one of CANCELLED, .* and 6 more; see vdev schema$"),
    ("rpc: Allocate, hang: true, probability: 1.5", "probability", "1.5 is more than 1"),
    ("rpc: Allocate, hang: true, nth: 2, everyNth: 2", "everyNth", "exclude each other"),
    ("devices: [acme], health: Unhealthy, manual: true, onAllocate: true", "manual", "exclude each other"),
    ("devices: [acme], register: {never: true}", "devices", "devices is for faults of devices"),
    ("register: {version: v1beta1}", "register.version", "the kubelet accepts v1beta1"),
    ("process: {exit: 256}", "process.exit", "expected 0 to 255"),
    ("process: {exit: 1}, for: 5s", "for", "ends at once"),
    ("process: {exit: 1}, resource: acme.dev/npu", "resource", "the whole plugin"),
    ("proces: {exit: 1}", "proces", "did you mean 'process'"),
]


@pytest.mark.parametrize(
    ("rule", "place", "what"),
    [
        ("name: -x, process: {exit: 1}", "name", "not allowed"),
        ("process: {exit: 1}", "", "'name' is missing"),
        *((f"name: x, {rule}", place, what) for rule, place, what in WRONG),
    ],
)
def test_bad_rule(rule, place, what):
    """A wrong rule is refused at its place, with the error and what is allowed."""
    text = refused(rule)
    path = f"faults.rules[0]{f'.{place}' if place else ''}:"
    assert f"f.yaml:{FIRST}:" in text
    assert path in text
    assert re.search(what, text)


def test_errors_in_other_effects(subtests):
    """Xids, node objects, requests to the API server, claims and ResourceSlices."""
    cases = [
        ("xid: 0", "out of range"),
        ("xid: 79, flap: {up: 1s, down: 1s}", "xid and flap exclude each other"),
        ("event: {reason: two words, message: x}", "not a valid reason"),
        ("event: {reason: A, message: x}, for: 5s", "an Event happens at one moment"),
        ("event: {reason: A, message: x}, devices: [a100/0]", "devices is for faults of devices, and this is event"),
        ("event: {reason: A, message: x}, resource: nvidia.com/gpu", "concerns the whole plugin"),
        ("event: {reason: A, message: x, type: Bad}", "expected Normal or Warning"),
        (f"event: {{reason: A, message: {'x' * 1025}}}", "at most 1024"),
        ("condition: {type: Ready, status: false}", "belongs to the kubelet"),
        ("condition: {type: GpuHealthy, status: Unknown}", "expected true or false"),
        ("api: {}", "no request fails"),
        ("api: {unreachable: true, status: 403}", "unreachable and status exclude each other"),
        ("api: {status: 404}", "expected 403, 409, 429, 500 or 503"),
        ("api: {status: 403, retryAfter: 5s}", "retryAfter is for status 429 and 503 only"),
        ("api: {status: 429, retryAfter: 500ms}", "whole seconds"),
        ("api: {watch: broken, verbs: [get]}", "watch and verbs exclude each other"),
        ("api: {unreachable: true, verbs: [head]}", "expected get, list, watch, create, update, patch or delete"),
        ("api: {unreachable: true}, error: {}", "error is for rpc only, and this is api"),
        ("rpc: NodePrepare, hang: true", "NodePrepareResources"),
        ("rpc: NodePrepareResources, answer: {empty: true}", "only Allocate and GetPreferredAllocation can have"),
        ("rpc: NodeUnprepareResources, answer: {wrongDevice: true}", "only NodePrepareResources can have this answer"),
        ("rpc: Allocate, answer: {skipClaim: true}", "not Allocate"),
        ("rpc: NodePrepareResources, answer: {skipClaim: true, claimError: x}", "exclude each other"),
        ("rpc: NodePrepareResources, hang: true, resource: acme.dev/npu", "unknown driver 'acme.dev/npu'"),
        ("slices: {wiped: true, withheld: true}", "withheld and wiped exclude each other"),
        ("slices: {withheld: true}, resource: example.com/uart", "known: acme.dev"),
        ("slices: {withheld: true}, devices: [claims/0]", "devices is for faults of devices, and this is slices"),
        ("slices: {withheld: true}, every: 1m", "without `for` it never ends"),
        ("healthStream: {silent: true, ended: true}", "silent and ended exclude each other"),
        ("taint: {key: two words}", "not a valid key"),
        ("taint: {key: acme.dev/x, value: a b}", "not a valid label value"),
        ("taint: {key: acme.dev/x, effect: Never}", "expected NoSchedule, NoExecute or None"),
        ("taint: {key: acme.dev/x}, health: Unhealthy", "health and taint exclude each other"),
        ("taint: {key: acme.dev/x}, reason: y", "reason is for health, xid and flap only"),
        ("taint: {key: acme.dev/x}, devices: [claims/7]", "there is no device 7"),
    ]
    for rule, why in cases:
        with subtests.test(rule=rule):
            text = refused(f"name: x, {rule}")
            assert why in text
            assert f"f.yaml:{FIRST}:" in text


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
def test_xids(rule, verdict, said):
    """The effect, and its text for users."""
    (made,) = faults(f"name: x, {rule}").rules
    assert made.verdict == (verdict and Health(*verdict, "x"))
    assert said in words(made)


def test_rules_about_the_node(subtests):
    """The effect, and its text for users, which is the rule unless the case has another one."""
    limited = "api: {status: 403, verbs: [patch], resources: [nodes/status, events]}"
    dead = "condition: {type: GpuHealthy, status: false, reason: Dead, message: all dead}"
    cases = [
        ("event: {reason: GpuHot, message: too hot}", EventFault(reason="GpuHot", message="too hot")),
        ("event: {reason: A, message: b, type: Normal}", EventFault(reason="A", message="b", type="Normal")),
        (dead, ConditionFault(type="GpuHealthy", status=False, reason="Dead", message="all dead")),
        ("condition: {type: Odd, status: true}", ConditionFault(type="Odd", status=True, reason="Drill")),
        ("api: {unreachable: true}", ApiFaults(unreachable=True)),
        (
            "api: {status: 429, retryAfter: 5s}, everyNth: 3",
            ApiFaults(status=429, retryAfter=5),
            "everyNth: 3, api: {status: 429, retryAfter: 5.0}",
        ),
        (
            limited.replace("[patch]", "patch"),
            ApiFaults(status=403, verbs=["patch"], resources=["nodes/status", "events"]),
            limited,
        ),
        ("api: {watch: broken}", ApiFaults(watch="broken")),
    ]
    for rule, meant, *said in cases:
        with subtests.test(rule=rule):
            (made,) = faults(f"name: x, {rule}").rules
            assert meant in (made.event, made.condition, made.api)
            assert (said or [rule])[0] in words(made)


def test_valid_combinations():
    """Any index of real devices, a harmful rule with consent, several Xids of a device, conditions and requests."""
    faults(
        "name: a, devices: {index: 9}, xid: 79",
        "name: b, xid: 31",
        "name: c, devices: [acme], drop: true, allowHarmful: true",
        "name: d, condition: {type: A, status: true}",
        "name: e, condition: {type: B, status: false}",
        "name: f, api: {status: 403, verbs: [patch]}",
        "name: g, api: {watch: broken}",
    )


def test_rule_names_are_unique():
    text = refused("name: x, process: {exit: 1}", "name: x, process: {exit: 2}")
    assert f"f.yaml:{FIRST + 1}:" in text
    assert "the name 'x' is taken" in text


def test_every_wrong_rule_is_reported():
    text = refused("name: x, devices: [nothing], health: Unhealthy", "name: y, rpc: Alocate", "name: z")
    assert ["rules[0]" in text, "rules[1]" in text, "rules[2]" in text] == [True, True, True]


def test_rules_are_never_half_applied():
    """Partial loading does not leave out a wrong rule; it refuses the file."""
    text = HEAD + "faults: {rules: [{name: x, process: {exit: 1}, at: 5s}, {name: y}]}\n"
    with pytest.raises(ConfigError, match="has no effect"):
        load_text(text, partial=True)


def test_a_shorthand_has_its_place():
    """A plain delay is the value of both bounds, with its place."""
    origins = load_text(HEAD + "faults: {rules: [{name: x, rpc: Allocate, delay: 2s}]}", "f.yaml").origins()
    places = {each.path: each.source for each in origins if ".delay." in each.path}
    assert {"faults.rules[0].delay.p50", "faults.rules[0].delay.max"} == set(places)
    assert {True} == {source.startswith("f.yaml:") for source in places.values()}


def test_rules_outside_of_the_configuration():
    """A separate text has one rule or several, and is checked against the configuration."""
    spec = load_text(HEAD + "faults: {seed: 9}").spec
    one = load_rules("{name: x, devices: [acme], health: Unhealthy}", "<live>", spec)
    many = load_rules("rules:\n  - {name: x, devices: [acme], health: Unhealthy}\n", "<live>", spec)
    assert one == many
    assert [9] == [rule.seed for rule in one]
    with pytest.raises(ConfigError, match=r"<live>:1:21: .*unknown device entry 'nope'"):
        load_rules('{name: x, devices: ["nope/1"], health: Unhealthy}', "<live>", spec)


@pytest.mark.parametrize(
    "rule", ["devices: [a100/0:3]", "resource: nvidia.com/mig-1g.5gb", "devices: {profile: 3g.20gb}"]
)
def test_rules_for_partitions_of_a_layout(rule):
    """The rule is valid if a layout that a label can select has these partitions."""
    chosen = HEAD.replace('{"0": [1g.5gb, 2g.10gb]}', "{fromLabel: nvidia.com/mig.config, default: all-disabled}")
    text = chosen + f"faults:\n  rules:\n    - {{name: x, {rule}, at: 5s, health: Unhealthy}}\n"
    (found,) = load_text(text).spec.faults.rules
    assert "x" == found.name
