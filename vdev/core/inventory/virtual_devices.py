"""The virtual devices of a node, as far as the configuration alone defines them."""

import uuid
from collections.abc import Sequence

from ..model.device import IdStyle, RawDevice
from ..model.syntax import names
from ..spec import EntrySpec, VirtualSource

_NAMESPACE = uuid.UUID("0d3a1c52-6f0e-5b1c-9a40-3f6de1c7b2a8")  # of ids made here; must never change


def devices(entry: EntrySpec, source: VirtualSource, node: str) -> list[RawDevice]:
    """The devices of an entry on the node of that name, in the order of their index."""
    ids = [_id(entry, source, index, node) for index in range(source.count)]
    if _are_short(entry, source):
        ids = _apart(entry, ids)
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
        for index, each in enumerate(ids)
    ]


def _id(entry: EntrySpec, source: VirtualSource, index: int, node: str) -> str:
    """The one that is given; else `<name>-<index>`, or as NVIDIA's driver does, a UUID that no other node has."""
    if source.ids:
        return source.ids[index]
    if source.id_style is IdStyle.NVIDIA:
        return f"GPU-{uuid.uuid5(_NAMESPACE, f'{node}/{entry.name}/{index}')}"
    return names.device_id(entry.name, str(index))


def _are_short(entry: EntrySpec, source: VirtualSource) -> bool:
    """Whether ids may be shortened, so that fingerprints alone tell them apart."""
    made = not source.ids and source.id_style is IdStyle.NAME
    return made and len(entry.name) + len(f"-{source.count - 1}") > names.MAX_ID - names.REPLICA_ROOM


def _apart(entry: EntrySpec, ids: Sequence[str]) -> list[str]:
    """The ids; one that an earlier device has already gets a longer fingerprint."""
    apart: dict[str, None] = {}
    for index, each in enumerate(ids):
        apart[names.device_id(entry.name, str(index), fingerprint=16) if each in apart else each] = None
    return list(apart)
