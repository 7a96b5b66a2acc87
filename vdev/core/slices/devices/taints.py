"""What a device that fails says to the scheduler, by the policy of its entry; NVIDIA's devices in NVIDIA's words."""

import re
from collections.abc import Sequence

from ...model.device import Health
from ...model.dra import DraSpec, TaintPolicy
from ...model.faults.fault_effects import SetTaint
from ...model.faults.xid import APPLICATION_ERRORS
from .published import Taint

_XID = re.compile(r"\bxid\W{0,3}([0-9]{1,4})\b", re.IGNORECASE)
_INFORMS = "None"


def of_health(dra: DraSpec, health: Health, xids: Sequence[int], *, nvidia: bool) -> tuple[Taint, ...]:
    """The taints of a device that is there, with this health and these errors of NVIDIA's driver.

    An error that is an application's own leaves the device well, and only informs; of several errors the worst is told.
    """
    if dra.unhealthy is TaintPolicy.NONE:
        return ()
    if not xids and nvidia and not health.healthy and (told := _XID.search(health.reason)):
        xids = (int(told[1]),)
    if xids:
        worst = next((each for each in xids if each not in APPLICATION_ERRORS), xids[0])
        effect = _INFORMS if worst in APPLICATION_ERRORS and health.healthy else dra.unhealthy.value
        return (Taint(f"{dra.driver}/xid", effect, str(worst)),)
    return () if health.healthy else (Taint(f"{dra.driver}/unhealthy", dra.unhealthy.value),)


def with_rules(said: Sequence[Taint], rules: Sequence[SetTaint]) -> tuple[Taint, ...]:
    """These taints and those of fault rules; of the same key and effect a later one stands over the others."""
    every = (*said, *(Taint(each.key, each.effect, each.value) for each in rules))
    return tuple({(each.key, each.effect): each for each in every}.values())


def of_loss(dra: DraSpec, *, nvidia: bool) -> tuple[Taint, ...]:
    """The taints of a device that is away while a claim has it."""
    if dra.lost is TaintPolicy.NONE:
        return ()
    return (Taint(f"{dra.driver}/{'gpu-lost' if nvidia else 'lost'}", dra.lost.value),)
