"""The Node's conditions: for each type that entries name, the health of their devices.

A fault rule can set a condition, also of a type that no entry names, as long as it is in force.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..faults.effects import ConditionFault
from ..model.device import grouped
from ..model.entry import Condition, Entry, TrueWhen
from ..model.names import MAX_MESSAGE
from ..planning.resources import Inventory
from .events import named, shortened
from .losses import Losses

_FINE = "AllDevicesHealthy"
_LOST = "DeviceUnhealthy"
_NO_RULES: Mapping[str, ConditionFault] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """One condition, without its times. `reason` is a CamelCase word, `message` a sentence."""

    type: str
    status: bool
    reason: str
    message: str

    @property
    def word(self) -> str:
        return "True" if self.status else "False"


def condition_document(condition: NodeCondition) -> dict[str, str]:
    """The condition in the Node's status, without its times."""
    return {
        "type": condition.type,
        "status": condition.word,
        "reason": condition.reason,
        "message": condition.message,
    }


def conditions(
    entries: Iterable[Entry], lost: Losses, rules: Mapping[str, ConditionFault] = _NO_RULES
) -> tuple[NodeCondition, ...]:
    """One condition per type, in the order of the file, about the devices of all entries that name the type.

    `rules` are the conditions that fault rules set now, by type.
    """
    of_type = grouped((each.type, (entry, each)) for entry in entries for each in entry.conditions)
    found = {name: _condition(name, members, lost) for name, members in of_type.items()}
    found |= {name: NodeCondition(name, each.status, each.reason, each.message or "") for name, each in rules.items()}
    return tuple(found.values())


def _condition(name: str, members: list[tuple[Entry, Condition]], lost: Losses) -> NodeCondition:
    true_when = members[0][1].true_when
    for entry, spec in members:
        mine = {key[1]: loss for key, loss in lost.items() if loss.spec.name == entry.name}
        if mine:
            first = next(iter(mine.values()))
            message = spec.message or f"{entry.name}: {named(mine)}: {first.health.reason}"
            return NodeCondition(name, true_when is TrueWhen.UNHEALTHY, spec.reason or _LOST, shortened(message))
    which = ", ".join(entry.name for entry, _ in members)
    message = shortened(f"all devices of {which} are healthy", MAX_MESSAGE)
    return NodeCondition(name, true_when is TrueWhen.HEALTHY, _FINE, message)


@dataclass(frozen=True, slots=True)
class SlotCounts:
    """The number of advertised devices of a resource, and of the healthy ones."""

    capacity: int
    allocatable: int


def capacity(inventory: Inventory) -> Mapping[str, SlotCounts]:
    """The amounts that a kubelet would compute from the lists, by resource."""
    return {name: SlotCounts(len(each.slots), each.healthy) for name, each in inventory.resources.items()}
