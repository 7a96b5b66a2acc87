"""The embedded kubelet with the tests' API server, which refuses the same objects as a real one."""

import pytest

from tests.kit.api_server import ApiServer
from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, exactly, pod, template
from vdev.sim import ApiObjectError, ApiObjects, Kubelet, Phase, Timings


@pytest.fixture
async def cluster(clock, cdi_dir):
    """A kubelet whose objects are an API server's."""
    async with ApiServer() as api:
        timings = Timings(boot=0.01, lead=0.01, look=0.02, sources=0.05)
        objects = ApiObjects(api.objects)
        async with Kubelet(clock=clock, timings=timings, objects=objects, cdi_dir=cdi_dir, strict=True) as kubelet:
            yield kubelet


SHARED = device(
    "s", allowMultipleAllocations=True, capacity={"slots": {"value": "2", "requestPolicy": {"default": "1"}}}
)


async def test_the_server_accepts_all_writes(cluster, dra_on):
    """Slices, claims from templates, allocations with shares, reservations, and their release."""
    create = cluster.objects.create
    await create("DeviceClass", device_class("acme.dev"))
    await create("DeviceClass", device_class("named", extendedResourceName="acme.dev/gpu"))
    await dra_on(cluster, slice_of("acme.dev", [SHARED, device("gpu-0"), device("gpu-1")]))
    await create("ResourceClaimTemplate", template("both", exactly(count=2)))
    await create("ResourceClaim", claim("one"))
    found = await cluster.run_pod(pod("first", templates=["both"], claims=["one"]))
    assert Phase.RUNNING is found.phase
    assert ("acme.dev/sim-node/s", "acme.dev/sim-node/gpu-0") == found.container().claims["both"]
    await cluster.run_pod(pod("second", limits={"acme.dev/gpu": "1"}))
    assert Phase.RUNNING is cluster.pod("second").phase
    await cluster.delete_pod("first")
    await cluster.delete_pod("second")
    assert ["one"] == [each["metadata"]["name"] for each in await cluster.objects.list("ResourceClaim")]
    assert [] == cluster.errors


async def test_an_edit_with_an_unknown_field_is_refused(cluster):
    """It is refused as over HTTP."""
    await cluster.objects.create("ResourceClaim", claim("one"))
    with pytest.raises(ApiObjectError, match=r"spec\.device"):
        await cluster.objects.edit("ResourceClaim", "one", "", lambda each: each["spec"].update(device={}))
    kept = await cluster.objects.get("ResourceClaim", "one")
    assert ["devices"] == list(kept["spec"])
