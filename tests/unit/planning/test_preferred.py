"""Which devices are preferred for a container."""

from collections import Counter
from functools import partial
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev import config, discovery
from vdev.hostfs import HostRoot
from vdev.model.device import Device, RawDevice, Slot
from vdev.model.entry import AllocationPolicy
from vdev.planning.inventory import arrange
from vdev.planning.preferred import heaviest, preferred

DISTRIBUTED, PACKED = AllocationPolicy


def slot(each, parent, numa=(), unit=""):
    raw = RawDevice(id=parent, entry="g", index=int(parent[1:]), numa=numa)
    return Slot(each, Device(id=unit or each, raw=raw, ordinal="0"))


def whole(count, numa=()):
    return [slot(f"g{i}", f"g{i}", (numa[i],) if numa else ()) for i in range(count)]


def replicas(parents, each):
    return [slot(f"g{p}::{r}", f"g{p}", unit=f"g{p}") for p in range(parents) for r in range(each)]


def partitions(counts):
    return [slot(f"g{p}-{part}", f"g{p}") for p, count in enumerate(counts) for part in range(count)]


def ids(candidates):
    return [each.id for each in candidates]


def parents(chosen):
    return Counter(each.partition(":")[0].partition("-")[0] for each in chosen)


# --- impossible requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "must", "size"),
    [
        (["g0", "g1"], [], 3),
        (["g0", "g1"], [], 0),
        (["g0", "g1"], [], -1),
        (["g0", "g1"], ["g0", "g1"], 1),
        (["g0", "g1"], ["g2"], 2),
        (["g0", "g1"], ["nobody"], 1),
        ([], [], 1),
        (["nobody", "g0"], [], 2),
    ],
)
@pytest.mark.parametrize("candidates", [whole(4), whole(4, [0, 0, 1, 1])], ids=["plain", "numa"])
@pytest.mark.parametrize("links", [{}, {("g0", "g1"): 100}], ids=["unlinked", "linked"])
def test_an_impossible_request_gets_an_empty_answer(candidates, links, available, must, size):
    assert [] == preferred(candidates, available, must, size, links=links)


# --- replicas and partitions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("candidates", "used", "policy", "size", "expected"),
    [
        # Distributed alternates between the devices, packed fills one first.
        (replicas(2, 4), [], DISTRIBUTED, 4, {"g0": 2, "g1": 2}),
        (replicas(2, 4), [], PACKED, 5, {"g0": 4, "g1": 1}),
        (replicas(2, 4), [], DISTRIBUTED, 1, {"g0": 1}),
        (replicas(2, 4), [], PACKED, 8, {"g0": 4, "g1": 4}),
        # A device with used replicas is the last or the first one.
        (replicas(2, 4), ["g0::1", "g0::2"], DISTRIBUTED, 1, {"g1": 1}),
        (replicas(2, 4), ["g0::1", "g0::2"], PACKED, 1, {"g0": 1}),
        # Partitions count for their device.
        (partitions([7, 7, 7]), [], DISTRIBUTED, 3, {"g0": 1, "g1": 1, "g2": 1}),
        (partitions([7, 7, 7]), [], PACKED, 3, {"g0": 3}),
    ],
)
def test_replicas_and_partitions_are_spread_or_packed(candidates, used, policy, size, expected):
    available = [each for each in ids(candidates) if each not in used]
    assert expected == parents(preferred(candidates, available, [], size, policy=policy))


def test_must_include():
    """These ids are in the answer, and count as used."""
    candidates = replicas(2, 4)
    assert ["g0::3", "g1::0"] == preferred(candidates, ids(candidates), ["g0::3"], 2)


def test_replicas_of_partitions_are_spread_within_the_device_too():
    """Two replicas are of two partitions of the device."""
    candidates = [slot(f"m{u}::{r}", "g0", unit=f"m{u}") for u in range(2) for r in range(4)]
    assert ["m0::0", "m1::0"] == preferred(candidates, ids(candidates), [], 2)


