"""The combined effect of all active fault rules on devices and on the Node's conditions; later rules win."""

from collections.abc import Collection, Iterator

from ..model.device import Health, Key
from ..planning.resources import Inventory
from .effects import ConditionFault, Rpc, SensorFault, TaintFault, XidError
from .rule_run import RuleRun
from .targets import Afflictions


def afflictions_of(runs: Collection[RuleRun], inventory: Inventory, now: float) -> Afflictions:
    """That of all rules, of which later ones win."""
    verdicts: dict[Key, Health] = {}
    removed: set[Key] = set()
    dropped: set[Key] = set()
    xids: dict[Key, tuple[XidError, ...]] = {}
    conditions: dict[str, ConditionFault] = {}
    taints: dict[Key, tuple[TaintFault, ...]] = {}
    sensors: dict[Key, tuple[SensorFault, ...]] = {}
    for run in (each for each in runs if each.live and each.active):
        rule, keys = run.rule, run.hit(inventory, now)
        if rule.verdict is not None:
            verdicts |= dict.fromkeys(keys, rule.verdict)
        if rule.xid is not None:
            xids |= {key: (*xids.get(key, ()), XidError(rule.xid, rule.name)) for key in keys}
        if rule.taint is not None:
            taints |= {key: (*taints.get(key, ()), rule.taint) for key in keys}
        for fault in (rule.overheat, rule.hardware_errors):
            if fault is not None:
                sensors |= {key: (*sensors.get(key, ()), fault) for key in keys}
        if rule.condition is not None:
            conditions[rule.condition.type] = rule.condition.said_by(rule.name)
        if rule.drop:
            dropped |= keys
        elif rule.remove:
            removed |= keys
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
        if run.live and Rpc.PRE_START in run.rule.rpc:
            yield from filter(run.rule.concerns, inventory.resources)
