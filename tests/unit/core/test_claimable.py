"""What the device plugin leaves to Dynamic Resource Allocation."""

from dataclasses import replace

from vdev.core.inventory.arrange import arrange
from vdev.core.model.device import DeviceNode, RawDevice
from vdev.core.model.dra import DraSpec
from vdev.core.spec import GlobPath, GlobSource, Spec

DRA = DraSpec(driver="gpu.example.com")


def test_devices_of_claims_alone_are_in_no_list(build):
    listed, claimed = build.entry("a", "a.b/listed"), build.entry("b", "a.b/claimed", listed=False, dra=DRA)
    both = build.entry("c", "a.b/both", dra=DRA)
    stock = build.inventory(listed, claimed, both)
    assert {"a.b/listed", "a.b/both"} == stock.resources.keys()
    assert () == stock.problems
    (offered,) = stock.claimable.values()
    assert "gpu.example.com" == offered.name
    assert (*build.raws(claimed), *build.raws(both)) == tuple(slot.device.raw for slot in offered.slots)


def test_an_entry_of_claims_does_not_move_the_indices_of_the_others(build):
    claimed, listed = build.entry("a", listed=False, dra=DRA), build.entry("b")
    stock = build.inventory(claimed, listed)
    assert ["0", "1"] == [slot.device.ordinal for slot in stock.resources["nvidia.com/gpu"].slots]


def test_a_node_belongs_to_one_entry_whoever_offers_it(build):
    source = GlobSource(paths=(GlobPath(path="/dev/x"),))
    claimed = replace(build.entry("a", "a.b/a", listed=False, dra=DRA), source=source)
    listed = replace(build.entry("b", "a.b/b"), source=source)
    raws = {
        each.name: (
            RawDevice(
                id=f"{each.name}-x", entry=each.name, index=0, nodes=(DeviceNode("/dev/x", "/dev/x"),), owns=("c1:2",)
            ),
        )
        for each in (claimed, listed)
    }
    stock = arrange(Spec(entries=(claimed, listed)), "n", raws)
    assert [1, 0] == [len(stock.claimable[DRA.driver].slots), len(stock.resources["a.b/b"].slots)]


def test_sharing_may_name_what_only_claims_get(build):
    claimed = build.entry("a", "a.b/a", listed=False, dra=DRA)
    rules = build.sharing({"name": "a.b/a", "replicas": 2}, {"name": "a.b/mig-1g.5gb", "replicas": 2})
    assert () == build.inventory(claimed, sharing=rules).problems
