"""The rules of the API server and of the scheduler's allocator for the ResourceSlices of a pool (Kubernetes 1.36).

It shares no code with the plugin, and knows nothing of it: only objects as they are written.
"""

import re
from collections import Counter
from fractions import Fraction

LABEL = re.compile(r"(?=.{1,63}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"(?=.{1,32}$)[A-Za-z_][A-Za-z0-9_]*")
QUALIFIED = re.compile(r"(?=.{1,63}$)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(-(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*)?(\+[0-9a-zA-Z.-]+)?"
)
QUANTITY = re.compile(r"(0|[1-9][0-9]*)(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?")
SCALE = {"": 1} | {f"{each}i": 1024**n for n, each in enumerate("KMGTPE", 1)}
SCALE |= {each: 1000**n for n, each in enumerate("kMGTPE", 1)}


def amount(text):
    """The value of a quantity."""
    assert isinstance(text, str), text
    found = QUANTITY.fullmatch(text)
    assert found, text
    return int(found[1]) * SCALE[found[2] or ""]


def check_pool(slices):
    """Raise an AssertionError for anything that makes a slice, or the pool of these slices, invalid."""
    assert slices
    heads = {(each["spec"]["driver"], each["spec"]["nodeName"], str(each["spec"]["pool"])) for each in slices}
    assert 1 == len(heads), heads
    pool = slices[0]["spec"]["pool"]
    assert len(slices) == pool["resourceSliceCount"]
    assert pool["generation"] >= 0
    sets, devices = {}, {}
    for each in slices:
        check_slice(each)
        for made in each["spec"].get("sharedCounters", ()):
            assert made["name"] not in sets, made["name"]
            sets[made["name"]] = {key: amount(value["value"]) for key, value in made["counters"].items()}
        for device in each["spec"].get("devices", ()):
            assert device["name"] not in devices, device["name"]
            devices[device["name"]] = device
    for device in devices.values():
        for consumed in device.get("consumesCounters", ()):
            known = sets[consumed["counterSet"]]
            for key, value in consumed["counters"].items():
                assert amount(value["value"]) <= known[key], (device["name"], key)
    return sets, devices


def check_slice(document):
    """Check one object."""
    assert ("resource.k8s.io/v1", "ResourceSlice") == (document["apiVersion"], document["kind"])
    spec = document["spec"]
    assert spec.keys() <= {"driver", "pool", "nodeName", "devices", "sharedCounters"}
    assert SUBDOMAIN.fullmatch(spec["driver"])
    assert len(spec["driver"]) <= 63
    assert spec["nodeName"]
    devices, sets = spec.get("devices", []), spec.get("sharedCounters", [])
    tight = any("taints" in each or "consumesCounters" in each for each in devices)
    assert len(devices) <= (64 if tight else 128)
    assert len(sets) <= 8
    assert not (devices and sets)
    for each in sets:
        assert LABEL.fullmatch(each["name"]), each["name"]
        assert 1 <= len(each["counters"]) <= 32
        _check_counters(each["counters"])
    for each in devices:
        check_device(each)


def check_device(device):
    """Check one device."""
    known = {"name", "attributes", "capacity", "consumesCounters", "taints", "allowMultipleAllocations"}
    assert device.keys() <= known
    assert LABEL.fullmatch(device["name"]), device["name"]
    attributes, capacity = device.get("attributes", {}), device.get("capacity", {})
    assert len(attributes) + len(capacity) <= 32, (len(attributes), len(capacity))
    for key, value in attributes.items():
        _check_key(key)
        _check_attribute(value)
    shared = device.get("allowMultipleAllocations", False)
    for key, value in capacity.items():
        _check_key(key)
        assert value.keys() <= {"value", "requestPolicy"}
        if policy := value.get("requestPolicy"):
            assert shared
            _check_policy(policy, amount(value["value"]))
        else:
            amount(value["value"])
    used = [each["counterSet"] for each in device.get("consumesCounters", ())]
    assert len(used) <= 2
    assert len(used) == len(set(used))
    for each in device.get("consumesCounters", ()):
        assert 1 <= len(each["counters"]) <= 32
        _check_counters(each["counters"])
    taints = device.get("taints", [])
    assert len(taints) <= 16
    assert 1 == max(Counter((each["key"], each["effect"]) for each in taints).values(), default=1)
    for each in taints:
        domain, _, name = each["key"].rpartition("/")
        assert SUBDOMAIN.fullmatch(domain)
        assert QUALIFIED.fullmatch(name)
        assert "value" not in each or QUALIFIED.fullmatch(each["value"])
        assert each["effect"] in ("None", "NoSchedule", "NoExecute")


def _check_key(key):
    domain, slash, name = key.rpartition("/")
    assert IDENTIFIER.fullmatch(name), key
    assert not slash or (SUBDOMAIN.fullmatch(domain) and len(domain) <= 63), key


def _check_attribute(value):
    ((kind, held),) = value.items()
    match kind:
        case "int":
            assert type(held) is int
            assert -(2**63) <= held < 2**63
        case "bool":
            assert type(held) is bool
        case "string":
            assert isinstance(held, str)
            assert len(held.encode()) <= 64
        case "version":
            assert SEMVER.fullmatch(held), held
            assert len(held) <= 64
        case _:
            raise AssertionError(kind)


def _check_policy(policy, whole):
    default, valid = amount(policy["default"]), policy["validRange"]
    least, most, step = amount(valid["min"]), amount(valid["max"]), amount(valid["step"])
    assert least <= default <= most <= whole, policy
    assert step > 0
    assert Fraction(default - least, step).denominator == 1, policy
    assert Fraction(most - least, step).denominator == 1, policy
    assert least + step <= whole, policy


def _check_counters(counters):
    for key, value in counters.items():
        assert LABEL.fullmatch(key), key
        assert ["value"] == list(value)
        amount(value["value"])


def fits(sets, devices):
    """Whether the allocator can give out these devices together: no counter runs out."""
    left = {name: dict(counters) for name, counters in sets.items()}
    for device in devices:
        for used in device.get("consumesCounters", ()):
            for key, value in used["counters"].items():
                left[used["counterSet"]][key] -= amount(value["value"])
    return all(value >= 0 for counters in left.values() for value in counters.values())
