"""DRA drivers register with the embedded kubelet, which deletes their slices when they are gone."""

import asyncio

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from tests.kit.dra_driver import device, slice_of
from tests.kit.dra_objects import claim, device_class, pod
from vdev.pb import pluginregistration_v1_pb2 as registration


def refusals(kubelet):
    return [entry.fields["error"] for entry in kubelet.journal.of("driverRefused")]


async def refused(kubelet, clock):
    """The kubelet's error at its next check."""
    clock.advance(1)
    await kubelet.wait_until(lambda: refusals(kubelet))
    return refusals(kubelet)[0]


async def slices(kubelet):
    return [each["metadata"]["name"] for each in await kubelet.objects.list("ResourceSlice")]


async def has_slices(kubelet, *names):
    """Wait until exactly these exist."""
    async with asyncio.timeout(30):
        while await slices(kubelet) != list(names):
            await kubelet.journal.next_change(at_most=0.01)


async def test_a_registration(kubelet, dra):
    """GetInfo, then NotifyRegistrationStatus. The kubelet calls the first service that it knows."""
    driver = await dra(versions=("v9.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"))
    assert ["GetInfo", "NotifyRegistrationStatus"] == [name for name, _ in driver.calls if name != "NodeWatchResources"]
    assert driver.statuses[0].plugin_registered
    (found,) = kubelet.drivers()["acme.dev"]
    assert ("v1beta1.DRAPlugin", str(driver.endpoint)) == (found.service, found.endpoint)


async def test_the_authority_is_the_path_of_the_socket(kubelet, clock):
    """It is the default of Go's gRPC; some HTTP/2 libraries refuse it."""
    asked = asyncio.get_running_loop().create_future()

    async def connected(reader, writer):
        connection = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        connection.initiate_connection()
        while not asked.done():
            writer.write(connection.data_to_send())
            for event in connection.receive_data(await reader.read(2**16)):
                if isinstance(event, RequestReceived):
                    asked.set_result(dict(event.headers))
        writer.close()

    path = kubelet.root / "plugins_registry" / "acme.dev~(1)-reg.sock"
    async with await asyncio.start_unix_server(connected, path):
        clock.advance(1)
        headers = await asyncio.wait_for(asked, 30)
    assert "/pluginregistration.Registration/GetInfo" == headers[":path"]
    assert str(path).replace("/", "%2F") == headers[":authority"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"supported_versions": []}, "empty list of supported gRPC services (aka supported versions)"),
        (
            {"supported_versions": ["v7.DRAPlugin"]},
            'none of services supported by the plugin (["v7.DRAPlugin"]) are supported by the kubelet '
            '(["v1.DRAPlugin" "v1beta1.DRAPlugin"])',
        ),
    ],
)
async def test_services_that_the_kubelet_does_not_know(kubelet, dra, clock, change, text):
    """The kubelet refuses them and tells the driver why."""
    driver = await dra(register=False)
    info = {"type": "DRAPlugin", "name": "acme.dev", "endpoint": str(driver.endpoint), **change}
    driver.info = registration.PluginInfo(**info)
    await driver.register()
    where = f"invalid supported gRPC versions of DRA driver plugin acme.dev at endpoint {driver.endpoint}"
    said = f"RegisterPlugin error -- plugin validation failed with err: {where}: {text}"
    assert said == await refused(kubelet, clock)
    assert (False, said) == (driver.statuses[0].plugin_registered, driver.statuses[0].error)
    assert {} == kubelet.drivers()


async def test_two_instances_of_a_driver(kubelet, dra, clock):
    """The kubelet calls the newest connected one, and refuses the same endpoint twice."""
    await kubelet.objects.create("DeviceClass", device_class("acme.dev"))
    old = await dra(slice_of("acme.dev", [device("gpu-0")]), instance="old")
    new = await dra(*old.slices, instance="new")
    await kubelet.objects.create("ResourceClaim", claim("gpu"))
    await kubelet.run_pod(pod("one", claims=["gpu"]))
    assert ([], [["gpu"]]) == (old.asked("NodePrepareResources"), new.asked("NodePrepareResources"))
    await new.stop(sockets_stay=True)
    await kubelet.wait_until(lambda: not kubelet.drivers()["acme.dev"][1].connected)
    await kubelet.delete_pod("one")
    assert [["gpu"]] == old.asked("NodeUnprepareResources")

    thief = await dra(register=False, instance="thief")
    thief.info.endpoint = str(old.endpoint)
    await thief.register()
    text = f"endpoint {old.endpoint} already registered for DRA driver plugin acme.dev"
    assert f"RegisterPlugin error -- plugin registration failed with err: {text}" == await refused(kubelet, clock)
    await kubelet.wait_until(lambda: thief.statuses)
    assert text in thief.statuses[0].error


async def test_a_kubelet_that_starts_deletes_the_slices_of_its_node(kubelet, dra):
    """The slices of all drivers are deleted at once; slices of other nodes stay."""
    await dra(slice_of("acme.dev", []), slice_of("acme.dev", [], name="far", node="elsewhere"))
    await kubelet.objects.create("ResourceSlice", slice_of("gone.dev", [], name="gone"))
    await kubelet.restart()
    await kubelet.wait_until(lambda: kubelet.journal.of("slicesDeleted"))
    await has_slices(kubelet, "00000-acme.dev-sim-node", "far")  # the driver publishes again


async def test_slices_are_deleted_thirty_seconds_after_the_last_connection(kubelet, dra, clock):
    """They are not deleted before, or if the driver has connected again."""
    driver = await dra(slice_of("acme.dev", [device("gpu-0")]))
    await driver.stop()
    clock.advance(1)
    await kubelet.wait_until(lambda: not kubelet.drivers())
    clock.advance(20)
    await driver.start(publish=False)
    clock.advance(1)
    await kubelet.wait_until(lambda: kubelet.drivers().get("acme.dev") and kubelet.drivers()["acme.dev"][0].connected)
    clock.advance(60)
    assert ["00000-acme.dev-sim-node"] == await slices(kubelet)
    await driver.stop()
    clock.advance(1)
    await kubelet.wait_until(lambda: not kubelet.drivers())
    clock.advance(30)
    await has_slices(kubelet)


async def test_a_broken_connection_is_opened_again(kubelet, dra, clock):
    """A killed driver stays registered. Its slices are deleted unless it serves the same sockets again."""
    driver = await dra()
    await driver.stop(sockets_stay=True)
    await kubelet.wait_until(lambda: not kubelet.drivers()["acme.dev"][0].connected)
    await driver.start(register=False)
    await kubelet.wait_until(lambda: kubelet.drivers()["acme.dev"][0].connected)
    assert 1 == len(driver.statuses)


async def test_findings_about_a_registration(kubelet, dra, clock):
    """The real kubelet accepts these silently."""
    await dra(driver="Acme", versions=("v1beta1.DRAPlugin", "v1.DRAPlugin"))
    assert {"driver-name", "service-order"} == {each.code for each in kubelet.findings}
