"""Claims and devices for tests of the DRA driver, and the kubelet's side of its sockets."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import grpc
import jsonschema

from tests.kit.specs import made_entry, made_virtual
from vdev.aio.clock import PRODUCTION_TIMING
from vdev.dra.published_devices import DraDevice, PublishedPool
from vdev.model.device import Device, RawDevice, Slot
from vdev.pb import (
    dra_health_v1_pb2,
    dra_health_v1_pb2_grpc,
    dra_health_v1alpha1_pb2,
    dra_health_v1alpha1_pb2_grpc,
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    pluginregistration_v1_pb2,
    pluginregistration_v1_pb2_grpc,
)
from vdev.planning.resources import Resource

CDI = jsonschema.Draft202012Validator(json.loads((Path(__file__).parent / "cdi.schema.json").read_text()))


def claim(name, *results, driver, uid="", namespace="default", pool="node-1", config=(), others=None):
    """Return an allocated ResourceClaim. `results` are (request, device[, fields]); `others` are for other drivers."""
    found = [
        {"request": request, "driver": driver, "pool": pool, "device": device, **(more[0] if more else {})}
        for request, device, *more in results
    ]
    found += [
        {"request": request, "driver": other, "pool": pool, "device": device}
        for other, (request, device) in (others or {}).items()
    ]
    requests = dict.fromkeys(each["request"].partition("/")[0] for each in found)
    metadata = {"name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
    return {
        "metadata": metadata,
        "spec": {"devices": {"requests": [{"name": each, "exactly": {"deviceClassName": "any"}} for each in requests]}},
        "status": {"allocation": {"devices": {"results": found, **({"config": [*config]} if config else {})}}},
    }


def config(parameters, driver, *requests, source="FromClaim"):
    """Return an item of `allocation.devices.config`."""
    return {"source": source, "requests": [*requests], "opaque": {"driver": driver, "parameters": parameters}}


def device(name, index):
    """A virtual device."""
    return Device(id=name, raw=RawDevice(id=name, entry="gpu", index=index), ordinal=str(index))


def resource(*devices, **entry):
    """A resource with these devices."""
    gpu = made_entry("gpu", "acme.dev/gpu", virtual=made_virtual(len(devices)), **entry)
    return Resource("acme.dev/gpu", tuple(Slot(each.id, each) for each in devices), {"gpu": gpu})


def pool(driver, devices, resource, *, shared=()):
    """Return the pool of devices by their published names; `shared` are the names of shared devices."""
    found = tuple(DraDevice(name=name, device=each, shared=name in shared) for name, each in devices.items())
    return PublishedPool(driver, resource, found)


def agent(api, timing=PRODUCTION_TIMING, **more):
    """What a driver uses of its agent."""
    return SimpleNamespace(
        options=SimpleNamespace(node_name="node-1", timing=timing),
        node_api=SimpleNamespace(api=api),
        placeholders=SimpleNamespace(renew=lambda _raw: None),
        **more,
    )


class Kubelet:
    """The kubelet's side of the API: it finds registration sockets in a directory, and calls the drivers."""

    def __init__(self, directory):
        self.directory = directory
        self.registry.mkdir(parents=True, exist_ok=True)
        self._channels = []

    @property
    def registry(self):
        """The directory of the registration sockets."""
        return self.directory / "plugins_registry"

    @property
    def sockets(self):
        """The existing sockets, as the plugin watcher finds them."""
        return sorted(each for each in self.registry.iterdir() if each.is_socket() and not each.name.startswith("."))

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        for each in self._channels:
            await each.close()

    def channel(self, socket):
        """Return a connection to a socket."""
        self._channels.append(grpc.aio.insecure_channel(f"unix:{socket}"))
        return self._channels[-1]

    async def register(self, socket=None, *, error=""):
        """Call GetInfo at this socket, or at the only one, and notify the driver of its registration.

        Like the kubelet, it retries if the socket was replaced in the meantime.
        """
        for attempts_left in reversed(range(5)):
            (found,) = [socket] if socket else self.sockets
            stub = pluginregistration_v1_pb2_grpc.RegistrationStub(self.channel(found))
            try:
                info = await stub.GetInfo(pluginregistration_v1_pb2.InfoRequest(), timeout=10)
                break
            except grpc.aio.AioRpcError as failed:
                if failed.code() is not grpc.StatusCode.UNAVAILABLE or not attempts_left:
                    raise
                await asyncio.sleep(0.2)
        status = pluginregistration_v1_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        await stub.NotifyRegistrationStatus(status, timeout=10)
        return Driver(info, self.channel(info.endpoint))


class Driver:
    """The client of a registered driver. Its calls take and return plain values."""

    def __init__(self, info, channel):
        self.info = info
        self._stub = dra_v1_pb2_grpc.DRAPluginStub(channel)
        self._health = {
            "v1": (dra_health_v1_pb2, dra_health_v1_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources),
            "v1alpha1": (
                dra_health_v1alpha1_pb2,
                dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub(channel).NodeWatchResources,
            ),
        }

    async def prepare(self, *claims):
        """Call NodePrepareResources for these ResourceClaims. Returns the answers by uid."""
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=_named(claims))
        return dict((await self._stub.NodePrepareResources(request, timeout=45)).claims)

    async def unprepare(self, *claims):
        """Call NodeUnprepareResources. Returns the errors by uid."""
        request = dra_v1_pb2.NodeUnprepareResourcesRequest(claims=_named(claims))
        answer = await self._stub.NodeUnprepareResources(request, timeout=45)
        return {uid: each.error for uid, each in answer.claims.items()}

    def watch(self, version="v1alpha1"):
        """Open the health stream."""
        pb, watch = self._health[version]
        return watch(pb.NodeWatchResourcesRequest())


def _named(claims):
    return [{name: each["metadata"][name] for name in ("namespace", "uid", "name")} for each in claims]


class NoFaults:
    """A fault engine without rules."""

    def on_call(self, call, driver):
        """Inject no fault."""

    def has(self, rule):
        """Return False, because there are no rules."""
        return False

    def holds(self, rule):
        """Return False, because there are no rules."""
        return False

    def on_health(self, driver):
        """Inject no fault."""

    def note_allocate(self, driver, ids, /):
        """Ignore the allocation, which starts no rule."""
