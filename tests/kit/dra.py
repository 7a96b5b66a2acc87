"""Claims and devices for tests of the DRA driver, and the kubelet's side of its sockets."""

import json
from pathlib import Path

from vdev.core import spec
from vdev.core.inventory.resources import Resource
from vdev.core.model.device import Device, RawDevice, Slot

CDI_SCHEMA = json.loads((Path(__file__).parent / "cdi.schema.json").read_text())


def claim(name, *results, driver, uid="", namespace="default", pool="node-1", config=(), others=None, annotations=None):
    """An allocated ResourceClaim. `results` are (request, device[, more fields]); `others` those of other drivers."""
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
        "metadata": metadata | ({"annotations": annotations} if annotations else {}),
        "spec": {"devices": {"requests": [{"name": each, "exactly": {"deviceClassName": "any"}} for each in requests]}},
        "status": {"allocation": {"devices": {"results": found, **({"config": [*config]} if config else {})}}},
    }


def config(parameters, driver, *requests, source="FromClaim"):
    """An item of `allocation.devices.config`."""
    return {"source": source, "requests": [*requests], "opaque": {"driver": driver, "parameters": parameters}}


def device(name, index):
    """A virtual device."""
    return Device(id=name, raw=RawDevice(id=name, entry="gpu", index=index), ordinal=str(index))


def resource(*devices, **entry):
    """A resource with these devices."""
    gpu = spec.EntrySpec(name="gpu", resource="acme.dev/gpu", source=spec.VirtualSource(count=len(devices)), **entry)
    return Resource("acme.dev/gpu", tuple(Slot(each.id, each) for each in devices), {"gpu": gpu})
