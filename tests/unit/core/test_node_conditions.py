"""Conditions and extended resources of the Node, as they follow from the devices."""

from vdev.model.device import Health
from vdev.model.entry import ConditionSpec, TrueWhen
from vdev.node.conditions import NodeCondition, SlotCounts, capacity, conditions
from vdev.node.losses import NONE, losses
from vdev.planning.resources import EMPTY, with_health

GPU = "nvidia.com/gpu"
WELL = ConditionSpec(type="GpuHealthy")
ILL = ConditionSpec(type="SysLogsXIDError", true_when=TrueWhen.UNHEALTHY, reason="XidSeen", message="look at the log")


def lost(build, *entries, broken=()):
    inventory = build.inventory(*entries)
    dead = dict.fromkeys(broken, Health(healthy=False, reason="dead"))
    return losses(EMPTY, with_health(inventory, dead), NONE, entries)


def test_a_healthy_entry(build):
    """Each type says it in its own polarity."""
    entry = build.entry(conditions=(WELL, ILL))
    message = "all devices of gpu are healthy"
    assert (
        NodeCondition("GpuHealthy", True, "AllDevicesHealthy", message),
        NodeCondition("SysLogsXIDError", False, "AllDevicesHealthy", message),
    ) == conditions([entry], NONE)


def test_an_entry_with_a_broken_device(build):
    """With the reason of the first device, or the words of the entry."""
    entry = build.entry(conditions=(WELL, ILL))
    found = conditions([entry], lost(build, entry, broken=["GPU-gggg1"]))
    assert (
        NodeCondition("GpuHealthy", False, "DeviceUnhealthy", "gpu: GPU-gggg1: dead"),
        NodeCondition("SysLogsXIDError", True, "XidSeen", "look at the log"),
    ) == found


def test_entries_that_share_a_type(build):
    """One condition, about the devices of both."""
    one = build.entry("one", conditions=(WELL,))
    two = build.entry("two", "acme.dev/npu", nvidia=False, geometry=None, conditions=(WELL,))
    assert "all devices of one, two are healthy" == conditions([one, two], NONE)[0].message
    (only,) = conditions([one, two], lost(build, one, two, broken=["two-0"]))
    assert NodeCondition("GpuHealthy", False, "DeviceUnhealthy", "two: two-0: dead") == only


def test_capacity_counts_slots_and_allocatable_the_healthy_ones(build):
    """As the kubelet counts a list."""
    shared = build.inventory(build.entry(), sharing=build.sharing({"name": GPU, "replicas": 4}))
    ill = with_health(shared, {"GPU-gggg0": Health(healthy=False, reason="dead")})
    assert {GPU: SlotCounts(8, 4)} == capacity(ill)
