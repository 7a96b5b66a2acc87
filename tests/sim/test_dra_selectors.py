"""CEL selectors, with the library of CEL's authors."""

import builtins

import pytest

from vdev.sim.dra import cel_selectors
from vdev.sim.dra.cel_selectors import SelectorError, matches

GPU = {
    "name": "gpu-0",
    "attributes": {
        "type": {"string": "gpu"},
        "index": {"int": 0},
        "ok": {"bool": True},
        "driverVersion": {"version": "580.95.5"},
        "resource.kubernetes.io/numaNode": {"int": 1},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}


@pytest.fixture(autouse=True)
def cel():
    """Skip these tests without the library."""
    pytest.importorskip("cel_expr_python.cel", reason="cel-expr-python, which evaluates CEL, is not installed")


def test_expressions_that_select(subtests):
    cases = [
        "device.driver == 'gpu.nvidia.com'",
        "device.attributes['gpu.nvidia.com'].type == 'gpu' && device.attributes['gpu.nvidia.com'].index == 0",
        "device.attributes['gpu.nvidia.com'].ok",
        "device.attributes['resource.kubernetes.io'].numaNode == 1",
        "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('40Gi')) >= 0",
        "device.capacity['gpu.nvidia.com'].memory == quantity('81920Mi')",
        "device.capacity['gpu.nvidia.com'].memory.isGreaterThan(quantity('79Gi'))",
        "device.capacity['gpu.nvidia.com'].memory.sub(quantity('1Gi')).isLessThan(quantity('80Gi'))",
        "device.capacity['gpu.nvidia.com'].memory.asInteger() == 85899345920",
        "device.attributes['gpu.nvidia.com'].driverVersion.isGreaterThan(semver('570.0.0'))",
        "device.attributes['gpu.nvidia.com'].driverVersion.major() == 580",
        "semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
        "device.attributes['gpu.nvidia.com'].?model.orValue('none') == 'none'",
        "device.attributes[?'other.dev'].?x.orValue(1) == 1",
        "!has(device.attributes['other.dev'].x)",
        "!('other.dev' in device.attributes) && 'gpu.nvidia.com' in device.attributes",
        "cel.bind(a, device.attributes['gpu.nvidia.com'], a.type == 'gpu')",
        "device.attributes['gpu.nvidia.com'].type.matches('^g') && 'A'.lowerAscii() == 'a'",
        "!device.allowMultipleAllocations",
    ]
    for expression in cases:
        with subtests.test(expression=expression):
            assert matches(expression, "gpu.nvidia.com", GPU)


def test_expressions_that_fail(subtests):
    cases = [
        ("device.attributes['other.dev'].x == 1", 'CEL runtime error: .*Key not found in map : "?x'),
        ("device.attributes['gpu.nvidia.com'].type", "CEL runtime error: expected a boolean"),
        ("device.attributes['gpu.nvidia.com'].type > 5", "CEL runtime error: .*No matching overload"),
        (
            "device.attributes['gpu.nvidia.com'].?none.value() == 1",
            "CEL runtime error: .*optional.none.. dereference$",
        ),
        ("1 / (device.driver == '' ? 1 : 0) == 1", "CEL runtime error: .*divide by zero$"),
        ("semver('01.0.0').major() == 1", "CEL runtime error: .*not a version"),
        ("quantity('1').compareTo(semver('1.0.0')) == 0", "CEL runtime error: .*cannot be compared"),
        ("device.foo == 1", "CEL runtime error: .*Key not found in map"),
        ("device.driver + 1 == 2", "CEL runtime error: .*No matching overload"),
        ("'text'", "CEL runtime error: expected a boolean, found 'text'"),
        ("quantity('1') == 1", "CEL compile error: .*no matching overload"),
        ("1 +", "CEL compile error: .*Syntax error"),
    ]
    for expression, text in cases:
        with subtests.test(expression=expression), pytest.raises(SelectorError, match=f"(?s){text}"):
            matches(expression, "gpu.nvidia.com", GPU)


def test_without_the_library(monkeypatch):
    real = builtins.__import__

    def missing(name, *args, **kwargs):
        if name.startswith("cel_expr_python"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    cel_selectors._library.cache_clear()
    with pytest.raises(SelectorError, match=r"pip install cel-expr-python \(the extra \[sim\]"):
        matches("device.driver == 'never compiled before'", "gpu.nvidia.com", GPU)
    cel_selectors._library.cache_clear()
