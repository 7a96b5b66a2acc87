"""What the rules that run do to devices and to the Node's conditions at one moment."""

from collections.abc import Collection, Iterator

from ..model.device import Health, Key
from ..planning.resources import Inventory
from .effects import (
    Call,
    CountErrors,
    Flap,
    Overheat,
    Remove,
    Rpc,
    SensorFault,
    SetCondition,
    SetHealth,
    SetTaint,
    Xid,
    XidError,
)
from .rule_run import RuleRun
from .targets import Afflictions


def afflictions_of(runs: Collection[RuleRun], inventory: Inventory, now: float) -> Afflictions:
    """That of all rules, of which later ones win."""
    verdicts: dict[Key, Health] = {}
    removed: set[Key] = set()
    dropped: set[Key] = set()
    xids: dict[Key, tuple[XidError, ...]] = {}
    conditions: dict[str, SetCondition] = {}
    taints: dict[Key, tuple[SetTaint, ...]] = {}
    sensors: dict[Key, tuple[SensorFault, ...]] = {}
    for run in (each for each in runs if each.live and each.active):
        rule, keys = run.rule, run.hit(inventory, now)
        match rule.effect:
            case SetHealth(healthy, reason):
                verdicts |= dict.fromkeys(keys, Health(healthy, reason, rule.name))
            case Xid(number, health):
                xids |= {key: (*xids.get(key, ()), XidError(number, rule.name)) for key in keys}
                if health is not None:
                    verdicts |= dict.fromkeys(keys, Health(health.healthy, health.reason, rule.name))
            case SetTaint() as taint:
                taints |= {key: (*taints.get(key, ()), taint) for key in keys}
            case Overheat() | CountErrors() as fault:
                sensors |= {key: (*sensors.get(key, ()), fault) for key in keys}
            case SetCondition() as condition:
                conditions[condition.type] = condition
            case Flap(reason=reason):
                verdicts |= dict.fromkeys(keys, Health(False, reason, rule.name))
            case Remove(drop_held):
                (dropped if drop_held else removed).update(keys)
    return Afflictions(
        verdicts,
        frozenset(removed),
        frozenset(dropped),
        frozenset(_pre_start(runs, inventory)),
        xids,
        conditions,
        taints,
        sensors,
    )


def _pre_start(runs: Collection[RuleRun], inventory: Inventory) -> Iterator[str]:
    for run in runs:
        effect = run.rule.effect
        if run.live and isinstance(effect, Call) and Rpc.PRE_START in effect.rpcs:
            yield from filter(run.rule.concerns, inventory.resources)
