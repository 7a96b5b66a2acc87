"""Devices for pods on nodes without a kubelet, by the kubelet's rules."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vdev import config
from vdev.fleet.pod_devices import Assignment, assign, keys_of, note, read_pod
from vdev.model.device import RawDevice
from vdev.planning.inventory import arrange

NPU = "acme.dev/npu"
SPEC = config.load_text(
    "version: v1\ndevices: [{name: npu, resource: acme.dev/npu, virtual: {count: 4, numa: [0, 0, 1, 1]}}]"
).spec


def inventory(count=4):
    """An inventory with this number of devices."""
    raws = [RawDevice(id=f"npu-{index}", entry="npu", index=index, numa=(index // 2,)) for index in range(count)]
    return arrange(SPEC, "n", {"npu": raws})


FOUR = inventory()
NOTHING = Assignment()


def pod(name, *containers, phase="Running", noted=None, created="2026-01-01T00:00:00Z"):
    """A pod object with containers of (role, number of devices)."""
    inits, mains = [], []
    for place, (role, number) in enumerate(containers):
        limits = {"resources": {"limits": {NPU: str(number), "cpu": "1"}}} if number else {}
        always = {"restartPolicy": "Always"} if role == "sidecar" else {}
        (mains if role == "main" else inits).append({"name": f"{role}{place}", **limits, **always})
    return {
        "metadata": {
            "name": name,
            "namespace": "d",
            "uid": f"uid-{name}",
            "creationTimestamp": created,
            "annotations": {"vdev.dev/devices": noted} if noted else {},
        },
        "spec": {"nodeName": "n", "containers": mains, "initContainers": inits},
        "status": {"phase": phase},
    }


def assigned(*documents, before=NOTHING, listed=FOUR):
    """Assign devices to these pods."""
    return assign(listed, [each for each in map(read_pod, documents) if each], before)


def of(found, name, container):
    """The ids of a container."""
    return found.devices[f"uid-{name}"][container][NPU]


def test_a_pod_keeps_the_devices_of_its_annotation():
    """Another controller assigned them."""
    first = assigned(pod("a", ("main", 2)))
    text = note(first.devices["uid-a"])
    later = pod("a", ("main", 2), noted=text, created="2026-02-01T00:00:00Z")
    found = assigned(pod("b", ("main", 2)), later)
    assert (first.devices["uid-a"], {}) == (found.devices["uid-a"], found.rejected)


NONSENSE = ["{", "[]", '{"main0": 3}', '"x"', "[" * 100_000, '{"main0":' * 100_000]


@pytest.mark.parametrize("nonsense", [*NONSENSE, '{"main0": {"acme.dev/npu": ' + "[" * 5000], ids=range(7))
def test_an_invalid_annotation_is_ignored(nonsense):
    assert read_pod(pod("a", ("main", 2), noted=nonsense)).noted is None


def test_unknown_devices_in_an_annotation_are_ignored():
    found = assigned(pod("a", ("main", 2), noted='{"main0": {"acme.dev/npu": ["npu-9", "npu-8"]}}'))
    assert {"npu-0", "npu-1"} == set(of(found, "a", "main0"))


def test_the_older_of_two_pods_keeps_the_device():
    """Anybody can write the annotations."""
    text = note({"main0": {NPU: ("npu-0",)}})
    early, late = (pod(name, ("main", 1), noted=text, created=when) for name, when in (("b", "1"), ("a", "2")))
    found = assigned(late, early)
    assert ("npu-0",) == of(found, "b", "main0")
    assert ("npu-0",) != of(found, "a", "main0")


WANTED = st.lists(st.tuples(st.sampled_from(["init", "sidecar", "main"]), st.integers(0, 3)), min_size=1, max_size=4)


@given(st.lists(WANTED, max_size=5), st.integers(0, 4))
def test_no_device_is_assigned_twice(wants, gone):
    """This includes containers that run at once. Each gets its number of devices, and pods keep theirs."""
    documents = [pod(f"p{place}", *each, created=str(place)) for place, each in enumerate(wants)]
    first = assigned(*documents[:-1])
    found = assigned(*documents, before=first)
    keys = [keys_of(each) for each in found.devices.values()]
    assert sum(map(len, keys)) == len(frozenset().union(*keys))
    assert first.devices.items() <= found.devices.items()
    for document in documents:
        devices = found.devices.get(document["metadata"]["uid"])
        if devices is None:
            continue
        spec = document["spec"]
        for each in (*spec["initContainers"], *spec["containers"]):
            number = int(each.get("resources", {}).get("limits", {}).get(NPU, 0))
            assert number == len(set(devices.get(each["name"], {}).get(NPU, ())))
        beside = [each for each in spec["initContainers"] if "restartPolicy" in each]
        together = [
            each for one in (*spec["containers"], *beside) for each in devices.get(one["name"], {}).get(NPU, ())
        ]
        assert len(together) == len(set(together))
    fewer = assigned(*documents, before=found, listed=inventory(gone))
    held = {slot for each in fewer.devices.values() for _, slot in keys_of(each)}
    assert held <= inventory(gone).resources[NPU].by_id.keys()


@pytest.mark.parametrize(
    "more",
    [
        {"nobody": {NPU: ["npu-1", "npu-2", "npu-3"]}},
        {"main0": {"other.dev/x": ["x-1"]}},
        {"main0": {NPU: ["npu-0", "npu-1", "npu-2", "npu-3"]}},
    ],
    ids=["a container that it does not have", "a resource that it does not ask for", "more than it asks for"],
)
def test_an_annotation_gives_only_requested_devices(more):
    """The creator of a pod can write anything there; the other devices stay free."""
    noted = {"main0": {NPU: ["npu-0"]}}
    text = json.dumps({name: {**noted.get(name, {}), **more.get(name, {})} for name in noted | more})
    found = assigned(pod("a", ("main", 1), noted=text), pod("b", ("main", 3), created="2026-02-01T00:00:00Z"))
    assert [1, 3] == [len(keys_of(found.devices[f"uid-{name}"])) for name in "ab"]
    assert not read_pod(pod("a", ("main", 1), noted=json.dumps(more))).noted
