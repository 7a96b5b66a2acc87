"""The broken devices in a fleet's status, and unreadable objects and files, which do not stop the controller."""

import json

from tests.kit.fleet import CONFIG, add_pod, capacity, devices
from vdev import config
from vdev.fleet.view import FleetView

BOTH_WAYS = """
version: v1
devices:
  - {name: npu, resource: acme.dev/npu, virtual: {count: 2}, advertise: [device-plugin, dra]}
  - name: a100
    resource: nvidia.com/gpu
    virtual: {preset: a100-sxm4-40gb, count: 2}
    advertise: [dra]
    dra: {partitions: dynamic}
fleet: {nodes: [{name: n}]}
faults: {seed: 3, rules: [{name: sick, devices: [npu/1, a100/0], health: Unhealthy, reason: XID 79}]}
"""


async def test_broken_devices_of_claims_are_counted_once(start, until):
    """A partitioned device counts once. A device that is advertised in both ways counts for its extended resource."""
    fleet = await start(BOTH_WAYS)
    view = FleetView(fleet)
    await until(lambda: view.status()["converged"] and fleet.members)
    found = view.status()["broken"]
    assert (2, ["acme.dev/npu", "gpu.nvidia.com"]) == (found["total"], [each["resource"] for each in found["devices"]])
    npu, gpu = found["devices"]
    assert ("n", "npu-1", "XID 79") == (npu["node"], npu["device"], npu["why"])
    assert gpu["device"].startswith("GPU-")
    assert "XID 79" == gpu["why"]


ODD = [
    {"metadata": None},
    {"metadata": {"name": ["n"]}},
    {"metadata": {"name": "n", "namespace": "d", "uid": "u", "annotations": 5}, "spec": {"nodeName": "n"}},
    {"metadata": {"name": "n", "uid": "u"}, "spec": {"containers": 5}, "status": {"conditions": 5, "allocation": 5}},
    {"metadata": {"name": "n", "uid": "u"}, "spec": "x", "status": ["x"]},
]


async def test_malformed_objects_do_not_stop_the_controller(start, api_server, until):
    """They come as events of every watch. Later events are handled."""
    fleet = await start(CONFIG)
    await until(lambda: fleet.is_settled and 3 == len(fleet.members))
    for number, document in enumerate(ODD):
        api_server.break_watches(json.dumps({"type": "ADDED", "object": document}).encode() + b"\n")
        name = f"kwok-{number}"
        await api_server.add("nodes", {"metadata": {"name": name, "labels": {"type": "kwok"}}})
        await until(lambda name=name: ["4", "4"] == capacity(api_server, name))
        await add_pod(api_server, f"on-{name}", 2, node=name)
        await until(lambda name=name: devices(api_server, f"on-{name}"))


async def test_a_malformed_pod_annotation_does_not_stop_the_controller(start, api_server, until):
    """Everybody who may create pods can write it."""
    fleet = await start(CONFIG)
    await until(lambda: fleet.is_settled and 3 == len(fleet.members))
    await add_pod(api_server, "p", 2, node="gpu-1", annotations={"vdev.dev/devices": "[" * 200_000})
    await until(lambda: "npu-" in str(api_server.object("pods", "p", "default")["metadata"]["annotations"]))


async def test_a_failing_configuration_reader_does_not_stop_the_controller(start, api_server, until, directory):
    """It is a problem, and the file is read again later."""
    broken = []

    def load(files):
        if broken:
            raise OverflowError("a number that nobody thought of")
        return config.load(files)

    fleet = await start(CONFIG, load=load)
    await until(lambda: fleet.is_settled and 3 == len(fleet.members))
    broken.append(True)
    (directory / "vdev.yaml").write_text(CONFIG.replace("count: 4", "count: 5"))
    view = FleetView(fleet)
    await until(lambda: "OverflowError" in str(view.status()["problems"]))
    broken.clear()
    await until(lambda: ["5", "5"] == capacity(api_server, "gpu-1"))
    await until(lambda: [] == view.status()["problems"])
