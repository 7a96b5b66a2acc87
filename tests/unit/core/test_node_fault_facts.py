"""What fault rules say of the node, as facts of the core: Xids, conditions, Events."""

from vdev.faults import targets
from vdev.faults.effects import ApiFaults, ApiResource, ApiVerb, ConditionFault, EventFault, XidError
from vdev.faults.xids import APPLICATION_ERRORS, TEXTS, described
from vdev.model.entry import ConditionSpec
from vdev.node.conditions import NodeCondition, conditions
from vdev.node.events import NOTHING, EventText, Situation, of_situation, of_xids
from vdev.node.losses import NONE

GPU = "nvidia.com/gpu"
FALLEN, FAULT = XidError(79, "fallen"), XidError(31, "program")


def test_the_table():
    """The application's errors are those of NVIDIA's device plugin, and each has a text."""
    assert {13, 31, 43, 45, 68, 109} == APPLICATION_ERRORS
    assert TEXTS.keys() >= APPLICATION_ERRORS
    assert ("Xid 79: GPU has fallen off the bus", "Xid 500") == (described(79), described(500))


def test_xids_are_of_devices_that_are_there(build):
    """Of all replicas of a device together, and of none that is gone."""
    shared = build.inventory(build.entry(), sharing=build.sharing({"name": GPU, "replicas": 2}))
    first = [slot.id for slot in shared.resources[GPU].slots if slot.device.raw.index == 0]
    found = {(GPU, first[0]): (FALLEN,), (GPU, first[1]): (FALLEN, FAULT), (GPU, "gone"): (FALLEN,)}
    assert {(GPU, "GPU-gggg0"): (FALLEN, FAULT)} == targets.of_devices(shared, found)


def test_events_of_xids():
    """Each new one once, devices of one rule together."""
    before = {(GPU, "a"): (FALLEN,)}
    now = {(GPU, "a"): (FALLEN, FAULT), (GPU, "b"): (FALLEN,), (GPU, "c"): (FALLEN,)}
    text = "Xid 79: GPU has fallen off the bus (fault rule 'fallen')"
    other = "Xid 31: GPU memory page fault (fault rule 'program')"
    assert {
        EventText("NvidiaXID79Error", f"{GPU}: b, c: {text}", warning=True),
        EventText("NvidiaXID31Warning", f"{GPU}: a: {other}", warning=True),
    } == set(of_xids(before, now))
    assert () == of_xids(now, {})


def test_events_of_rules():
    """As often as it was said since."""
    hot = EventFault(reason="GpuHot", message="hot", type="Normal")
    assert [EventText("GpuHot", "hot")] * 2 == list(of_situation(NOTHING, Situation(announced={hot: 2})))
    assert () == of_situation(Situation(announced={hot: 2}), Situation(announced={hot: 2}))


def test_conditions_of_rules(build):
    """Over those of entries, in their place, and beside them."""
    entry = build.entry(conditions=(ConditionSpec(type="A"), ConditionSpec(type="B")))
    rules = {
        "C": ConditionFault(type="C", status=True, reason="Odd", message="c"),
        "A": ConditionFault(type="A", status=False, reason="Ill", message="a"),
    }
    found = conditions([entry], NONE, rules)
    assert ["A", "B", "C"] == [each.type for each in found]
    assert NodeCondition("A", False, "Ill", "a") == found[0]
    assert NodeCondition("C", True, "Odd", "c") == found[2]


def test_which_requests_fail():
    """Those of the rule's verbs and resources."""
    failure = ApiFaults(status=403, verbs="patch", resources="nodes/status")
    assert {(ApiVerb.PATCH, ApiResource.NODES_STATUS)} == failure.requests
    assert failure.concerns("patch", "nodes/status")
    assert not failure.concerns("patch", "nodes")
    assert not failure.ends_watches
    assert ApiFaults(unreachable=True).ends_watches
