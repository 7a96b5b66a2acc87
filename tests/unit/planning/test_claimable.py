"""Devices that only claims can get."""

from tests.kit.specs import made_spec
from vdev.model.device import DeviceNode, RawDevice
from vdev.model.dra import Dra
from vdev.model.sources import GlobItem
from vdev.planning.inventory import arrange

DRA = Dra(driver="gpu.example.com")


def test_devices_for_claims_only_are_not_listed(build):
    listed, claimed = build.entry("a", "a.b/listed"), build.entry("b", "a.b/claimed", listed=False, dra=DRA)
    both = build.entry("c", "a.b/both", dra=DRA)
    stock = build.inventory(listed, claimed, both)
    assert {"a.b/listed", "a.b/both"} == stock.resources.keys()
    assert () == stock.problems
    (offered,) = stock.claimable.values()
    assert "gpu.example.com" == offered.name
    assert (*build.raws(claimed), *build.raws(both)) == tuple(slot.device.raw for slot in offered.slots)


def test_a_node_belongs_to_one_entry_of_both_apis(build):
    source = {"virtual": None, "glob": [GlobItem(path="/dev/x")]}
    claimed = build.entry("a", "a.b/a", listed=False, dra=DRA).model_copy(update=source)
    listed = build.entry("b", "a.b/b").model_copy(update=source)
    raws = {
        each.name: (
            RawDevice(
                id=f"{each.name}-x", entry=each.name, index=0, nodes=(DeviceNode("/dev/x", "/dev/x"),), owns=("c1:2",)
            ),
        )
        for each in (claimed, listed)
    }
    stock = arrange(made_spec(claimed, listed), "n", raws)
    assert [1, 0] == [len(stock.claimable[DRA.driver].slots), len(stock.resources["a.b/b"].slots)]
