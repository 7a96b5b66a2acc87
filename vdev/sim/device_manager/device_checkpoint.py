"""The device manager's checkpoint, `kubelet_internal_checkpoint`: who holds which devices, and which resources exist.

The format is the real kubelet's, so that a plugin can read this file, too. It lists healthy ids only and contains the
plugins' answers in plain text. Only the checksum differs, because the real one depends on how Go prints structures; it
also tells our files from a real kubelet's. A file that cannot be read is treated as absent.

The file is an upper bound of what pods hold: devices of pods that have ended stay in it until the next write.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...json_text import parse_json
from .device_table import DeviceTable, Endpoint, Held

FILE_NAME = "kubelet_internal_checkpoint"
_OURS = b"vdev.sim"  # seed of the checksum; a real kubelet's checksum equals ours once in four billion


def take(table: DeviceTable) -> str:
    """The table as the file's text."""
    entries = [
        {
            "PodUID": pod,
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": {str(node): list(ids) for node, ids in held.by_numa},
            "AllocResp": base64.b64encode(held.response).decode(),
        }
        for pod, containers in table.holders.items()
        for container, resources in containers.items()
        for resource, held in resources.items()
    ]
    registered = {resource: sorted(ids) for resource, ids in sorted(table.healthy.items())}
    data = {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}  # Go writes an empty slice as null
    return _dump({"Data": data, "Checksum": _checksum(data)})


def restore(table: DeviceTable, data: Mapping[str, Any], *, now: float) -> None:
    """Fill the table of a kubelet that starts: resources are known, but nothing is healthy and no plugin is there."""
    for resource in data["RegisteredDevices"]:
        table.endpoints[resource] = Endpoint("", None, now)
        table.healthy[resource] = set()
        table.unhealthy[resource] = set()
    for entry in data["PodDeviceEntries"] or []:
        by_numa = sorted((int(node), tuple(ids)) for node, ids in entry["DeviceIDs"].items())
        containers = table.holders.setdefault(entry["PodUID"], {})
        held = containers.setdefault(entry["ContainerName"], {})
        held[entry["ResourceName"]] = Held(tuple(by_numa), base64.b64decode(entry["AllocResp"]))
    table.recount()


def parse(text: str) -> Mapping[str, Any]:
    """The data of a file that we wrote. Raises ValueError if it is not ours or damaged."""
    document = parse_json(text)
    if not _is_checkpoint(document):
        raise ValueError("not a kubelet's checkpoint")
    if document["Checksum"] != _checksum(document["Data"]):
        raise ValueError("the checksum does not match")
    data: Mapping[str, Any] = document["Data"]
    return data


def read(directory: Path) -> tuple[Mapping[str, Any] | None, str]:
    """The data of a directory's checkpoint, or None and why (empty if there is no file). Blocks."""
    try:
        return parse((directory / FILE_NAME).read_text()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)


def write(directory: Path, text: str) -> None:
    """Replace the checkpoint, by a temporary dot file and a rename. Blocks briefly."""
    temporary = directory / f".{FILE_NAME}"
    temporary.touch(mode=0o600)  # as the real one
    temporary.write_text(text)
    temporary.replace(directory / FILE_NAME)


def belongs_to_real_kubelet(directory: Path) -> bool:
    """Whether the directory holds the checkpoint of a real kubelet. Blocks."""
    try:
        document = parse_json((directory / FILE_NAME).read_text())
    except (OSError, ValueError):
        return False
    return _is_checkpoint(document) and bool(document["Checksum"] != _checksum(document["Data"]))


def _is_checkpoint(document: Any) -> bool:
    return isinstance(document, dict) and {"Data", "Checksum"} <= document.keys()


def _checksum(data: Any) -> int:
    return zlib.crc32(_dump(data).encode(), zlib.crc32(_OURS))


def _dump(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
