"""A DRA driver for tests of the embedded kubelet, in plain grpcio, without code of vdev's own driver.

It publishes slices, writes a CDI spec for each prepared claim, stores prepared claims on disk, and watches its slices.
Answers are plain attributes, which tests may replace. Every call is recorded.
"""

import asyncio
import json
from pathlib import Path

import grpc
import grpc.aio

from vdev.pb import dra_health_v1alpha1_pb2 as health
from vdev.pb import dra_health_v1alpha1_pb2_grpc as health_grpc
from vdev.pb import dra_v1_pb2 as v1
from vdev.pb import dra_v1_pb2_grpc as v1_grpc
from vdev.pb import dra_v1beta1_pb2 as v1beta1
from vdev.pb import dra_v1beta1_pb2_grpc as v1beta1_grpc
from vdev.pb import pluginregistration_v1_pb2 as registration
from vdev.pb import pluginregistration_v1_pb2_grpc as registration_grpc

NODE = "sim-node"


class RefusalError(Exception):
    """Raised by an answer of a test to fail the RPC with this code and text."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def device(name, **fields):
    """Return a device of a slice. The types of attributes follow from their Python types."""
    kinds = {bool: "bool", int: "int", str: "string"}
    attributes = {key: {kinds[type(value)]: value} for key, value in fields.pop("attributes", {}).items()}
    capacity = {
        key: value if isinstance(value, dict) else {"value": value} for key, value in fields.pop("capacity", {}).items()
    }
    found = {"name": name, **fields}
    return found | ({"attributes": attributes} if attributes else {}) | ({"capacity": capacity} if capacity else {})


def slice_of(driver, devices=None, *, name="", pool=NODE, generation=1, count=1, counters=None, node=NODE):
    """A ResourceSlice."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
    }
    if devices is not None:
        spec["devices"] = devices
    if counters is not None:
        spec["sharedCounters"] = counters
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"00000-{driver}-{pool}"},
        "spec": spec,
    }


