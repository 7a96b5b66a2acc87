"""Server-side apply: ownership of fields."""

import pytest

from vdev.kube.errors import Conflict
from vdev.kube.objects import NODES

PRODUCT = "nvidia.com/gpu.product"


@pytest.fixture
async def node(api_server):
    """A Node with fields of a kubelet."""
    status = {
        "capacity": {"cpu": "8", "vdev.dev/a": "0"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }
    document = {"metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}}}
    return await api_server.add("nodes", document, manager="kubelet", status=status)


def labels(**given):
    """A document with these labels; `__` stands for the prefix `vdev.dev/`."""
    return {"metadata": {"labels": {name.replace("__", "vdev.dev/"): value for name, value in given.items()}}}


async def test_fields_that_are_left_out_are_removed(api_server, api, node):
    """Fields of others stay."""
    await api.apply(NODES, "n", labels(__a="1", __b="2"))
    found = await api.apply(NODES, "n", labels(__b="2", __c="3"))
    assert {"kubernetes.io/os": "linux", "vdev.dev/b": "2", "vdev.dev/c": "3"} == found["metadata"]["labels"]
    found = await api.apply(NODES, "n", {})
    assert {"kubernetes.io/os": "linux"} == found["metadata"]["labels"]
    assert ["kubelet"] == sorted({each["manager"] for each in found["metadata"]["managedFields"]})


async def test_a_conflict(api_server, api, node):
    """The error has the server's message with each field and its owner, and nothing is written."""
    await api_server.edit("nodes", "n", {"metadata": {"labels": {PRODUCT: "A100"}}}, manager="gfd")
    await api.apply(NODES, "n", {"metadata": {"labels": {"vdev.dev/x": "1"}}}, manager="another")
    wanted = {"metadata": {"labels": {PRODUCT: "H100", "vdev.dev/x": "2", "vdev.dev/y": "1"}}}
    with pytest.raises(Conflict, match="gfd") as raised:
        await api.apply(NODES, "n", wanted)
    for word in (f".metadata.labels.{PRODUCT}", "another", ".metadata.labels.vdev.dev/x"):
        assert word in str(raised.value)
    assert "A100" == api_server.object("nodes", "n")["metadata"]["labels"][PRODUCT]
    found = await api.apply(NODES, "n", wanted, force=True)
    assert "H100" == found["metadata"]["labels"][PRODUCT]
    assert not [each for each in found["metadata"]["managedFields"] if each["manager"] == "gfd"]


async def test_a_field_with_two_owners(api_server, api, node):
    """The same value is not a conflict, and stays until the last owner leaves it out."""
    await api.apply(NODES, "n", labels(__a="1"), manager="first")
    await api.apply(NODES, "n", labels(__a="1"), manager="second")
    found = await api.apply(NODES, "n", {}, manager="first")
    assert "1" == found["metadata"]["labels"]["vdev.dev/a"]
    found = await api.apply(NODES, "n", {}, manager="second")
    assert "vdev.dev/a" not in found["metadata"]["labels"]


async def test_the_status_subresource(api_server, api, node):
    """Applies to the object and to its status ignore the other part."""
    both = {"metadata": {"labels": {"vdev.dev/a": "1"}}, "status": {"capacity": {"vdev.dev/b": "4"}}}
    main = await api.apply(NODES, "n", both)
    assert "vdev.dev/b" not in main["status"]["capacity"]
    await api.apply(
        NODES, "n", {"metadata": {"labels": {"vdev.dev/z": "1"}}} | {"status": both["status"]}, subresource="status"
    )
    found = api_server.object("nodes", "n")
    assert ("4", "8") == (found["status"]["capacity"]["vdev.dev/b"], found["status"]["capacity"]["cpu"])
    assert "vdev.dev/z" not in found["metadata"]["labels"]
    found = await api.apply(NODES, "n", {}, subresource="status")
    assert {"cpu": "8", "vdev.dev/a": "0"} == found["status"]["capacity"]
    assert "1" == found["metadata"]["labels"]["vdev.dev/a"]


async def test_conditions_are_merged_by_type(api_server, api, node):
    """A condition is added, changed and removed without an effect on the kubelet's."""
    mine = {"type": "GpuHealthy", "status": "False", "reason": "Xid"}
    await api.apply(NODES, "n", {"status": {"conditions": [mine]}}, subresource="status")
    found = await api.apply(NODES, "n", {"status": {"conditions": [{**mine, "status": "True"}]}}, subresource="status")
    assert [("Ready", "True"), ("GpuHealthy", "True")] == [
        (each["type"], each["status"]) for each in found["status"]["conditions"]
    ]
    with pytest.raises(Conflict, match=r'conditions\[type="Ready"\].status'):
        await api.apply(
            NODES, "n", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, subresource="status"
        )
    found = await api.apply(NODES, "n", {}, subresource="status")
    assert ["Ready"] == [each["type"] for each in found["status"]["conditions"]]


_X = {"capacity": {"acme.dev/x": "1"}, "allocatable": {"acme.dev/x": "1"}}
_OURS = {"conditions": [{"type": "Ours", "status": "True"}]}


@pytest.mark.parametrize(
    ("applied", "capacity", "conditions"),
    [
        (_X | _OURS, ["acme.dev/x", "cpu"], ["Mine", "Ours"]),
        (_X, ["acme.dev/x", "cpu"], []),
        (_OURS, [], ["Mine", "Ours"]),
        ({}, [], []),
        (None, [], []),
        ({"capacity": {}, "allocatable": {}, "conditions": []}, ["cpu"], []),
    ],
)
async def test_items_without_an_owner_go_with_the_last_owned_one(applied, capacity, conditions, api_server, api):
    """Fields from the creation of a Node have no owner. A map or list without owned items is removed as a whole.

    Kubernetes 1.36.2 does the same.
    """
    born = {"capacity": {"cpu": "8"}, "conditions": [{"type": "Mine", "status": "True"}]}
    await api_server.add("nodes", {"metadata": {"name": "n"}, "status": born})
    both = {"capacity": {"acme.dev/x": "1", "acme.dev/y": "1"}, "allocatable": {"acme.dev/x": "1"}, **_OURS}
    await api.apply(NODES, "n", {"status": both}, force=True, subresource="status")
    document = {} if applied is None else {"status": applied}
    found = await api.apply(NODES, "n", document, force=True, subresource="status")
    status = found.get("status") or {}
    assert capacity == sorted(status.get("capacity") or {})
    assert conditions == sorted(each["type"] for each in status.get("conditions") or ())


async def test_a_list_in_which_others_own_no_item(api_server, api):
    """It is removed with the last owned condition: the kubelet owns fields of its conditions, but no whole condition.

    structured-merge-diff 6.3.2, which is in Kubernetes 1.36, does the same.
    """
    await api_server.register("n", {"capacity": {"cpu": "8"}})
    mine = {"status": {"capacity": {"vdev.dev/a": "1"}, "conditions": [{"type": "GpuHealthy", "status": "True"}]}}
    found = await api.apply(NODES, "n", mine, subresource="status")
    assert ["MemoryPressure", "Ready", "GpuHealthy"] == [each["type"] for each in found["status"]["conditions"]]
    capacity = {"status": {"capacity": mine["status"]["capacity"]}}
    found = await api.apply(NODES, "n", capacity, subresource="status")
    assert {"capacity": {"cpu": "8", "vdev.dev/a": "1"}} == found["status"]
