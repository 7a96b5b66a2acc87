"""The virtual devices of a node, as far as the configuration alone defines them."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

from ..model.device import IdStyle, RawDevice
from ..model.syntax import names
from ..spec import EntrySpec, VirtualSource

_NAMESPACE = uuid.UUID("0d3a1c52-6f0e-5b1c-9a40-3f6de1c7b2a8")  # of ids made here; must never change


def devices(
    entry: EntrySpec, source: VirtualSource, node: str, known: Sequence[RawDevice] = (), ids: Sequence[str] = ()
) -> list[RawDevice]:
    """The devices of an entry on the node of that name, in the order of their index.

    `known` are the first of them, see `known_of`, and `ids` those of the first, see `ids_of`.
    """
    new = range(len(known), source.count)
    kept = ids[new.start : new.stop]
    fresh = [_id(entry, source, index, node) for index in new[len(kept) :]]
    if _are_short(entry, source):
        fresh = _apart(entry, fresh, source.count, {*(each.id for each in known[: source.count]), *kept})
    made = [
        RawDevice(
            id=own,
            entry=entry.name,
            index=index,
            numa=source.numa[index : index + 1] if len(source.numa) > 1 else source.numa,
            memory=source.memory,
            attributes=source.attributes,
            numa_hidden=entry.exclude_topology,
        )
        for index, own in zip(new, [*kept, *fresh], strict=True)
    ]
    return [*known[: source.count], *made]


def ids_of(entry: EntrySpec, before: EntrySpec, devices: Sequence[RawDevice]) -> Sequence[str]:
    """The ids of the devices that were made for the entry as it was, where it would give the same today."""
    now, then = entry.source, before.source
    if not isinstance(now, VirtualSource) or not isinstance(then, VirtualSource) or len(devices) != then.count:
        return ()
    alike = (entry.name, now.ids, now.id_style) == (before.name, then.ids, then.id_style)
    return [each.id for each in devices] if alike else ()


def known_of(entry: EntrySpec, before: EntrySpec, devices: Sequence[RawDevice]) -> Sequence[RawDevice]:
    """Those of the devices that were made for the entry as it was, from the first on, that are the same today."""
    now, then = entry.source, before.source
    if not isinstance(now, VirtualSource) or not isinstance(then, VirtualSource) or len(devices) != then.count:
        return ()
    bare = ((each.name, each.exclude_topology, each.smi) for each in (entry, before))
    alike = (replace(each, count=0, ids=(), numa=(), links={}) for each in (now, then))
    if len({*bare}) > 1 or next(alike) != next(alike) or bool(now.ids) != bool(then.ids):
        return ()
    least = min(now.count, then.count)
    same = _common(now.ids, then.ids, least) if now.ids else least
    if now.numa != then.numa:
        same = min(same, _common(now.numa, then.numa, least)) if len(now.numa) > 1 and len(then.numa) > 1 else 0
    return devices[:same]


def _common(some: Sequence[object], others: Sequence[object], least: int) -> int:
    """How many at the beginning are equal."""
    if some[:least] == others[:least]:
        return least
    return next(number for number, (one, other) in enumerate(zip(some, others, strict=False)) if one != other)


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


def _apart(entry: EntrySpec, ids: Sequence[str], count: int, taken: set[str]) -> list[str]:
    """The ids of the last of so many devices, where the fingerprint of one that is taken already is longer."""
    apart: list[str] = []
    for index, each in enumerate(ids, count - len(ids)):
        own = names.device_id(entry.name, str(index), fingerprint=16) if each in taken else each
        taken.add(own)
        apart.append(own)
    return apart
