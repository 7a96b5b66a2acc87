"""The lost devices of a node, and the Node's conditions, which follow from them.

    losses(devices before, devices now, losses before, entries) -> losses now
    conditions(entries, losses now, fault rules)                -> conditions

A lost device is one that the configuration has and that is broken or gone. A device that an edit or another partition
layout removed is not lost. Events follow from changes of the losses.

There is a condition for each type that entries name. A fault rule can set a condition, also of a type that no entry
names, as long as it is in force.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from ..faults.effects import ConditionFault
from ..model.device import GONE, DeviceKey, Health, grouped
from ..model.entry import Condition, Entry, TrueWhen
from ..model.names import MAX_MESSAGE
from ..planning.resources import Inventory

_NAMED = 8  # ids before the rest is counted


def named(ids: Collection[str]) -> str:
    """List the ids; of many, the first ones and how many more there are."""
    shown = ", ".join(islice(ids, _NAMED))
    return shown + (f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else "")


def shortened(text: str) -> str:
    """The text, cut to the length of a message that the API server takes."""
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 1] + "…"


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a device cannot be used. `spec` is its entry; `gone`: it does not exist any more."""

    spec: Entry
    health: Health
    gone: bool = False


Losses = Mapping[DeviceKey, Loss]
"""By resource and device (without a replica's number)."""


def losses(before: Inventory, now: Inventory, known: Losses, entries: Iterable[Entry]) -> Losses:
    """The devices that are lost now. `known` are those that were lost before."""
    old, new = before.each_once, now.each_once
    specs = {entry.name: entry.without_node for entry in entries}  # as resources have them
    gone = {key: loss for key, loss in known.items() if loss.gone}
    for name, resource in old.items():
        present = new[name].by_device if name in new else {}
        for device in resource.by_device.values():
            spec = resource.entries.get(device.raw.entry)
            if device.id not in present and spec is not None:
                gone.setdefault((name, device.id), Loss(spec, GONE, gone=True))

    # Such a device is lost only while the configuration has its entry unchanged.
    lost = {
        (name, device): loss
        for (name, device), loss in gone.items()
        if specs.get(loss.spec.name) == loss.spec and not (name in new and device in new[name].by_device)
    }
    for name, resource in new.items():
        for slot in resource.slots:
            if not slot.health.healthy and slot.device.raw.entry in specs:
                lost.setdefault((name, slot.device.id), Loss(specs[slot.device.raw.entry], slot.health))
    return dict(sorted(lost.items(), key=lambda item: item[0][0]))  # by resource


_FINE = "AllDevicesHealthy"
_LOST = "DeviceUnhealthy"


NodeCondition = Mapping[str, str]
"""A condition in the Node's status, without its times."""


def _document(name: str, *, status: bool, reason: str, message: str) -> NodeCondition:
    return {"type": name, "status": str(status), "reason": reason, "message": message}


def conditions(
    entries: Iterable[Entry], lost: Losses, rules: Mapping[str, ConditionFault]
) -> tuple[NodeCondition, ...]:
    """One condition per type, in the order of the file, about the devices of all entries that name the type.

    `rules` are the conditions that fault rules set now, by type.
    """
    of_type = grouped((each.type, (entry, each)) for entry in entries for each in entry.conditions)
    found = {name: _condition(name, members, lost) for name, members in of_type.items()}
    for name, each in rules.items():
        found[name] = _document(name, status=each.status, reason=each.reason, message=each.message or "")
    return tuple(found.values())


def _condition(name: str, members: list[tuple[Entry, Condition]], lost: Losses) -> NodeCondition:
    true_when = members[0][1].true_when
    for entry, spec in members:
        mine = {key[1]: loss for key, loss in lost.items() if loss.spec.name == entry.name}
        if mine:
            first = next(iter(mine.values()))
            message = spec.message or f"{entry.name}: {named(mine)}: {first.health.reason}"
            is_true = true_when is TrueWhen.UNHEALTHY
            return _document(name, status=is_true, reason=spec.reason or _LOST, message=shortened(message))
    which = ", ".join(entry.name for entry, _ in members)
    message = f"all devices of {which} are healthy"
    return _document(name, status=true_when is TrueWhen.HEALTHY, reason=_FINE, message=shortened(message))


def capacity(inventory: Inventory) -> Mapping[str, Mapping[str, int]]:
    """The capacity and the allocatable amount that a kubelet would compute from the lists, by resource."""
    return {
        name: {"capacity": len(each.slots), "allocatable": each.healthy} for name, each in inventory.resources.items()
    }