@pytest.mark.parametrize(
    ("free", "must", "size", "expected"),
    [
        ([8, 8, 8], [], 10, {"g0": 8, "g1": 2}),
        ([7, 7, 8, 8, 8, 6], [], 10, {"g5": 6, "g0": 4}),
        ([5, 5, 8], ["g1-7"], 4, {"g1": 4}),
    ],
)
def test_packed_partitions_are_of_the_devices_with_most_in_use(free, must, size, expected):
    """Among devices that are equally full, as few as possible."""
    candidates = partitions([8] * len(free))
    available = [each for each in ids(candidates) if 8 - int(each[-1]) <= free[int(each[1])]]
    assert expected == parents(preferred(candidates, available, must, size, policy=PACKED))


# --- partitions of devices on NUMA nodes -----------------------------------------------------------------------------


def board(counts, numa, links=None, replicas=1):
    """Partitions of devices on NUMA nodes; with one score for all links, or those given."""
    pairs = [(parent, part) for parent, count in enumerate(counts) for part in range(count)]
    candidates = [
        slot(f"g{p}-{part}" + f"::{replica}" * (replicas > 1), f"g{p}", (numa[p],), f"g{p}-{part}")
        for p, part in pairs
        for replica in range(replicas)
    ]
    links = links if isinstance(links, dict) else dict.fromkeys(combinations(range(len(counts)), 2), links or 0)
    return candidates, {(f"g{a}", f"g{b}"): score for (a, b), score in links.items()}


def offered(free):
    """Ids of partitions by device: `{2: range(1), 3: [4, 5]}`."""
    return [f"g{parent}-{part}" for parent, parts in free.items() for part in parts]


ONE_EACH = {parent: range(1) for parent in range(2, 8)}


