"""The virtual devices of a node, which follow from the configuration."""

import uuid

from ..model import names
from ..model.device import IdStyle, RawDevice
from ..model.entry import Entry
from ..model.virtual import VirtualDevices

_NAMESPACE = uuid.UUID("0d3a1c52-6f0e-5b1c-9a40-3f6de1c7b2a8")  # of ids made here; must never change


def devices(entry: Entry, source: VirtualDevices, node: str) -> list[RawDevice]:
    """The devices of an entry on the node of that name, in the order of their index."""
    return [
        RawDevice(
            id=each,
            entry=entry.name,
            index=index,
            memory=source.memory,
            numa=source.numa[index : index + 1] if len(source.numa) > 1 else source.numa,
            attributes=source.attributes,
            numa_hidden=entry.exclude_topology,
        )
        for index, each in enumerate(source.ids or _ids(entry, source, node))
    ]


def _ids(entry: Entry, source: VirtualDevices, node: str) -> list[str]:
    """`<name>-<index>`, or as NVIDIA's driver does, UUIDs that no other node has."""
    indices = range(source.count)
    if source.model.id_style is IdStyle.NVIDIA:
        return [f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{entry.name}/{index}')}" for index in indices]
    return [names.device_id(entry.name, str(index), fingerprint=16) for index in indices]  # may be ten thousand
