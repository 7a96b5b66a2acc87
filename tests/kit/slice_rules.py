"""The rules of the API server and of the scheduler's allocator for the ResourceSlices of a pool (Kubernetes 1.36).

The embedded API server and scheduler check fields, limits and counters. This module checks names, versions and request
policies, without code of the plugin.
"""

import re
from collections import Counter
from fractions import Fraction

from vdev.sim.api import validation
from vdev.sim.dra.pools import check_pools

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
    """Parse a quantity."""
    assert isinstance(text, str), text
    found = QUANTITY.fullmatch(text)
    assert found, text
    return int(found[1]) * SCALE[found[2] or ""]


def check_pool(slices):
    """Raise AssertionError if a slice or the pool of these slices is invalid."""
    assert slices
    heads = {(each["spec"]["driver"], each["spec"]["nodeName"], str(each["spec"]["pool"])) for each in slices}
    assert 1 == len(heads), heads
    pool = slices[0]["spec"]["pool"]
    assert len(slices) == pool["resourceSliceCount"]
    assert pool["generation"] >= 0
    for each in slices:
        _check_slice(each)
    assert [] == list(check_pools(slices))
    devices = {device["name"]: device for each in slices for device in each["spec"].get("devices", ())}
    sets = {
        counters["name"]: {key: amount(value["value"]) for key, value in counters["counters"].items()}
        for each in slices
        for counters in each["spec"].get("sharedCounters", ())
    }
    return sets, devices


def _check_slice(document):
    assert [] == validation.wrong_fields("ResourceSlice", document)
    assert ("resource.k8s.io/v1", "ResourceSlice") == (document["apiVersion"], document["kind"])
    spec = document["spec"]
    assert spec.keys() <= {"driver", "pool", "nodeName", "devices", "sharedCounters"}
    assert SUBDOMAIN.fullmatch(spec["driver"])
    assert len(spec["driver"]) <= 63
    for each in spec.get("devices", ()):
        _check_device(each)


def _check_device(device):
    known = {"name", "attributes", "capacity", "consumesCounters", "taints", "allowMultipleAllocations"}
    assert device.keys() <= known
    capacity = device.get("capacity", {})
    for key, value in device.get("attributes", {}).items():
        _check_key(key)
        assert "version" not in value or SEMVER.fullmatch(value["version"]), value
        assert len(value.get("string", "").encode()) <= 64
        assert -(2**63) <= value.get("int", 0) < 2**63
    for key, value in capacity.items():
        _check_key(key)
        whole = amount(value["value"])
        if policy := value.get("requestPolicy"):
            _check_policy(policy, whole)
    taints = device.get("taints", [])
    assert 1 == max(Counter((each["key"], each["effect"]) for each in taints).values(), default=1)
    for each in taints:
        domain, _, name = each["key"].rpartition("/")
        assert SUBDOMAIN.fullmatch(domain)
        assert QUALIFIED.fullmatch(name)
        assert "value" not in each or QUALIFIED.fullmatch(each["value"])


def _check_key(key):
    domain, slash, name = key.rpartition("/")
    assert IDENTIFIER.fullmatch(name), key
    assert not slash or (SUBDOMAIN.fullmatch(domain) and len(domain) <= 63), key


def _check_policy(policy, whole):
    default, valid = amount(policy["default"]), policy["validRange"]
    least, most, step = amount(valid["min"]), amount(valid["max"]), amount(valid["step"])
    assert least <= default <= most <= whole, policy
    assert step > 0
    assert Fraction(default - least, step).denominator == 1, policy
    assert Fraction(most - least, step).denominator == 1, policy
    assert least + step <= whole, policy


def fits(sets, devices):
    """Whether the allocator can allocate these devices together, so that no counter is exhausted."""
    left = {name: dict(counters) for name, counters in sets.items()}
    for device in devices:
        for used in device.get("consumesCounters", ()):
            for key, value in used["counters"].items():
                left[used["counterSet"]][key] -= amount(value["value"])
    return all(value >= 0 for counters in left.values() for value in counters.values())