@pytest.mark.parametrize("policy", AllocationPolicy)
@pytest.mark.parametrize("links", [0, 100], ids=["numa", "links"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_one_partition_each_of_devices_that_are_near(policy, links, replicas):
    """Among devices that are equally full, those on one NUMA node."""
    candidates, scores = board([8] * 8, [0] * 4 + [1] * 4, links, replicas)
    mark = "::0" * (replicas > 1)
    available = [each + mark for each in offered(ONE_EACH)]
    allocator = partial(preferred, candidates, links=scores, policy=policy)
    assert {"g4": 1, "g5": 1, "g6": 1} == parents(allocator(available, [], 3))
    assert {"g2": 1, "g3": 1} == parents(allocator(available, [f"g3-0{mark}"], 2))


# --- NUMA -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("available", "must", "size", "expected"),
    [
        (range(8), [], 2, [0, 1]),
        ([0, 4, 5, 6, 7], [], 2, [4, 5]),
        ([0, 1, 4, 5, 6], [], 2, [0, 1]),  # the tighter node, so that the other keeps room for three
        ([3, 4, 5, 6], ["g3"], 2, [3, 4]),
        (range(8), [], 5, [0, 1, 2, 3, 4]),
        (range(8), ["g6"], 3, [4, 5, 6]),
    ],
)
def test_whole_devices_stay_on_few_numa_nodes(available, must, size, expected):
    """Without links, devices are on as few NUMA nodes as possible."""
    allocator = partial(preferred, whole(8, [0, 0, 0, 0, 1, 1, 1, 1]))
    assert [f"g{each}" for each in expected] == allocator([f"g{each}" for each in available], must, size)


# --- links ------------------------------------------------------------------------------------------------------------


def pairs(text):
    """`0-1=100 2-3=50` as a mapping."""
    links = {}
    for word in text.split():
        ends, _, score = word.partition("=")
        one, _, other = ends.partition("-")
        links[f"g{one}", f"g{other}"] = int(score)
    return links


# NVIDIA's scale: 10 across sockets, 30 over the host bridge, 50 on one switch, and 100 for each NVLink.
_CROSS = {(a, b): 10 for a in range(4) for b in range(4, 8)}


def cube_mesh(nvlinks, switch):
    """The DGX-1's hybrid cube mesh: two sockets of four devices, links as given, PCIe scores below them."""
    scores = dict(_CROSS)
    for base in (0, 4):
        for a, b in combinations(range(base, base + 4), 2):
            scores[a, b] = 50 if (a - base, b - base) in switch else 30
    for (a, b), count in nvlinks.items():
        scores[a, b] += 100 * count
    return {(f"g{a}", f"g{b}"): score for (a, b), score in scores.items()}


_QUADS = [pair for base in (0, 4) for pair in combinations(range(base, base + 4), 2)]
PASCAL = cube_mesh({**dict.fromkeys(_QUADS, 1), **{(a, a + 4): 1 for a in range(4)}}, {(0, 2), (1, 3)})
VOLTA = cube_mesh(
    {
        **dict.fromkeys(_QUADS, 1),
        **dict.fromkeys([(0, 3), (1, 2), (2, 3), (4, 7), (5, 6), (6, 7), (0, 4), (1, 5)], 2),
        (2, 6): 1,
        (3, 7): 1,
    },
    {(0, 1), (2, 3)},
)
RTX = pairs("0-3=210 1-2=210 0-1=20 2-3=20 0-2=10 1-3=10")


def weight(links, chosen):
    return sum(links.get((a, b), 0) + links.get((b, a), 0) for a, b in combinations(chosen, 2))


@pytest.mark.parametrize(
    ("links", "size", "rounds"),
    [(VOLTA, 2, 4), (VOLTA, 4, 2), (PASCAL, 2, 4), (PASCAL, 4, 2), (RTX, 2, 2)],
    ids=["volta-2", "volta-4", "pascal-2", "pascal-4", "rtx-2"],
)
def test_successive_requests_divide_a_board_like_go_gpuallocator(links, size, rounds):
    """They reach the best total of all divisions."""
    left = [f"g{i}" for i in range(size * rounds)]
    allocator = partial(preferred, whole(len(left)), links=links)
    best = max(sum(weight(links, part) for part in cut) for cut in cuts(left, size))
    total = 0
    while left:
        chosen = allocator(left, [], size)
        total += weight(links, chosen)
        left = [each for each in left if each not in chosen]
    assert best == total


def cuts(items, size):
    """Every way to divide a list into sets of one size."""
    if not items:
        yield []
        return
    for rest in combinations(items[1:], size - 1):
        part = [items[0], *rest]
        for cut in cuts([each for each in items if each not in part], size):
            yield [part, *cut]


def test_many_linked_devices_stay_in_their_islands():
    """With more devices than are compared exactly, an island that is partly used is filled first."""
    links = {(f"g{a}", f"g{b}"): 400 for a, b in combinations(range(64), 2) if a // 8 == b // 8}
    allocator = partial(preferred, whole(64), links=links)
    available = [f"g{i}" for i in range(64) if i % 8 or i // 8 == 5]
    assert [f"g{i}" for i in range(40, 48)] == allocator(available, [], 8)


# --- from the inventory -----------------------------------------------------------------------------------------------


def test_the_allocator_of_a_preset_knows_its_board(tmp_path):
    """Eight MI300X in CPX, of which partition 0 of the last six is free: three on one NUMA node."""
    file = tmp_path / "vdev.yaml"
    file.write_text(
        "version: v1\nflags: {migStrategy: mixed}\ndevices:\n"
        "  - {name: m, resource: amd.com/gpu, virtual: {preset: mi300x-8}, partitions: {all: cpx_nps4}}\n"
    )
    spec = config.load([file]).spec
    found = {entry.name: discovery.discover(entry, HostRoot(tmp_path), node="n").devices for entry in spec.entries}
    resource = arrange(spec, "n", found).resources["amd.com/cpx_nps4"]
    ordinals = {slot.id: slot.device.ordinal for slot in resource.slots}
    available = [each for each, ordinal in ordinals.items() if ordinal in {f"{device}:0" for device in range(2, 8)}]
    chosen = resource.preferred(available, [], 3)
    assert ["4:0", "5:0", "6:0"] == [ordinals[each] for each in chosen]


# --- properties -------------------------------------------------------------------------------------------------------


@st.composite
def cases(draw):
    """A resource, available ids, and a possible request."""
    count = draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["whole", "linked", "replicas", "partitions"]))
    if kind in ("whole", "linked"):
        candidates = whole(count, draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)))
    elif kind == "replicas":
        candidates = replicas(count, draw(st.integers(1, 4)))
    else:
        candidates = partitions(draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)))
    links = {}
    if kind == "linked" or draw(st.booleans()):
        every = list(combinations(dict.fromkeys(each.device.raw.id for each in candidates), 2))
        scores = draw(st.lists(st.integers(0, 3), min_size=len(every), max_size=len(every)))
        links = dict(zip(every, scores, strict=True))
    if kind in ("replicas", "partitions"):
        nodes = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
        candidates = [
            slot(each.id, each.device.raw.id, (nodes[each.device.raw.index],), each.device.id) for each in candidates
        ]
    available = draw(st.lists(st.sampled_from(ids(candidates)), unique=True, min_size=1))
    size = draw(st.integers(1, len(available)))
    must = draw(st.lists(st.sampled_from(available), unique=True, max_size=size))
    policy = draw(st.sampled_from(AllocationPolicy))
    return partial(preferred, candidates, links=links, policy=policy), candidates, links, available, must, size, policy