class DraDriver(
    v1_grpc.DRAPluginServicer, health_grpc.DRAResourceHealthServicer, registration_grpc.RegistrationServicer
):
    """One instance of a driver. `calls` are the names and requests of all RPCs, in order."""

    def __init__(
        self, root, objects, cdi_dir, *, driver="acme.dev", slices=(), instance="", versions=("v1.DRAPlugin",)
    ):
        self.root, self.objects, self.cdi_dir = Path(root), objects, Path(cdi_dir)
        self.driver, self.instance = driver, instance
        self.slices = list(slices)
        suffix = f"-{instance}" if instance else ""
        self.registration_socket = self.root / "plugins_registry" / f"{driver}{suffix}-reg.sock"
        self.endpoint = self.root / "plugins" / driver / f"dra{suffix}.sock"
        self.state = self.endpoint.parent / "prepared.json"
        self.info = registration.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=str(self.endpoint), supported_versions=list(versions)
        )
        self.calls, self.statuses = [], []
        self.prepare_claim, self.unprepare_claim = self._prepare, self._unprepare
        self.answer_prepare, self.answer_unprepare = self._prepare_all, self._unprepare_all
        self.answer_info = self.answer_status = None
        self.health = {}  # by device name: health, or health and message
        self.timeout = 0
        self.serves_health = True
        self._streams = set()
        self._servers = []
        self._changed = asyncio.Event()
        self._publisher = self._stop_listening = None
        self._closed = []

    # --- start and stop -----------------------------------------------------------------------------------------------

    async def start(self, *, register=True, publish=True):
        """Serve, publish the slices, and register."""
        self.endpoint.parent.mkdir(parents=True, exist_ok=True)
        self.cdi_dir.mkdir(parents=True, exist_ok=True)
        plugin = grpc.aio.server()
        v1_grpc.add_DRAPluginServicer_to_server(self, plugin)
        v1beta1_grpc.add_DRAPluginServicer_to_server(_Older(self), plugin)
        if self.serves_health:
            health_grpc.add_DRAResourceHealthServicer_to_server(self, plugin)
        await self._listen(plugin, self.endpoint)
        if publish:
            self._publisher = asyncio.create_task(self._publish(), name="publisher")
        if register:
            await self.register()
        return self

    async def register(self):
        """Open the registration socket."""
        server = grpc.aio.server()
        registration_grpc.add_RegistrationServicer_to_server(self, server)
        await self._listen(server, self.registration_socket)

    async def _listen(self, server, path):
        hidden = path.with_name(f".{path.name}")  # gRPC removes it at the end; the kubelet ignores hidden names
        hidden.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{hidden}")
        await server.start()
        path.unlink(missing_ok=True)
        path.hardlink_to(hidden)
        self._servers.append((server, path))

    async def stop(self, *, sockets_stay=False, slices_go=False):
        """Stop as on SIGTERM, or with `sockets_stay` as on SIGKILL."""
        if self._publisher is not None:
            self._publisher.cancel()
            await asyncio.wait([self._publisher])
            self._publisher = None
            self._stop_listening()
        for stream in list(self._streams):
            stream.cancel()
        while self._servers:
            server, path = self._servers.pop()
            await server.stop(None)
            if not sockets_stay:  # otherwise the same file stays and refuses connections
                path.unlink(missing_ok=True)
        if slices_go:
            for each in self.slices:
                await self.objects.delete("ResourceSlice", each["metadata"]["name"])

    # --- slices -------------------------------------------------------------------------------------------------------

    def publish(self, *slices):
        """Replace the slices."""
        self.slices = list(slices)
        self._changed.set()

    async def _publish(self):
        """Publish the slices, and again when they are deleted."""
        self._stop_listening = self.objects.listen(self._changed.set)
        self._changed.set()
        while True:
            await self._changed.wait()
            self._changed.clear()
            wanted = {each["metadata"]["name"]: each for each in self.slices}
            there = {
                each["metadata"]["name"]: each
                for each in await self.objects.list("ResourceSlice")
                if each["spec"]["driver"] == self.driver
            }
            for name in there.keys() - wanted.keys():
                await self.objects.delete("ResourceSlice", name)
            for name, each in wanted.items():
                if name not in there:
                    await self.objects.create("ResourceSlice", each)
                elif there[name]["spec"] != each["spec"]:
                    await self.objects.edit(
                        "ResourceSlice", name, "", lambda old, new=each: old.update(spec=new["spec"])
                    )

    # --- registration -------------------------------------------------------------------------------------------------

    async def GetInfo(self, request, context):
        """Answer GetInfo."""
        self.calls.append(("GetInfo", request))
        return await answered(self.answer_info(), context) if self.answer_info else self.info

    async def NotifyRegistrationStatus(self, request, context):
        """Record the result of the registration."""
        self.calls.append(("NotifyRegistrationStatus", request))
        self.statuses.append(request)
        if self.answer_status:
            await answered(self.answer_status(), context)
        return registration.RegistrationStatusResponse()

    # --- claims -------------------------------------------------------------------------------------------------------

    def asked(self, method):
        """Return the names of the claims in all calls of a method."""
        return [[claim.name for claim in request.claims] for name, request in self.calls if name == method]

    def prepared(self):
        """The prepared claims by UID."""
        return json.loads(self.state.read_text()) if self.state.exists() else {}

    async def NodePrepareResources(self, request, context):
        self.calls.append(("NodePrepareResources", request))
        return await answered(self.answer_prepare(request), context)

    async def NodeUnprepareResources(self, request, context):
        self.calls.append(("NodeUnprepareResources", request))
        return await answered(self.answer_unprepare(request), context)

    async def _prepare_all(self, request):
        return v1.NodePrepareResourcesResponse(
            claims={each.uid: await self.prepare_claim(each) for each in request.claims}
        )

    async def _unprepare_all(self, request):
        claims = {each.uid: await self.unprepare_claim(each) for each in request.claims}
        return v1.NodeUnprepareResourcesResponse(claims=claims)

    async def _prepare(self, claim):
        found = await self.objects.get("ResourceClaim", claim.name, claim.namespace)
        if found is None or found["metadata"]["uid"] != claim.uid:
            return v1.NodePrepareResourceResponse(error=f"claim {claim.namespace}/{claim.name} ({claim.uid}) not found")
        results = [
            each for each in found["status"]["allocation"]["devices"]["results"] if each["driver"] == self.driver
        ]
        mine = [each for each in results if not each.get("adminAccess") and not each.get("shareID")]
        for uid, rows in self.prepared().items():
            taken = [
                row["device"] for row in rows if uid != claim.uid for each in mine if each["device"] == row["device"]
            ]
            if taken:
                return v1.NodePrepareResourceResponse(error=f"device {taken[0]} is prepared for claim {uid}")
        self._write_spec(claim.uid, results)
        self._keep({**self.prepared(), claim.uid: mine})
        return v1.NodePrepareResourceResponse(devices=[self._device(claim.uid, each) for each in results])

    async def _unprepare(self, claim):
        self._spec(claim.uid).unlink(missing_ok=True)
        self._keep({uid: rows for uid, rows in self.prepared().items() if uid != claim.uid})
        return v1.NodeUnprepareResourceResponse()

    def _keep(self, prepared):
        self.state.write_text(json.dumps(prepared))

    def _spec(self, uid):
        return self.cdi_dir / f"k8s.{self.driver}-claim_{uid}.json"

    def _write_spec(self, uid, results):
        """Write a CDI device with the node of each result, and one with the list of devices for each request."""
        devices = [
            {
                "name": self._name(uid, each),
                "containerEdits": {"deviceNodes": [{"path": f"/dev/{each['device']}", "hostPath": "/dev/null"}]},
            }
            for each in results
        ]
        for request in sorted({each["request"].partition("/")[0] for each in results}):
            names = ",".join(each["device"] for each in results if each["request"].partition("/")[0] == request)
            variable = f"DRA_{request.upper().replace('-', '_')}={names}"
            devices.append({"name": f"{uid}-request-{request}", "containerEdits": {"env": [variable]}})
        spec = {"cdiVersion": "0.8.0", "kind": f"k8s.{self.driver}/claim", "devices": devices}
        temporary = self._spec(uid).with_suffix(".new")
        temporary.write_text(json.dumps(spec))
        temporary.replace(self._spec(uid))

    def _name(self, uid, result):
        share = f"-{result['shareID']}" if result.get("shareID") else ""
        return f"{uid}-{result['device']}{share}"

    def _device(self, uid, result):
        request = result["request"].partition("/")[0]
        names = [self._name(uid, result), f"{uid}-request-{request}"]
        return v1.Device(
            request_names=[request],
            pool_name=result["pool"],
            device_name=result["device"],
            cdi_device_ids=[f"k8s.{self.driver}/claim={name}" for name in names],
            share_id=result.get("shareID") or None,
        )

    # --- health -------------------------------------------------------------------------------------------------------

    def report_health(self, **words):
        """Report the health of devices by name (`gpu_0="UNHEALTHY: why"`), as a complete list."""
        self.health = {name.replace("_", "-"): word for name, word in words.items()}
        for stream in self._streams:
            stream.put()

    def end_streams(self):
        """End the health streams."""
        for stream in list(self._streams):
            stream.cancel()

    async def NodeWatchResources(self, request, _context):
        """Send the list at once and after each change."""
        self.calls.append(("NodeWatchResources", request))
        stream = _Stream()
        self._streams.add(stream)
        try:
            while not stream.ended:
                yield self._list()
                await stream.next()
        finally:
            self._streams.discard(stream)

    def _list(self):
        rows = []
        for name, word in self.health.items():
            state, _, message = word.partition(": ")
            identifier = health.DeviceIdentifier(pool_name=NODE, device_name=name)
            rows.append(
                health.DeviceHealth(
                    device=identifier,
                    health=getattr(health, state),
                    message=message,
                    health_check_timeout_seconds=self.timeout,
                )
            )
        return health.NodeWatchResourcesResponse(devices=rows)


