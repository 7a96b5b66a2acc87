"""Writes that bring the slices of a pool to the desired state."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from vdev.dra.slices import changes, spoilt

NODE, DRIVER = "node-1", "acme.dev"


def spec(*names, taints=()):
    """A desired specification with these devices."""
    devices = [{"name": name, "attributes": {}} | ({"taints": list(taints)} if taints else {}) for name in names]
    return {"driver": DRIVER, "pool": {"name": NODE}, "nodeName": NODE, "devices": devices}


def contents(specs):
    return sorted(({**each, "pool": {}} for each in specs), key=str)


class Server:
    """Stores slices."""

    def __init__(self):
        self.slices = []
        self.number = itertools.count()
        self.writes = 0

    def settle(self, wanted, fault=None):
        """Apply the changes in their order. Returns whether there were any."""
        found = spoilt(fault, wanted, self.slices) if fault else changes(wanted, self.slices)
        self.writes += len(found.delete) + len(found.update) + len(found.create)
        gone = {each["metadata"]["name"] for each in found.delete}
        other = {each["metadata"]["name"]: each for each in found.update}
        self.slices = [
            other.get(each["metadata"]["name"], each) for each in self.slices if each["metadata"]["name"] not in gone
        ]
        self.slices += [
            {"metadata": {"name": f"{each['metadata']['generateName']}{next(self.number)}"}, "spec": each["spec"]}
            for each in found.create
        ]
        return bool(found)

    @property
    def pools(self):
        """The generation and the count of each slice."""
        return {
            (each["spec"]["pool"]["generation"], each["spec"]["pool"]["resourceSliceCount"]) for each in self.slices
        }


def test_one_slice_is_updated_in_place():
    """The others are not written."""
    server = Server()
    server.settle([spec("a"), spec("b")])
    names = [each["metadata"]["name"] for each in server.slices]
    server.settle([spec("a"), spec("b", "b2")])
    assert {(1, 2)} == server.pools
    assert names == [each["metadata"]["name"] for each in server.slices]
    assert 3 == server.writes


def test_two_changed_slices_get_a_new_generation():
    """All slices get it, because the scheduler reads only those of the highest generation."""
    server = Server()
    server.settle([spec("a"), spec("b"), spec("c")])
    server.settle([spec("a", "a2"), spec("b", "b2"), spec("c")])
    assert {(2, 3)} == server.pools
    assert 3 == len(server.slices)


def test_another_number_of_slices():
    """Each slice has the count, so all are written."""
    server = Server()
    server.settle([spec("a")])
    server.settle([spec("a"), spec("b")])
    assert {(2, 2)} == server.pools
    server.settle([spec("b")])
    assert {(3, 1)} == server.pools
    assert ["b"] == [device["name"] for each in server.slices for device in each["spec"]["devices"]]


def test_slices_of_an_older_generation_are_deleted():
    """An interrupted publication left them."""
    server = Server()
    server.settle([spec("a")])
    old = {"metadata": {"name": "old"}, "spec": {**spec("x"), "pool": {"name": NODE, "generation": 0}}}
    server.slices.append(old)
    server.settle([spec("a")])
    assert {(1, 1)} == server.pools


def test_a_taint_keeps_its_time():
    """This is the time at which the server first saw it."""
    server = Server()
    taint = {"key": "acme.dev/sick", "effect": "NoSchedule"}
    server.settle([spec("a", "b", taints=[taint])])
    (device, _) = server.slices[0]["spec"]["devices"]
    device["taints"] = [{**taint, "timeAdded": "2026-01-01T00:00:00Z"}]
    assert not server.settle([spec("a", "b", taints=[taint])])
    server.settle([spec("a", "b", "c", taints=[taint])])
    first, second, third = server.slices[0]["spec"]["devices"]
    assert "2026-01-01T00:00:00Z" == first["taints"][0]["timeAdded"]
    assert "timeAdded" not in second["taints"][0]
    assert "timeAdded" not in third["taints"][0]


def test_a_fault_leaves_no_slice_of_a_removed_pool():
    server = Server()
    server.settle([spec("a")], "oldGeneration")
    assert {(1, 1), (2, 1)} == server.pools
    server.settle([], "oldGeneration")
    assert [] == server.slices


POOLS = st.lists(st.sets(st.sampled_from("abcdefgh"), max_size=3), min_size=1, max_size=4).map(
    lambda pools: [spec(*sorted(f"{name}{number}" for name in names)) for number, names in enumerate(pools)]
)


@given(st.lists(POOLS, min_size=1, max_size=6), st.data())
def test_any_history_ends_in_the_desired_pool(history, data):
    """This includes slices that others deleted. Afterwards there is nothing left to write."""
    server = Server()
    for wanted in history:
        for each in list(server.slices):
            if data.draw(st.booleans()):
                server.slices.remove(each)
        server.settle(wanted)
        assert contents(each["spec"] for each in server.slices) == contents(wanted)
        ((_, count),) = server.pools
        assert len(wanted) == count == len(server.slices)
        assert not server.settle(wanted)


@given(POOLS, POOLS)
def test_a_generation_never_mixes_old_and_new(before, after):
    """Until all writes are done, the slices of the highest generation are incomplete."""
    server = Server()
    server.settle(before)
    found = changes(after, server.slices)
    if len(found.update) + len(found.create) > 1:
        generations = {each["spec"]["pool"]["generation"] for each in (*found.update, *found.create)}
        assert {2} == generations
        assert len(after) == len(found.update) + len(found.create)
