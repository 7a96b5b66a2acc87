"""What the device plugin leaves to Dynamic Resource Allocation."""

from dataclasses import replace

import pytest

from vdev import config
from vdev.faults import targets
from vdev.faults.schedule import Dice
from vdev.model.device import DeviceNode, RawDevice
from vdev.model.dra import DraSpec
from vdev.model.sources import GlobItem, GlobSource
from vdev.model.spec import Spec
from vdev.planning.inventory import arrange, inventory

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
    source = GlobSource(paths=(GlobItem(path="/dev/x"),))
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


@pytest.mark.parametrize("advertise", ["dra", "[device-plugin, dra]"])
@pytest.mark.parametrize(
    ("rule", "hit"),
    [
        ("resource: nvidia.com/gpu, devices: [g/1]", {"1"}),
        ("devices: {profile: 1g.6gb}", {"2:0", "2:1"}),
        ("devices: [g/2:1]", {"2:1"}),
        ("devices: [g/2]", {"2:0", "2:1"}),
        ("devices: {count: 1}", {"0"}),
    ],
)
def test_rules_mean_devices_of_claims_as_they_mean_others(advertise, rule, hit):
    """By entry, resource, profile, partition; also where the device plugin has the same ones."""
    text = f"""
flags: {{migStrategy: mixed}}
devices:
- name: g
  resource: nvidia.com/gpu
  virtual: {{preset: a30, count: 3}}
  partitions: {{"2": [1g.6gb, 1g.6gb]}}
  advertise: {advertise}
faults: {{rules: [{{name: x, {rule}, health: Unhealthy}}]}}
"""
    spec = config.load_text(text).spec
    stock = inventory(spec, "n")
    keys = targets.select(spec.faults.rules[0], stock, Dice(0, "n"))
    (offered,) = stock.claimable.values()
    found = {offered.by_id[slot].device.ordinal for name, slot in keys if name == offered.name}
    assert hit == found


def test_a_rule_for_a_resource_means_all_that_claims_get_of_its_entries():
    text = """
devices:
- {name: g, resource: a.b/c, virtual: {}, advertise: dra}
- {name: h, resource: a.b/d, virtual: {}, advertise: dra}
faults: {rules: [{name: x, devices: {resource: a.b/d}, health: Unhealthy}]}
"""
    spec = config.load_text(text).spec
    assert {("a.b", "h-0")} == targets.select(spec.faults.rules[0], inventory(spec, "n"), Dice(0, "n"))