class _Stream:
    def __init__(self):
        self.ended = False
        self._more = asyncio.Event()

    def put(self):
        self._more.set()

    def cancel(self):
        self.ended = True
        self._more.set()

    async def next(self):
        await self._more.wait()
        self._more.clear()


class _Older(v1beta1_grpc.DRAPluginServicer):
    """The driver as the v1beta1 service, which has no shares."""

    def __init__(self, driver):
        self._driver = driver

    async def NodePrepareResources(self, request, context):
        newer = v1.NodePrepareResourcesRequest.FromString(request.SerializeToString())
        answer = await self._driver.NodePrepareResources(newer, context)
        for each in answer.claims.values():
            for found in each.devices:
                found.ClearField("share_id")
        return v1beta1.NodePrepareResourcesResponse.FromString(answer.SerializeToString())

    async def NodeUnprepareResources(self, request, context):
        newer = v1.NodeUnprepareResourcesRequest.FromString(request.SerializeToString())
        answer = await self._driver.NodeUnprepareResources(newer, context)
        return v1beta1.NodeUnprepareResourcesResponse.FromString(answer.SerializeToString())


async def answered(answer, context):
    """Return the result of a test's answer. If it raises RefusalError, abort the RPC."""
    try:
        return await answer
    except RefusalError as refusal:
        await context.abort(refusal.code, str(refusal))
