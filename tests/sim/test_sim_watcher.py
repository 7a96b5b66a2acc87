"""Device plugins with a registration socket in plugins_registry."""

import grpc
import grpc.aio
import pytest

from tests.sim.conftest import shows
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from vdev.pb import pluginregistration_v1_pb2 as registration
from vdev.pb import pluginregistration_v1_pb2_grpc as registration_grpc
from vdev.sim import Kubelet, Timings, manifest

NPU = "acme.dev/npu"
QUICK = {"boot": 0.01, "lead": 0.01, "sources": 0.05}


class Asked(registration_grpc.RegistrationServicer):
    """The registration socket of a plugin. Its service is on another socket, or on the same one without `endpoint`."""

    def __init__(self, kubelet, plugin, *, fails=False, **info):
        self.socket = kubelet.root / "plugins_registry" / "npu-reg.sock"
        self.plugin, self.statuses, self.server = plugin, [], None
        self.info = registration.PluginInfo(
            **{"type": "DevicePlugin", "name": plugin.resource, "supported_versions": ["v1beta1"]} | info
        )
        self.fails = fails

    async def start(self):
        """Create the socket."""
        self.server = grpc.aio.server()
        registration_grpc.add_RegistrationServicer_to_server(self, self.server)
        if not self.info.endpoint:
            api_grpc.add_DevicePluginServicer_to_server(self.plugin, self.server)
        self.server.add_insecure_port(f"unix:{self.socket}")
        await self.server.start()
        return self

    async def stop(self):
        """Remove the socket."""
        if self.server is not None:
            await self.server.stop(None)
            self.server = None

    async def GetInfo(self, _request, _context):
        return self.info

    async def NotifyRegistrationStatus(self, request, context):
        self.statuses.append((request.plugin_registered, request.error))
        self.plugin.kubelet.journal.changed()
        if self.fails:
            await context.abort(grpc.StatusCode.INTERNAL, "no")
        return registration.RegistrationStatusResponse()


@pytest.fixture
async def watched(kubelet, clock, plugins):
    """Makes plugins, and waits until the kubelet has notified them. `endpoint` may be a function of the kubelet."""
    made = []

    async def make(devices=("d1", "d2"), *, socket="../npu.sock", on=None, serve=True, **info):
        home = on or kubelet
        plugin = await plugins(NPU, devices, on=home, serve=serve, register=False, socket=socket)
        asked = Asked(home, plugin, **{"endpoint": str(home.root / "npu.sock")} | info)
        made.append(asked)
        await asked.start()
        clock.advance(1)
        await home.wait_until(lambda: asked.statuses, what="the kubelet's word")
        return asked

    yield make
    for each in made:
        await each.stop()


def codes(kubelet):
    return [finding.code for finding in kubelet.findings]


def lost(kubelet):
    return [entry.fields["error"] for entry in kubelet.journal.of("pluginLost")]


async def test_a_watched_plugin_is_registered(kubelet, watched):
    """It is notified, called at the full path of its endpoint, and the node shows its devices."""
    asked = await watched()
    assert [(True, "")] == asked.statuses
    await shows(kubelet, NPU, 2, 2)
    pod = await kubelet.run_pod(manifest("p", {NPU: 1}))
    assert pod.container().edits.envs["STUB_DEVICES"] in {"d1", "d2"}
    (noted,) = kubelet.journal.of("registered")
    assert (NPU, asked.info.endpoint) == (noted.fields["resource"], noted.fields["endpoint"])
    assert 0 == kubelet.metrics.registrations[NPU]  # a real kubelet counts only registrations over kubelet.sock
    assert [] == kubelet.findings


@pytest.mark.parametrize(
    ("info", "said", "code"),
    [
        (
            {"supported_versions": ["v1", "v2"], "name": "npu"},
            "manager version, v1beta1, is not among plugin supported versions [v1 v2]",
            "api-version",
        ),
        (
            {"name": "npu"},
            'invalid name of device plugin socket: the ResourceName "npu" is invalid',
            "resource-name",
        ),
    ],
)
async def test_refused_plugins(kubelet, clock, watched, info, said, code):
    """Versions are checked before the name; a refused plugin is asked again later."""
    asked = await watched(**info)
    text = f"RegisterPlugin error -- plugin validation failed with err: {said}"
    assert [(False, text)] == asked.statuses
    assert [] == asked.plugin.calls
    assert [code] == codes(kubelet)
    await kubelet.wait_until(lambda: kubelet.journal.of("driverRefused"))
    asked.info.name, asked.info.supported_versions[:] = NPU, ["v2", "v1beta1"]
    clock.advance(1)
    await kubelet.wait_until(lambda: (True, "") in asked.statuses)


