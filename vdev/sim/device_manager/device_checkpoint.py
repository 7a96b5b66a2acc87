"""The device manager's checkpoint, `kubelet_internal_checkpoint`: the devices that pods hold, and known resources.

It has the real kubelet's format, because plugins read it. Only the checksum differs, because the real one depends on
how Go prints structures. A different checksum shows that a real kubelet wrote the file. An unreadable file counts as
missing.

The file contains devices of ended pods until the next write.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import SocketError
from ...hostfs import write_atomic
from ...pb import deviceplugin_v1beta1_pb2 as api
from .device_table import DeviceTable, Endpoint, Held

FILE_NAME = "kubelet_internal_checkpoint"
_SEED = b"vdev.sim"  # of the checksum


def write(directory: Path, table: DeviceTable) -> None:
    """Replace the checkpoint. It has the real file's mode. Blocks briefly. Raises HostError."""
    entries = [
        {
            "PodUID": held.pod,
            "ContainerName": held.container,
            "ResourceName": held.resource,
            "DeviceIDs": {str(node): list(ids) for node, ids in held.by_numa},
            "AllocResp": base64.b64encode(held.response).decode(),
        }
        for held in table.holders.values()
    ]
    registered = {resource: sorted(ids) for resource, ids in sorted(table.healthy.items())}
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}  # Go writes an empty slice as null
    text = _json({"Data": data, "Checksum": _checksum(data)})
    write_atomic(directory / FILE_NAME, text.encode(), mode=0o600)


def restore(table: DeviceTable, data: Mapping[str, Any], *, now: float) -> None:
    """Fill the table of a starting kubelet. Restored resources have no plugin and no healthy device."""
    for resource in data["RegisteredDevices"]:
        table.endpoints[resource] = Endpoint(None, api.DevicePluginOptions(), now)
        table.healthy[resource] = set()
        table.unhealthy[resource] = set()
    for entry in data["PodDeviceEntries"] or []:
        by_numa = sorted((int(node), tuple(ids)) for node, ids in entry["DeviceIDs"].items())
        key = entry["PodUID"], entry["ContainerName"], entry["ResourceName"]
        table.holders[key] = Held(*key, tuple(by_numa), base64.b64decode(entry["AllocResp"]))
    table.recount()


def read(directory: Path) -> tuple[Mapping[str, Any] | None, str]:
    """Return the checkpoint's data, or None and the error, which is empty if the file does not exist. Blocks.

    Raises SocketError if a real kubelet wrote the checkpoint.
    """
    try:
        document = json.loads((directory / FILE_NAME).read_text())
        data, checksum = document["Data"], document["Checksum"]
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError, TypeError, KeyError) as error:
        return None, f"not a kubelet's checkpoint: {error}"
    if checksum != _checksum(data):
        raise SocketError(f"{directory}: belongs to a real kubelet; use another directory")
    return data, ""


def _checksum(data: Any) -> int:
    return zlib.crc32(_json(data).encode(), zlib.crc32(_SEED))


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
