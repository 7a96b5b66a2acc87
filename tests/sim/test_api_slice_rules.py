"""The ResourceSlices that the API server takes, and those that it refuses: names, types and limits of their fields."""

from vdev.sim.api import validation

TAINT = {"key": "acme.dev/x", "effect": "NoSchedule"}
RANGE = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}
COUNTERS = {"name": "c", "counters": {"m-0": {"value": "1"}}}
USE = {"counterSet": "c", "counters": {"m-0": {"value": "1"}}}


def of(*devices, **changes):
    """The spec of a slice with these devices; None removes a field."""
    pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1, **changes.pop("pool", {})}
    spec = {"driver": "acme.dev", "nodeName": "n1", "devices": list(devices), **changes, "pool": pool}
    return {name: value for name, value in spec.items() if value is not None}


def many(count, **fields):
    """The spec of a slice with so many devices, of which the first has these fields."""
    first, *others = ({"name": f"d-{number}"} for number in range(count))
    return of(first | fields, *others)


def memory(policy):
    """The fields of a device with a request policy."""
    return {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi", "requestPolicy": policy}}}


SOUND = [
    of(),
    many(128),
    many(64, taints=[TAINT], consumesCounters=[USE]),
    many(1, attributes={"x": {"string": ""}, "acme.dev/n": {"int": 1}, "b": {"bool": False}}),
    many(1, **memory(RANGE)),
    many(1, **memory({"default": "1Gi", "validValues": ["1Gi", "2Gi"]})),
    of(nodeName=None, nodeSelector={"nodeSelectorTerms": [{}]}),
    of(devices=None, sharedCounters=[COUNTERS]),
]
WRONG = [
    (many(129), "devices: 129 devices; at most 128"),
    (many(65, taints=[TAINT]), "devices: 65 devices of which some have taints or consume counters; at most 64"),
    (of({"name": "a"}, {"name": "a"}), "devices: a is there more than once"),
    (of(driver=None), "driver: Required value"),
    (of(driver="Acme"), "driver: 'Acme' is not the name of a driver"),
    (of(devices={}), "devices: Invalid value: {}: must be a list"),
    (of(nodename="n1"), "nodename: unknown field"),
    (of(nodeName=""), "nodeName: '' is not a valid name"),
    (of(nodeName="A_b"), "nodeName: 'A_b' is not a valid name"),
    (of(nodeName=None), ": Required value: exactly one of `nodeName`"),
    (of(allNodes=True), ": Required value: exactly one of `nodeName`"),
    (of(pool={"count": 1}), "pool.count: unknown field"),
    (of({"name": "a"}, sharedCounters=[COUNTERS]), "sharedCounters: devices and sharedCounters exclude each other"),
    (of(sharedCounters=[COUNTERS, COUNTERS]), "sharedCounters: c is there more than once"),
    (of(sharedCounters=[COUNTERS | {"name": "C"}]), 'sharedCounters[0].name: Invalid value: "C": not a DNS label'),
    (of({"attributes": {}}), "devices[0].name: Required value"),
]
WRONG_DEVICES = [
    ({"name": "a.b"}, 'name: Invalid value: "a.b": not a DNS label'),
    ({"basic": {}}, "basic: unknown field"),
    ({"attributes": {"not-c": {"int": 1}}}, "attributes: 'not-c' is not the name of an attribute"),
    ({"attributes": {"x": {"int": "1"}}}, 'attributes.x.int: Invalid value: "1": must be a whole number'),
    ({"attributes": {"x": {"int": 1, "string": "y"}}}, "attributes.x: Required value: exactly one of `bool`"),
    ({"attributes": {"x": {"string": "y" * 65}}}, "attributes.x.string: 'yyyyyyyyyyyyyyyyyyyy'… has 65 bytes"),
    ({"attributes": {"x": {"version": "580.95.05"}}}, "attributes.x.version: '580.95.05' is not a version"),
    ({"attributes": {f"a{n}": {"int": n} for n in range(33)}}, ": 33 attributes and capacities; at most 32"),
    ({"capacity": {"m": {}}}, "capacity.m.value: Required value"),
    ({"capacity": {"m": {"value": "many"}}}, 'capacity.m.value: Invalid value: "many": must be a quantity'),
    (memory({"default": "1Gi", "validRange": {}}), "capacity.memory.requestPolicy.validRange.min: Required value"),
    ({"taints": [{"key": "k", "effect": "Sometimes"}]}, 'taints[0].effect: Invalid value: "Sometimes"'),
]


def problems(spec):
    """The problems of a slice: field and message of each, without the prefix `spec`."""
    found = validation.wrong_fields("ResourceSlice", {"metadata": {"name": "one"}, "spec": spec})
    return [f"{field}: {why}".removeprefix("spec").removeprefix(".") for field, why in found]


def test_slices_that_are_taken(subtests):
    """They are at the limits."""
    for spec in SOUND:
        with subtests.test(spec=spec):
            assert [] == problems(spec)


def test_slices_that_are_refused(subtests):
    """The one problem of each has its field."""
    devices = [(many(1, **fields), f"devices[0]{'.' * (why[0] != ':')}{why}") for fields, why in WRONG_DEVICES]
    for spec, why in [*WRONG, *devices]:
        with subtests.test(why=why):
            (found,) = problems(spec)
            assert why == found[: len(why)]
