"""Finds the raw devices of a host. `discover` calls the module of an entry's source.

Everything here blocks (call it in a thread) and works on a host that changes at the same time. A device that is gone is
not in the result; `planning` keeps it in the lists while a pod may hold it.
"""

from dataclasses import replace

from ..errors import HostError
from ..hostfs import HostRoot
from ..model import telemetry
from ..model.entry import Entry
from ..model.problem import error
from ..model.virtual import NODE_DIRECTORY
from . import glob_source, sysfs_source, usb_source, virtual_source
from .found import Found, Numbering

__all__ = ["Found", "Numbering", "discover"]


def discover(
    entry: Entry,
    host: HostRoot,
    *,
    node: str,
    numbering: Numbering | None = None,
    device_dir: str = NODE_DIRECTORY,
    smi_dir: str = telemetry.DIRECTORY,
) -> Found:
    """The devices that the entry's source finds on the host now.

    `node` is the node's name, which is part of the ids of presets' devices. The caller keeps the `numbering` of each
    entry for as long as the process lives, so that devices keep their index when others appear or disappear.
    `device_dir` and `smi_dir` are the host's directories for the nodes of virtual devices and for the vendors' tools.
    """
    numbering = numbering or Numbering()
    try:
        if entry.virtual is not None:
            found = virtual_source.discover(
                entry, entry.virtual, host, node=node, device_dir=device_dir, smi_dir=smi_dir
            )
        elif entry.sysfs is not None:
            found = sysfs_source.discover(entry, entry.sysfs, host, numbering=numbering)
        elif entry.usb:
            found = usb_source.discover(entry, host, numbering=numbering)
        else:
            assert entry.glob, f"the entry {entry.name} has no source"
            found = glob_source.discover(entry, host, numbering=numbering)
    except HostError as broken:
        return Found(problems=(error(entry.where or entry.name, str(broken)),))
    if entry.exclude_topology:
        found = replace(found, devices=tuple(replace(device, numa_hidden=True) for device in found.devices))
    if entry.shared:
        found = replace(found, devices=tuple(replace(device, owns=(), uses=()) for device in found.devices))
    return found
