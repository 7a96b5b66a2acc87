"""Which devices of a fleet are broken, as its page and its metrics tell it."""

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
    """However they are cut; one that is advertised both ways counts for its resource."""
    fleet = await start(BOTH_WAYS)
    view = FleetView(fleet)
    await until(lambda: view.status()["converged"] and fleet.members)
    found = view.status()["broken"]
    assert (2, ["acme.dev/npu", "gpu.nvidia.com"]) == (found["total"], [each["resource"] for each in found["devices"]])
    npu, gpu = found["devices"]
    assert ("n", "npu-1", "XID 79") == (npu["node"], npu["device"], npu["why"])
    assert gpu["device"].startswith("GPU-")
    assert "XID 79" == gpu["why"]
