"""The devices that the embedded scheduler allocates: first fit in the order of the slices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly
from vdev.sim.dra.allocator import Allocator, UnschedulableError
from vdev.sim.dra.cel_selectors import SelectorError
from vdev.sim.dra.pools import gather

CLASSES = {"acme.dev": device_class("acme.dev"), "big": device_class("big", "big")}


def matches(expression, _driver, found):
    """A function in place of CEL: the expression is the name of an attribute that the device must have."""
    if expression == "broken":
        raise SelectorError("CEL runtime error: no such key")
    if expression == "only-b" and found["name"] != "b":
        raise SelectorError("CEL runtime error: no such key")
    return expression == "only-b" or expression in (found.get("attributes") or {})


def allocated(slices, *claims, others=()):
    """The results of each claim."""
    pools = gather(slices, "sim-node")
    found = Allocator(pools, CLASSES, others, matches=matches).allocate(list(claims))
    return [each["devices"]["results"] for each in found]


def names(slices, *claims, **options):
    """The devices of all claims."""
    return [each["device"] for results in allocated(slices, *claims, **options) for each in results]


def with_status(document, results):
    return {**document, "status": {"allocation": {"devices": {"results": results}}}}


def held(name):
    """Another claim, which has a device."""
    return with_status(claim("x"), [{"request": "main", "driver": "acme.dev", "pool": "sim-node", "device": name}])


def two(**fields):
    return slice_of("acme.dev", [device("a", **fields), device("b")])


def test_the_first_device_that_fits():
    assert ["a"] == names([two()], claim("one"))
    assert ["b"] == names([two()], claim("one"), others=[held("a")])
    assert ["a", "b"] == names([two()], claim("one"), claim("two"))


UNDEFINED = device("a", consumesCounters=[{"counterSet": "gone", "counters": {"x": {"value": "1"}}}])
HALF = slice_of("acme.dev", [device("a")], count=2)
MANY = slice_of("acme.dev", [device(f"d-{number:02}") for number in range(40)])


@pytest.mark.parametrize(
    ("slices", "request_", "why"),
    [
        (two(), exactly(count=3), "^cannot allocate all claims$"),
        (two(), exactly("big", allocationMode="All"), "^cannot allocate all claims$"),
        (two(), exactly("gone"), "^request main: device class gone does not exist$"),
        (two(), exactly("acme.dev", "broken"), "claim default/one: selector #0: CEL runtime error: no such key"),
        (HALF, exactly(), "cannot allocate all claims"),
        (HALF, exactly(allocationMode="All"), r"but acme\.dev, pool sim-node: slices are missing"),
        (
            slice_of("acme.dev", [UNDEFINED]),
            exactly(),
            r"^cannot allocate all claims; acme\.dev, pool sim-node: device a",
        ),
        (
            slice_of("acme.dev", [device("a"), device("a")]),
            exactly(),
            r"^cannot allocate all claims; acme\.dev, pool sim-node: device a",
        ),
        (MANY, exactly(count=33), "^cannot allocate all claims$"),
        (MANY, exactly(allocationMode="All"), "^cannot allocate all claims$"),
    ],
)
def test_a_claim_that_gets_nothing(slices, request_, why):
    """An unknown class, a selector that fails, an incomplete or invalid pool, and too many devices."""
    with pytest.raises(UnschedulableError, match=why):
        names([slices], claim("one", request_))


def test_slices_are_tried_by_name():
    first = slice_of("acme.dev", [device("z")], name="1", count=2)
    second = slice_of("acme.dev", [device("a")], name="2", count=2)
    assert ["z", "a"] == names([second, first], claim("one", exactly(count=2)))


def test_backtracking_if_a_later_request_gets_no_device():
    """The first request could have the only device that the second can use."""
    slices = [slice_of("acme.dev", [device("a", attributes={"big": True}), device("b")])]
    assert ["b", "a"] == names(slices, claim("one", exactly(name="any"), exactly("big", name="big")))


def test_other_nodes_and_older_generations_do_not_count():
    far = slice_of("acme.dev", [device("far")], node="elsewhere", pool="elsewhere")
    old = slice_of("acme.dev", [device("old")], name="old", generation=1)
    new = slice_of("acme.dev", [device("new")], name="new", generation=2)
    assert ["new"] == names([far, old, new], claim("one"))


def test_all_devices_or_none():
    every = claim("one", exactly(allocationMode="All"))
    assert ["a", "b"] == names([two()], every)
    with pytest.raises(UnschedulableError):
        names([two()], every, others=[held("b")])


def test_the_first_alternative_that_is_available():
    request = {
        "name": "any",
        "firstAvailable": [
            {"name": "large", "deviceClassName": "big"},
            {"name": "small", "deviceClassName": "acme.dev", "count": 2},
        ],
    }
    ((first, second),) = allocated([two()], claim("one", request))
    assert ("any/small", "a") == (first["request"], first["device"])
    assert "b" == second["device"]


def test_constraints():
    devices = [device("a", attributes={"parent": "x"}), device("b", attributes={"parent": "y"})]
    devices += [device("c"), device("d", attributes={"parent": "y"})]
    slices = [slice_of("acme.dev", devices)]
    same = {"matchAttribute": "acme.dev/parent"}
    assert ["b", "d"] == names(slices, claim("one", exactly(count=2), constraints=[same]))
    other = {"distinctAttribute": "acme.dev/parent"}
    assert ["a", "b"] == names(slices, claim("one", exactly(count=2), constraints=[other]))
    with pytest.raises(UnschedulableError):
        names(slices, claim("one", exactly(count=3), constraints=[same]))


COUNTERS = slice_of("acme.dev", counters=[{"name": "c", "counters": {"m": {"value": "4"}}}], name="0", count=2)


def part(name, amount):
    return device(name, consumesCounters=[{"counterSet": "c", "counters": {"m": {"value": str(amount)}}}])


def test_shared_counters():
    """The whole device, or parts of it that fit."""
    parts = slice_of("acme.dev", [part("whole", 4), part("half-0", 2), part("half-1", 2)], name="1", count=2)
    assert ["half-0", "half-1"] == names([COUNTERS, parts], claim("one", exactly(count=2)))
    assert ["half-1"] == names([COUNTERS, parts], claim("one"), others=[held("half-0")])


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 8))
def test_counters_are_never_exceeded(sizes, count):
    """And the claim gets devices whenever some of them fit."""
    devices = [part(f"p-{number}", size) for number, size in enumerate(sizes)]
    slices = [COUNTERS, slice_of("acme.dev", devices, name="1", count=2)]
    can = sum(sorted(sizes)[:count]) <= 4 and count <= len(sizes)
    try:
        found = names(slices, claim("one", exactly(count=count)))
    except UnschedulableError:
        assert not can
    else:
        assert can
        assert sum(sizes[int(name.removeprefix("p-"))] for name in found) <= 4


def test_a_device_that_a_constraint_refused_takes_no_counters():
    """With one half of a GPU taken, two halves of the other one are found."""
    sets = [{"name": name, "counters": {"m": {"value": "2"}}} for name in ("x", "y")]
    counters = slice_of("acme.dev", counters=sets, name="0", count=2)

    def half(name, number):
        uses = [{"counterSet": name, "counters": {"m": {"value": "1"}}}]
        return device(f"{name}-{number}", attributes={"parent": name}, consumesCounters=uses)

    halves = slice_of("acme.dev", [half(name, number) for name in "xy" for number in range(2)], name="1", count=2)
    pair = claim("one", exactly(count=2), constraints=[{"matchAttribute": "acme.dev/parent"}])
    assert ["x-0", "x-1"] == names([counters, halves], pair)
    assert ["y-0", "y-1"] == names([counters, halves], pair, others=[held("x-0")])


def test_shares_of_a_device_consume_its_counters_once():
    """This also holds for a share that takes no memory."""
    policy = {"default": "0", "validRange": {"min": "0"}}
    memory = {"memory": {"value": "4Gi", "requestPolicy": policy}}
    uses = part("s", 3)["consumesCounters"]
    shares = device("s", allowMultipleAllocations=True, capacity=memory, consumesCounters=uses)
    slices = [COUNTERS, slice_of("acme.dev", [shares, part("rest", 1)], name="1", count=2)]
    (results,) = allocated(slices, claim("one", exactly(name="x"), exactly(name="y")))
    assert ["s", "s"] == [each["device"] for each in results]
    (more,) = allocated(slices, claim("two", exactly(count=1)), others=[with_status(claim("one"), results)])
    assert "s" == more[0]["device"]


POLICY = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "512Mi", "max": "3Gi"}}


def shared(capacity):
    return slice_of("acme.dev", [device("s", allowMultipleAllocations=True, capacity={"memory": capacity})])


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        (None, None, "4Gi"),
        (None, "1024Mi", "1024Mi"),
        (None, "1500M", "1500M"),
        (POLICY, None, "1Gi"),
        (POLICY, "1.2Gi", "1536Mi"),
        (POLICY, "1500M", "1536Mi"),
        (POLICY, "1Mi", "1Gi"),
        (POLICY, "3.5Gi", None),
        ({"validRange": {"min": "1Gi", "step": "0"}}, "1536Mi", "1536Mi"),
        ({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}, "1.5Gi", "2Gi"),
        ({"default": "1Gi", "validValues": ["1Gi", "2Gi"]}, "3Gi", None),
        (None, "5Gi", None),
    ],
)
def test_a_share_follows_its_request_policy(policy, asked, taken):
    capacity = {"value": "4Gi"} | ({"requestPolicy": policy} if policy else {})
    request = exactly(**({"capacity": {"requests": {"memory": asked}}} if asked else {}))
    if taken is None:
        with pytest.raises(UnschedulableError):
            allocated([shared(capacity)], claim("one", request))
        return
    (((found,),)) = allocated([shared(capacity)], claim("one", request))
    assert {"memory": taken} == found["consumedCapacity"]
    assert found["shareID"]


def test_shares_of_one_device_until_it_is_used_up():
    """A claim can have two of them. A request cannot, because its devices are different."""
    slices = [shared({"value": "4Gi", "requestPolicy": POLICY})]
    with pytest.raises(UnschedulableError):
        names(slices, claim("one", exactly(count=2)))
    (results,) = allocated(slices, claim("one", *(exactly(name=name) for name in "xyz")))
    assert 3 == len({each["shareID"] for each in results})
    taken = with_status(claim("other"), results)
    assert ["s"] == names(slices, claim("two"), others=[taken])
    with pytest.raises(UnschedulableError):
        names(slices, claim("two", exactly(name="x"), exactly(name="y")), others=[taken])


def test_all_devices_with_a_capacity():
    """Capacity that is in use does not count."""
    devices = [device("small", capacity={"memory": "1Gi"}), device("large", capacity={"memory": "8Gi"})]
    request = exactly(allocationMode="All", capacity={"requests": {"memory": "2Gi"}})
    assert ["large"] == names([slice_of("acme.dev", devices)], claim("one", request))
    shares = [device(name, allowMultipleAllocations=True, capacity={"memory": "4Gi"}) for name in "st"]
    full = {"request": "main", "driver": "acme.dev", "pool": "sim-node", "device": "s", "shareID": "1"}
    held = with_status(claim("x"), [full | {"consumedCapacity": {"memory": "4Gi"}}])
    assert ["t"] == names([slice_of("acme.dev", shares)], claim("one", request), others=[held])


def test_an_alternative_with_too_many_devices():
    """The next one with which the claim stays below the limit is taken."""
    alternatives = [{"name": f"of-{count}", "deviceClassName": "acme.dev", "count": count} for count in (20, 10)]
    (results,) = allocated([MANY], claim("one", {"name": "f", "firstAvailable": alternatives}, exactly(count=20)))
    assert ["f/of-10"] * 10 + ["main"] * 20 == [each["request"] for each in results]


def test_taints(subtests):
    cases = [
        ("NoSchedule", None, "b"),
        ("NoExecute", None, "b"),
        ("None", None, "a"),
        ("NoSchedule", {"key": "k", "operator": "Exists"}, "a"),
        ("NoSchedule", {"operator": "Exists"}, "a"),
        ("NoSchedule", {"key": "k", "value": "v"}, "a"),
        ("NoSchedule", {"key": "k", "value": "w"}, "b"),
        ("NoSchedule", {"key": "k", "value": "v", "effect": "NoExecute"}, "b"),
    ]
    for effect, toleration, expected in cases:
        with subtests.test(effect=effect):
            slices = [two(taints=[{"key": "k", "value": "v", "effect": effect}])]
            request = exactly(**({"tolerations": [toleration]} if toleration else {}))
            assert [expected] == names(slices, claim("one", request))


def test_admin_access_occupies_nothing():
    look = claim("look", exactly(allocationMode="All", adminAccess=True))
    assert ["a", "b"] == names([two()], look, others=[held("a")])
    seen = with_status(look, allocated([two()], look)[0])
    assert ["a"] == names([two()], claim("one"), others=[seen])


def test_configuration_of_classes_and_claims():
    """The configuration of a class comes once for all its requests, then that of the claim."""
    pools = gather([two(), slice_of("acme.dev", [device("c"), device("d")], name="2", pool="more")], "sim-node")
    opaque = {"opaque": {"driver": "acme.dev", "parameters": {"kind": "X"}}}
    classes = {"acme.dev": device_class("acme.dev", config=[opaque])}
    either = {"name": "f", "firstAvailable": [{"name": "s", "deviceClassName": "acme.dev"}]}
    both = [{"requests": each, **opaque} for each in (["x", "f"], ["f/s"], ["other"])] + [opaque]
    document = claim("one", exactly(name="x"), either, config=both)
    (found,) = Allocator(pools, classes, [], matches=matches).allocate([document])
    told = [(each["source"], each.get("requests")) for each in found["devices"]["config"]]
    mine = [("FromClaim", names) for names in (["x", "f"], ["f/s"], None)]
    assert [("FromClass", ["x", "f/s"]), *mine] == told