@given(cases(), st.randoms(use_true_random=False))
def test_every_answer_is_complete_and_independent_of_order(case, random):
    """It has the right size, only available ids, and all that must be included."""
    allocator, _, _, available, must, size, _ = case
    chosen = allocator(available, must, size)
    assert size == len(chosen) == len(set(chosen))
    assert set(must) <= set(chosen) <= set(available)
    again = allocator(random.sample(available, len(available)), random.sample(must, len(must)), size)
    assert chosen == again


@given(cases())
def test_linked_devices_get_the_best_set(case):
    """For few devices no set with the required ones has a better score."""
    allocator, candidates, links, available, must, size, _ = case
    if any(links.values()) and all(each.id == each.device.raw.id for each in candidates):
        best = max(weight(links, each) for each in combinations(available, size) if set(must) <= set(each))
        assert best == weight(links, allocator(available, must, size))


@given(st.integers(17, 22), st.integers(0, 2**32), st.integers(2, 5))
def test_beyond_the_exact_size_the_answer_is_close(count, seed, size):
    """On random graphs, the set found has at least four fifths of the best set's weight."""
    state, weights = seed, [[0] * count for _ in range(count)]
    for a, b in combinations(range(count), 2):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        weights[a][b] = weights[b][a] = state >> 56
    total = lambda chosen: sum(weights[a][b] for a, b in combinations(chosen, 2))
    found = heaviest(tuple(map(tuple, weights)), range(count), [], size)
    assert size == len(set(found))
    assert total(found) >= 0.8 * max(map(total, combinations(range(count), size)))


def test_links_are_at_least_as_good_as_in_go_gpuallocator(subtests):
    cases = [
        (VOLTA, [0, 2, 4, 5], [], 2, [4, 5]),
        (VOLTA, [0, 4, 5, 6], [], 2, [5, 6]),
        (VOLTA, [0, 3, 1], [], 2, [0, 3]),
        (VOLTA, [0, 1, 4], [], 2, [0, 4]),
        (VOLTA, range(8), [4], 1, [4]),
        (VOLTA, range(8), [4], 2, [4, 7]),
        (VOLTA, range(8), [4], 4, [4, 5, 6, 7]),
        (VOLTA, range(8), [0, 2, 4, 6], 4, [0, 2, 4, 6]),
        (VOLTA, range(8), [], 2, [0, 3]),
        (VOLTA, range(8), [], 4, [0, 1, 2, 3]),
        (PASCAL, range(8), [], 2, [0, 2]),
        (PASCAL, [1, 3, 4, 5, 6, 7], [], 2, [1, 3]),
        (PASCAL, range(8), [], 4, [0, 1, 2, 3]),
        (PASCAL, range(4, 8), [], 4, [4, 5, 6, 7]),
        (PASCAL, range(8), [], 8, range(8)),
        (RTX, range(4), [], 2, [0, 3]),
        (RTX, range(4), [], 1, [0]),
    ]
    for links, available, must, size, peer in cases:
        with subtests.test(links=links):
            count = 4 if links is RTX else 8
            chosen = preferred(whole(count), [f"g{i}" for i in available], [f"g{i}" for i in must], size, links=links)
            assert weight(links, chosen) >= weight(links, [f"g{i}" for i in peer])
