"""Whose the stand-ins in the device directory are, and which slots each of them is for.

One agent at a time makes stand-ins in a directory (a lock), and only for one owner (a record in the directory), so that
nobody removes what another agent made. The record tells a later process which pods may still hold what it finds.
Blocks.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import structlog

from ....core.model import virtual_node
from ....core.model.device import Key, base_id
from ....core.retention.holders import Holdings
from ....errors import HostError
from ....hostfs import HostRoot, write_atomic
from ....hostfs.directory_lock import DirectoryLock
from ....hostfs.look import exists, listed

log = structlog.get_logger(__name__)

FILE = ".standins.json"
_VERSION = 1
_LIMIT = 64 * 2**20  # bytes; a full list of the kubelet's is a tenth of it
_NVIDIA_PARTITION = "MIG-"  # its id does not tell the device's

Slots = Mapping[str, frozenset[Key]]
"""The slots (resource or driver, id) of each stand-in, by raw device id."""


class VirtualNodeRecord:
    """The right of `owner` (node and plugin directory) to make stand-ins in a directory."""

    def __init__(self, directory: Path, owner: str) -> None:
        self.slots: Slots | None = None  # as recorded; None before the first `take`
        self._directory = directory
        self._owner = owner
        self._lock = DirectoryLock(directory)
        self._told = ""

    def take(self) -> bool:
        """Get the directory, or keep it; False when there is none. Raises HostError when it is another agent's."""
        try:
            ours = self._lock.take()
        except OSError:
            return False
        if not ours:
            raise HostError(
                f"another vdev makes its virtual nodes in {self._directory}; give each agent its own --device-dir"
            )
        if self.slots is None:
            owner, slots = _read(self._directory / FILE)
            if owner not in ("", self._owner) and names(self._directory):
                self._lock.release()
                raise HostError(
                    f"the virtual nodes in {self._directory} belong to another agent ({owner}); "
                    "give this one its own --device-dir, or remove them once no pod has them"
                )
            self.slots = slots if owner == self._owner else {}
        return True

    def release(self) -> None:
        """Let another process have the directory."""
        self._lock.release()

    def close(self) -> None:
        """Let another process have the directory, for good."""
        self._lock.close()

    def write(self, slots: Slots) -> None:
        """Record these stand-ins. What cannot be written is logged: a later process then knows less, and keeps more."""
        if slots == self.slots and (not slots or exists(self._directory / FILE)):
            return
        document = {"version": _VERSION, "owner": self._owner, "slots": {key: sorted(slots[key]) for key in slots}}
        trouble = ""
        try:
            if slots:
                write_atomic(self._directory / FILE, (json.dumps(document) + "\n").encode())
            else:
                (self._directory / FILE).unlink(missing_ok=True)
        except (HostError, OSError) as failed:
            trouble = str(failed)
        else:
            self.slots = slots
        if trouble and trouble != self._told:
            log.warning("record of virtual nodes not written", reason=trouble)
        self._told = trouble

    def may_hold(self, device: str, holdings: Holdings, claimed: Collection[Key]) -> bool:
        """Whether a pod or a claim may have a slot of the raw device, as far as it is recorded or its ids tell."""
        recorded = (self.slots or {}).get(device)
        if recorded is not None:
            return any(key in claimed or holdings.may_hold(key) for key in recorded)
        known = {*(holdings.holders or ()), *holdings.in_flight, *holdings.allocated, *claimed}
        return any(_may_be_of(device, key[1]) and (key in claimed or holdings.may_hold(key)) for key in known)


def names(directory: Path) -> dict[str, Path]:
    """The stand-ins in a directory, by raw device id."""
    found = (path for path in listed(directory) if path.name.startswith(virtual_node.PREFIX))
    return {path.name.removeprefix(virtual_node.PREFIX): path for path in found}


def _may_be_of(device: str, slot_id: str) -> bool:
    """Whether a slot id can be that of the raw device, one of its partitions or a replica of these."""
    whole = base_id(slot_id)
    return whole == device or whole.startswith((f"{device}-", _NVIDIA_PARTITION))


def _read(path: Path) -> tuple[str, Slots]:
    """Owner and slots; nothing where there is no record, or none that can be read."""
    try:
        document = json.loads(HostRoot().read_text(str(path), limit=_LIMIT) or "{}")
    except (HostError, ValueError, RecursionError):
        return "", {}
    match document:
        case {"version": int(), "owner": str(owner), "slots": dict(slots)}:
            return owner, {device: keys for device, each in slots.items() if (keys := _keys(each))}
    return "", {}


def _keys(found: object) -> frozenset[Key]:
    keys = set()
    for pair in found if isinstance(found, list) else ():
        match pair:
            case [str(resource), str(slot_id)]:
                keys.add((resource, slot_id))
    return frozenset(keys)
