"""Fixtures of the embedded kubelet's tests: a kubelet, and a hand-written device plugin.

The plugin shares no code with vdev's own. Each RPC is a plain attribute that a test may replace, and is recorded.
"""

import asyncio
import functools
import itertools
import re
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from tests.kit.dra_driver import DraDriver, slice_of
from tests.kit.dra_driver import device as dra_device
from tests.kit.rest import Caller
from vdev.pb import deviceplugin_v1beta1_pb2 as api
from vdev.pb import deviceplugin_v1beta1_pb2_grpc as api_grpc
from vdev.pb import podresources_v1_pb2 as resources
from vdev.pb import podresources_v1_pb2_grpc as resources_grpc
from vdev.sim import Kubelet, LeapClock, Timings
from vdev.sim.api.server import ApiServer

_serial = itertools.count(1)


def device(id_, health="Healthy", numa=()):
    """An entry of a device list."""
    topology = api.TopologyInfo(nodes=[api.NUMANode(ID=node) for node in numa]) if numa else None
    return api.Device(ID=id_, health=health, topology=topology)


class StubPlugin(api_grpc.DevicePluginServicer):
    """Serves one resource. `calls` are the names and requests of all RPCs, in order.

    A test may let an RPC fail (`failures`), wait (`hold`), or have another answer (`answer_…`).
    """

    def __init__(self, kubelet, resource, devices, *, pre_start=False, preferred=False, socket=None):
        self.kubelet = kubelet
        self.resource = resource
        self.devices = [d if isinstance(d, api.Device) else device(d) for d in devices or ()]
        self.silent = devices is None
        self.options = api.DevicePluginOptions(
            pre_start_required=pre_start, get_preferred_allocation_available=preferred
        )
        self.endpoint = socket or f"stub-{next(_serial)}.sock"
        self.calls = []
        self.streams = []
        self.server = None
        self.failures = {}  # by RPC, the code and the text with which it fails
        self.held = {}  # by RPC, the event for which it waits
        self.answer_allocate: Callable[[api.AllocateRequest], Awaitable] = self._allocate
        self.answer_preferred: Callable[[api.PreferredAllocationRequest], Awaitable] = self._preferred

    async def serve(self):
        """Listen on a socket in the kubelet's directory."""
        self.server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        api_grpc.add_DevicePluginServicer_to_server(self, self.server)
        self.server.add_insecure_port(f"unix:{self.kubelet.device_plugin_dir / self.endpoint}")
        await self.server.start()
        return self

    async def register(self, *, version="v1beta1", name=None, endpoint=None, options=None, deadline=20):
        """Register with the kubelet. Raises grpc.aio.AioRpcError if it is refused."""
        request = api.RegisterRequest(
            version=version,
            endpoint=self.endpoint if endpoint is None else endpoint,
            resource_name=self.resource if name is None else name,
            options=self.options if options is None else options,
        )
        async with grpc.aio.insecure_channel(
            f"unix:{self.kubelet.socket}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            await api_grpc.RegistrationStub(channel).Register(request, timeout=deadline)
        return self

    async def again(self):
        """Start a new server and register, as a good plugin does after a kubelet restart."""
        await self.stop()
        await self.serve()
        await self.register()

    def list(self, *devices):
        """Send a new list on every open stream."""
        self.devices = [d if isinstance(d, api.Device) else device(d) for d in devices]
        for queue in self.streams:
            queue.put_nowait(list(self.devices))

    def end_streams(self):
        """Let every ListAndWatch return, as if the plugin's handler ended."""
        for queue in self.streams:
            queue.put_nowait(None)

    async def stop(self):
        """End at once: connections break, and the socket is removed."""
        if self.server is not None:
            await self.server.stop(None)
            self.server = None

    def hold(self, name):
        """Let all calls of an RPC wait until the event is set."""
        self.held[name] = asyncio.Event()
        return self.held[name]

    def names(self):
        """The names of the RPCs so far."""
        return [name for name, _ in self.calls]

    def requests(self, name):
        """The requests of one RPC."""
        return [request for called, request in self.calls if called == name]

    async def _called(self, name, request, context):
        self.calls.append((name, request))
        if name in self.failures:
            await context.abort(*self.failures[name])
        if name in self.held:
            await self.held[name].wait()

    async def GetDevicePluginOptions(self, request, context):
        await self._called("GetDevicePluginOptions", request, context)
        return self.options

    async def ListAndWatch(self, request, context):
        """Send the present list and each new one until the test ends the stream."""
        await self._called("ListAndWatch", request, context)
        queue = asyncio.Queue()
        self.streams.append(queue)
        try:
            if not self.silent:
                yield api.ListAndWatchResponse(devices=self.devices)
            while (devices := await queue.get()) is not None:
                yield api.ListAndWatchResponse(devices=devices)
        finally:
            self.streams.remove(queue)
            self.kubelet.journal.changed()

    async def GetPreferredAllocation(self, request, context):
        await self._called("GetPreferredAllocation", request, context)
        return await self.answer_preferred(request)

    async def Allocate(self, request, context):
        await self._called("Allocate", request, context)
        return await self.answer_allocate(request)

    async def PreStartContainer(self, request, context):
        await self._called("PreStartContainer", request, context)
        return api.PreStartContainerResponse()

    async def _allocate(self, request):
        return api.AllocateResponse(
            container_responses=[
                api.ContainerAllocateResponse(envs={"STUB_DEVICES": ",".join(sorted(wanted.devices_ids))})
                for wanted in request.container_requests
            ]
        )

    async def _preferred(self, request):
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(
                    deviceIDs=sorted(r.available_deviceIDs, key=lambda i: (i not in r.must_include_deviceIDs, i))[
                        : r.allocation_size
                    ]
                )
                for r in request.container_requests
            ]
        )


