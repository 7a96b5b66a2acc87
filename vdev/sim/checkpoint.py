"""The file that the device manager remembers by: who holds which devices, and which resources were registered.

Owns the file's form, which is our own: the real one's checksum depends on how Go prints structures. Like the real one
it keeps healthy ids only, and all that plugins answered, in clear. A file that cannot be read counts as none.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .state import DeviceTable, Endpoint, Held

FILE_NAME = "kubelet_internal_checkpoint"
_FORM = "vdev.sim/1"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What survives a kubelet restart."""

    holders: Mapping[str, Mapping[str, Mapping[str, Held]]] = field(default_factory=dict)
    registered: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def take(table: DeviceTable) -> str:
    """The table as the file's text."""
    entries = [
        {
            "podUID": pod,
            "container": container,
            "resource": resource,
            "deviceIDs": {str(node): list(ids) for node, ids in held.by_numa},
            "response": base64.b64encode(held.response).decode(),
        }
        for pod, containers in table.holders.items()
        for container, resources in containers.items()
        for resource, held in resources.items()
    ]
    registered = {resource: sorted(ids) for resource, ids in table.healthy.items()}
    return json.dumps({"form": _FORM, "podDeviceEntries": entries, "registeredDevices": registered}, indent=1)


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
    """Read the file's text. Raises ValueError if it is not of our form."""
    try:
        data = json.loads(text)
        if data["form"] != _FORM:
            raise ValueError(f"form {data['form']!r}, expected {_FORM!r}")
        holders: dict[str, dict[str, dict[str, Held]]] = {}
        for entry in data["podDeviceEntries"]:
            held = _held(entry)
            holders.setdefault(entry["podUID"], {}).setdefault(entry["container"], {})[entry["resource"]] = held
        return Checkpoint(holders, {r: tuple(ids) for r, ids in data["registeredDevices"].items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a checkpoint of the embedded kubelet: {error!r}") from error


def read(directory: Path) -> tuple[Checkpoint | None, str]:
    """The checkpoint of a directory, or None and why (empty if there is no file). Blocks."""
    try:
        return parse((directory / FILE_NAME).read_text()), ""
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)


def write(directory: Path, text: str) -> None:
    """Replace the checkpoint at once: a temporary file whose name starts with a dot, then a rename. Blocks."""
    temporary = directory / f".{FILE_NAME}"
    temporary.write_text(text)
    temporary.replace(directory / FILE_NAME)


def belongs_to_real_kubelet(directory: Path) -> bool:
    """Whether the directory holds the checkpoint of a real kubelet. Blocks."""
    try:
        data = json.loads((directory / FILE_NAME).read_text())
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "Data" in data and "Checksum" in data


def _held(entry: Mapping[str, Any]) -> Held:
    by_numa = sorted((int(node), tuple(ids)) for node, ids in entry["deviceIDs"].items())
    return Held(tuple(by_numa), base64.b64decode(entry["response"]))
