"""The kubelet's own record of who holds what: `kubelet_internal_checkpoint`, beside its registration socket.

    {"Data": {"PodDeviceEntries": [{"PodUID", "ResourceName", "DeviceIDs": {"<NUMA>": [ids]}, …}], …}, "Checksum": …}

It is only read, never written. It names every held device at any time, also while the PodResources API does not answer,
and devices of pods that have ended until the kubelet writes it the next time. Before Kubernetes 1.20 `DeviceIDs` was a
plain list. Its form: pkg/kubelet/cm/devicemanager/checkpoint of Kubernetes 1.36.2.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.model.device import Key
from ..core.retention.holders import KubeletCheckpoint
from ..errors import HostError
from ..hostfs import read_plain

FILE_NAME = "kubelet_internal_checkpoint"
MAX_BYTES = 64 * 1024 * 1024  # 110 pods with the largest answers that a plugin may give have a tenth of it


class CheckpointReader:
    """Reads the file in one directory again whenever it was written.

    `trouble` says why it cannot be used as it is now; meanwhile what it said before counts, for that frees nothing.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.trouble = ""
        self._last: KubeletCheckpoint | None = None
        self._stamp: tuple[int, ...] | None = None  # of what was read last; None: look again

    def read(self) -> KubeletCheckpoint | None:
        """What the file says now, or said when it was understood last; None where it is not there. Blocks briefly."""
        stamp = _stamp(self.path)
        if self._stamp != stamp:
            self._stamp = stamp
            self._read(stamp)
        return self._last

    def _read(self, stamp: tuple[int, ...]) -> None:
        self.trouble = ""
        try:
            text = read_plain(self.path, limit=MAX_BYTES)
            entries = None if text is None else json.loads(text)["Data"].get("PodDeviceEntries")
            self._last = None if text is None else KubeletCheckpoint(_pods(entries), stamp)
        except HostError as failed:
            self.trouble, self._stamp = str(failed), None  # it may be readable the next time
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.trouble = f"the kubelet's checkpoint {self.path} has an unknown format"


def _stamp(path: Path) -> tuple[int, ...]:
    """Identifies one version of the file; the kubelet renames a new file over the old one."""
    try:
        status = os.stat(path)  # twice as fast, and often called
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _pods(entries: Any) -> Mapping[str, frozenset[Key]]:
    """What each pod (by its UID) has, in all its containers."""
    pods: dict[str, set[Key]] = {}
    for entry in entries or ():
        uid, resource, ids = str(entry["PodUID"]), entry["ResourceName"], entry["DeviceIDs"] or ()
        lists = ids.values() if isinstance(ids, dict) else [ids]
        devices = [device for each in lists for device in each or ()]
        if not all(isinstance(text, str) for text in (resource, *devices)):
            raise TypeError
        pods.setdefault(uid, set()).update((resource, device) for device in devices)
    return {uid: frozenset(keys) for uid, keys in pods.items()}
