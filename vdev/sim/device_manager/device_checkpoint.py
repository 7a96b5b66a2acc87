"""The device manager's checkpoint, `kubelet_internal_checkpoint`: who holds which devices, and which resources exist.

The format is the real kubelet's, so that a plugin can read this file, too. It lists healthy ids only and contains the
plugins' answers in plain text. Only the checksum differs, because the real one depends on how Go prints structures; it
also tells our files from a real kubelet's. A file that cannot be read is treated as absent.

The file is an upper bound of what pods hold: devices of pods that have ended stay in it until the next write.
"""

import base64
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...json_text import parse_json
from .device_table import DeviceTable, Endpoint, Held

FILE_NAME = "kubelet_internal_checkpoint"
_OURS = b"vdev.sim"  # seed of the checksum; a real kubelet's checksum equals ours once in four billion


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What survives a kubelet restart."""

    holders: Mapping[str, Mapping[str, Mapping[str, Held]]] = field(default_factory=dict)
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


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


def restore(table: DeviceTable, checkpoint: Checkpoint, *, now: float) -> None:
    """Fill the table of a kubelet that starts: resources are known, but nothing is healthy and no plugin is there."""
    for resource in checkpoint.registered:
        table.endpoints[resource] = Endpoint("", None, now)
        table.healthy[resource] = set()
        table.unhealthy[resource] = set()
    for pod, containers in checkpoint.holders.items():
        table.holders[pod] = {container: dict(held) for container, held in containers.items()}
    table.recount()


def parse(text: str) -> Checkpoint:
    """Read the file's text. Raises ValueError if it is not ours or damaged."""
    try:
        document = parse_json(text)
        data = document["Data"]
        if document["Checksum"] != _checksum(data):
            raise ValueError("the checksum does not match")
        holders: dict[str, dict[str, dict[str, Held]]] = {}
        for entry in data["PodDeviceEntries"] or []:
            containers = holders.setdefault(entry["PodUID"], {})
            containers.setdefault(entry["ContainerName"], {})[entry["ResourceName"]] = _held(entry)
        return Checkpoint(holders, {r: tuple(ids) for r, ids in (data["RegisteredDevices"] or {}).items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a kubelet's checkpoint: {error!r}") from error


def read(directory: Path) -> tuple[Checkpoint | None, str]:
    """The checkpoint of a directory, or None and why (empty if there is no file). Blocks."""
    try:
        return parse((directory / FILE_NAME).read_text()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)


def write(directory: Path, text: str) -> None:
    """Replace the checkpoint atomically, by a temporary dot file and a rename; one at a time. Blocks."""
    temporary = f"{directory}/.{FILE_NAME}"
    with open(temporary, "w", opener=_for_oneself) as file:
        file.write(text)
    os.replace(temporary, f"{directory}/{FILE_NAME}")


def _for_oneself(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # as the real one


def belongs_to_real_kubelet(directory: Path) -> bool:
    """Whether the directory holds the checkpoint of a real kubelet. Blocks."""
    try:
        document = parse_json((directory / FILE_NAME).read_text())
    except (OSError, ValueError):
        return False
    if not (isinstance(document, dict) and {"Data", "Checksum"} <= document.keys()):
        return False
    return bool(document["Checksum"] != _checksum(document["Data"]))


def _checksum(data: Any) -> int:
    return zlib.crc32(_dump(data).encode(), zlib.crc32(_OURS))


def _dump(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))


def _held(entry: Mapping[str, Any]) -> Held:
    by_numa = sorted((int(node), tuple(ids)) for node, ids in entry["DeviceIDs"].items())
    return Held(tuple(by_numa), base64.b64decode(entry["AllocResp"]))