async def test_a_plugin_that_does_not_answer_is_asked_again(kubelet, clock, watched):
    """A failed registration is tried again with growing pauses."""
    asked = await watched(serve=False, endpoint="")
    await shows(kubelet, NPU, 2, 2)
    await asked.stop()
    clock.advance(1)
    await shows(kubelet, NPU, 2, 0)
    asked.plugin.failures["GetDevicePluginOptions"] = (grpc.StatusCode.INTERNAL, "no options today")
    await asked.start()
    said = "failed to get device plugin options: rpc error: code = Internal desc = no options today"
    for count, pause in enumerate([1, 0.5, 1], start=1):
        clock.advance(pause)
        await kubelet.wait_until(lambda count=count: count == len(refusals(kubelet)))
    text = f"RegisterPlugin error -- plugin registration failed with err: {said}"
    assert ([(False, text)] * 3, [text] * 3) == (asked.statuses[1:], refusals(kubelet))
    asked.plugin.failures.clear()
    clock.advance(2)
    await shows(kubelet, NPU, 2, 2)


def refusals(kubelet):
    return [entry.fields["error"] for entry in kubelet.journal.of("driverRefused")]


async def test_a_relative_endpoint_cannot_be_dialed(short_dir, clock, watched, monkeypatch):
    """A relative endpoint starts at the kubelet's working directory."""
    async with Kubelet(short_dir, clock=clock, timings=Timings(dial=0.2, **QUICK)) as kubelet:
        monkeypatch.chdir(short_dir)
        asked = await watched(on=kubelet, endpoint="npu.sock")
        said = "failed to dial device plugin: context deadline exceeded"
        assert [(False, f"RegisterPlugin error -- plugin registration failed with err: {said}")] == asked.statuses
        assert ["endpoint-relative"] == codes(kubelet)
        assert {} == kubelet.node().capacity


async def test_a_plugin_is_unregistered_when_its_registration_socket_is_removed(kubelet, clock, watched):
    """Its devices are unhealthy and its stream is closed, even if it still serves."""
    asked = await watched()
    await shows(kubelet, NPU, 2, 2)
    asked.socket.unlink()
    clock.advance(1)
    await shows(kubelet, NPU, 2, 0)
    await kubelet.wait_until(lambda: not asked.plugin.streams)
    assert [f"the registration socket for {asked.info.endpoint} is gone"] == lost(kubelet)


async def test_a_plugin_is_found_again_after_a_kubelet_restart(kubelet, watched):
    """It is registered again, because its socket in plugins_registry remains."""
    asked = await watched()
    await shows(kubelet, NPU, 2, 2)
    await kubelet.restart()
    await kubelet.wait_until(lambda: asked.statuses[1:])
    await shows(kubelet, NPU, 2, 2)
    assert [] == kubelet.findings


async def test_an_endpoint_beside_kubelet_sock_is_a_finding(kubelet, watched):
    """The kubelet removes such an endpoint at its start."""
    asked = await watched(endpoint=str(kubelet.device_plugin_dir / "npu.sock"), socket="npu.sock")
    assert [(True, "")] == asked.statuses
    assert ["endpoint-removed"] == codes(kubelet)


async def test_a_stream_that_ends_while_the_socket_stays_is_a_finding(kubelet, clock, watched):
    """The finding ends when the plugin creates its registration socket again."""
    asked = await watched()
    await shows(kubelet, NPU, 2, 2)
    asked.plugin.end_streams()
    await shows(kubelet, NPU, 2, 0)
    clock.advance(9)
    assert [] == kubelet.findings
    clock.advance(11)
    await kubelet.wait_until(lambda: kubelet.findings)
    assert ["not-registered-anew"] == codes(kubelet)
    await asked.stop()
    await asked.start()
    clock.advance(1)
    await shows(kubelet, NPU, 2, 2)


async def test_a_plugin_that_cannot_be_notified_is_unregistered(kubelet, clock, watched):
    """After a failed NotifyRegistrationStatus, its registration is retried."""
    asked = await watched(devices=["d1"], fails=True)
    await kubelet.wait_until(lambda: lost(kubelet))
    asked.fails = False
    clock.advance(1)
    await shows(kubelet, NPU, 1, 1)
