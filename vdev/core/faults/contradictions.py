"""Whether two rules contradict each other: they want different things of the same devices at the same time."""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from fnmatch import fnmatchcase
from itertools import islice

from ..inventory.resources import Inventory
from ..model.faults.fault_effects import (
    Cdi,
    Effect,
    FaultKind,
    Flap,
    HealthStream,
    Overheat,
    Register,
    Remove,
    SetCondition,
    SetHealth,
    SetTaint,
    Slices,
    Socket,
    Stream,
    Xid,
)
from ..model.faults.fault_rules import ALWAYS, Chance, FaultRuleSpec
from .meaning import ImaginedNodes, meant
from .schedule import Dice, Firing, Span, spans

_ONE_AT_A_TIME = (Register, Stream, Socket, Cdi, SetCondition, SetTaint, Overheat, Slices, HealthStream)
_COMPARED = 50  # spans of each rule
_WHAT = {
    FaultKind.DEVICE: "devices",
    FaultKind.CONDITION: "condition",
    FaultKind.SLICES: "driver",
    FaultKind.HEALTH_STREAM: "driver",
}


def contradiction(one: FaultRuleSpec, other: FaultRuleSpec, nodes: ImaginedNodes, *, later: float = 0.0) -> str:
    """Why not both rules can be followed, or "" if they can. `other` was read so many seconds after `one`.

    Rules that depend on chance, on a trigger, or on devices that only a node knows count as free of contradiction.
    """
    if by_chance(one) or by_chance(other) or not _opposed(_of_health(one.effect), _of_health(other.effect)):
        return ""
    by_label = one.nodes.labels != other.nodes.labels  # nodes have any labels
    if by_label or (one.nodes != other.nodes and min(one.nodes.share, other.nodes.share) < ALWAYS):
        return ""
    if not _meet(one, other, nodes) or not _overlap(one, other, later):
        return ""
    return f"contradict each other: they concern the same {_WHAT.get(one.kind, 'resource')} at the same time"


def by_chance(rule: FaultRuleSpec) -> bool:
    """Whether nobody can say beforehand when the rule fires."""
    return rule.chance != Chance() or rule.triggered


def _of_health(effect: Effect) -> Effect | None:
    """What an Xid says of the device's health; every other effect as it is."""
    return effect.health if isinstance(effect, Xid) else effect


def _opposed(one: Effect | None, other: Effect | None) -> bool:
    match one, other:
        case SetHealth(), SetHealth():
            return one.healthy != other.healthy
        case (SetHealth(), Remove() | Flap()) | (Remove() | Flap(), SetHealth()):
            return True
        case Flap(), Flap():
            return (one.up, one.down) != (other.up, other.down)
        case Register(), Register() if not (one.never or other.never):
            return one != other and bool(one.delay) == bool(other.delay)  # what comes late can be wrong, too
    return isinstance(one, _ONE_AT_A_TIME) and type(one) is type(other) and one != other


def _meet(one: FaultRuleSpec, other: FaultRuleSpec, nodes: ImaginedNodes) -> bool:
    """Whether they mean a device, a resource, a driver or a condition in common."""
    match one.effect, other.effect:
        case SetCondition(type=first), SetCondition(type=second) if first != second:
            return False
        case SetTaint() as first, SetTaint() as second if (first.key, first.effect) != (second.key, second.effect):
            return False  # a device can have both
    if (one.selection, one.resource, one.nodes) == (other.selection, other.resource, other.nodes):
        return True
    if any(each is not None for rule in (one, other) for each in (rule.selection.pick, rule.selection.share)):
        return False  # each draws its own lots
    return any(
        not _reach(one, node, inventory).isdisjoint(_reach(other, node, inventory))
        for node, inventory in nodes.inventories.items()
    )


def _reach(rule: FaultRuleSpec, node: str, inventory: Inventory) -> AbstractSet[object]:
    if rule.nodes.globs and not any(fnmatchcase(node, each) for each in rule.nodes.globs):
        return frozenset()
    if rule.kind is FaultKind.DEVICE:
        return meant(rule, inventory, node)
    names = inventory.resources if rule.of_resources else inventory.claimable
    return {name for name in names if rule.concerns(name)}


def _overlap(one: FaultRuleSpec, other: FaultRuleSpec, later: float) -> bool:
    """Whether their first spans, jitter aside, share a moment. A flap counts from its first fall on."""

    def first(rule: FaultRuleSpec, zero: float) -> Iterator[Span]:
        return (span for span in islice(spans(rule, Dice(0, ""), Firing(zero), later), _COMPARED) if span.real)

    second = list(first(other, later))
    return any((a.start < b.end and b.start < a.end) or a.start == b.start for a in first(one, 0.0) for b in second)