@pytest.fixture
def clock():
    """A clock that the test can advance."""
    return LeapClock()


@pytest.fixture
async def kubelet(clock, cdi_dir):
    """A kubelet of 1.36 in its own directory. Its node status follows at once; its timers use the test's clock."""
    timings = Timings(boot=0.01, lead=0.01, look=0.02, sources=0.05)
    async with Kubelet(clock=clock, rate_limit=False, timings=timings, cdi_dir=cdi_dir) as running:
        yield running
    for entry in running.journal.entries:
        assert set(entry.fields) <= documented_events()[entry.event], entry


@functools.cache
def documented_events():
    """The fields of each kind of event of `vdev sim` in the documentation's table."""
    text = (Path(__file__).parents[2] / "docs" / "embedded-kubelet.md").read_text()
    table = text.partition("### Events")[2].partition("\n\nEach of")[0]
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| (.*) \|$", table, re.MULTILINE)
    return {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}


@pytest.fixture
async def plugins(kubelet):
    """Make plugins. By default, they serve, are registered, and are shown by the node on return."""
    made = []

    async def make(resource="acme.dev/npu", devices=("d1", "d2"), *, serve=True, register=True, on=None, **options):
        plugin = StubPlugin(on or kubelet, resource, devices, **options)
        made.append(plugin)
        if serve:
            await plugin.serve()
        if serve and register:
            await plugin.register()
            if devices is not None:
                await shows(on or kubelet, resource, len({d.ID for d in plugin.devices}))
        return plugin

    yield make
    for plugin in made:
        await plugin.stop()


async def shows(kubelet, resource, capacity=None, allocatable=None):
    """Wait until the node shows these numbers."""

    def condition():
        node = kubelet.node()
        return (capacity is None or node.capacity.get(resource) == capacity) and (
            allocatable is None or node.allocatable.get(resource) == allocatable
        )

    await kubelet.wait_until(condition, what=f"{resource} {capacity}/{allocatable}")


async def listed(kubelet):
    """The device ids in PodResources, by pod, asked over a new connection."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"unix:{kubelet.pod_resources_socket}", options=options) as channel:
        answer = await resources_grpc.PodResourcesListerStub(channel).List(resources.ListPodResourcesRequest())
    return {
        pod.name: sorted(id_ for each in pod.containers for entry in each.devices for id_ in entry.device_ids)
        for pod in answer.pod_resources
    }


@pytest.fixture
async def ask():
    """A client of an API server of 1.36."""
    async with ApiServer() as server:
        yield Caller(server)


@pytest.fixture
def short_dir():
    """A temporary directory with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="sim-") as path:
        yield Path(path)


@pytest.fixture
def cdi_dir(tmp_path):
    """The directory of CDI specifications, for drivers and for the kubelet's runtime."""
    return tmp_path / "cdi"


@pytest.fixture
async def dra_on(cdi_dir, clock):
    """Make DRA drivers on a kubelet. On return they are registered and connected, and their slices are published."""
    made = []

    async def make(kubelet, *slices, driver="acme.dev", register=True, **options):
        found = DraDriver(kubelet.root, kubelet.objects, cdi_dir, driver=driver, slices=slices, **options)
        made.append(found)
        await found.start(register=register)
        if register:
            clock.advance(1)  # the kubelet's next look
            await registered(kubelet, found)
        return found

    yield make
    for each in made:
        await each.stop()


async def registered(kubelet, driver):
    """Wait until the kubelet is connected to this instance, and its slices are there."""
    names = {each["metadata"]["name"] for each in driver.slices}
    there = set()

    def connected():
        found = kubelet.drivers().get(driver.driver, [])
        there = any(each.connected and each.endpoint == str(driver.endpoint) for each in found)
        return there and driver.statuses

    await kubelet.wait_until(connected, what=f"{driver.driver} to be connected")
    async with asyncio.timeout(30):
        while not names <= there:
            there = {each["metadata"]["name"] for each in await kubelet.objects.list("ResourceSlice")}
            await kubelet.journal.next_change(at_most=0.01)


@pytest.fixture
def dra(kubelet, dra_on):
    """Make DRA drivers on the test's kubelet, which is the attribute `kubelet`."""

    async def make(*slices, **options):
        return await dra_on(kubelet, *slices, **options)

    make.kubelet = kubelet
    return make


@pytest.fixture
def driver_slices():
    """A slice with two devices."""
    return [slice_of("acme.dev", [dra_device("gpu-0"), dra_device("gpu-1")])]


@pytest.fixture
def kubelet_of(clock, cdi_dir):
    """Make kubelets with other timings."""

    def make(**options):
        timings = Timings(boot=0.01, lead=0.01, look=0.02, sources=0.05, **options)
        return Kubelet(clock=clock, rate_limit=False, timings=timings, cdi_dir=cdi_dir, strict=True)

    return make
