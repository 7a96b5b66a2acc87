"""The lost devices: those that the configuration has and that are broken or gone.

    losses(devices before, devices now, losses before, entries) -> losses now

Conditions follow from them, and Events from their changes. A device that an edit or another partition layout removed is
not lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..model.device import GONE, DeviceKey, Health
from ..model.entry import Entry
from ..planning.resources import Inventory, Resource


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a device cannot be used. `spec` is its entry; `gone`: it does not exist any more."""

    spec: Entry
    health: Health
    gone: bool = False


Losses = Mapping[DeviceKey, Loss]
"""By resource and device (without a replica's number)."""

NONE: Losses = {}


def losses(before: Inventory, now: Inventory, known: Losses, entries: Iterable[Entry]) -> Losses:
    """The devices that are lost now. `known` are those that were lost before."""
    old, new = before.each_once, now.each_once
    specs = {entry.name: entry.without_node for entry in entries}  # as resources have them
    lost: dict[DeviceKey, Loss] = {}
    for name in sorted({*old, *new, *(name for name, _ in known)}):
        lost |= _of_resource(name, old.get(name), new.get(name), known, specs)
    return lost


def _promised(spec: Entry | None, specs: Mapping[str, Entry]) -> bool:
    """Whether the configuration still has this entry unchanged."""
    return spec is not None and specs.get(spec.name) == spec


def _of_resource(
    name: str, before: Resource | None, now: Resource | None, known: Losses, specs: Mapping[str, Entry]
) -> dict[DeviceKey, Loss]:
    present: Mapping[str, object] = now.by_device if now else {}
    lost = {
        key: loss
        for key, loss in known.items()
        if key[0] == name and loss.gone and key[1] not in present and _promised(loss.spec, specs)
    }
    for device in before.by_device.values() if before else ():
        spec = before.entries.get(device.raw.entry) if before else None
        if device.id not in present and spec is not None and _promised(spec, specs):
            why = known.get((name, device.id))
            lost[name, device.id] = Loss(spec, why.health if why and why.gone else GONE, gone=True)
    for slot in now.slots if now else ():
        if not slot.health.healthy and slot.device.raw.entry in specs:
            lost.setdefault((name, slot.device.id), Loss(specs[slot.device.raw.entry], slot.health))
    return lost
