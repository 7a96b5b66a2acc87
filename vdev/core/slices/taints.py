"""What a device that fails says to the scheduler, by the policy of its entry; NVIDIA's devices in NVIDIA's words."""

import re

from ..model.device import Health
from ..model.dra import DraSpec, TaintPolicy
from .published import Taint

_XID = re.compile(r"\bxid\W{0,3}([0-9]{1,4})\b", re.IGNORECASE)
_OF_APPLICATIONS = frozenset({"13", "31", "43", "45", "68", "109"})  # XIDs after which NVIDIA's driver goes on
_INFORMS = "None"


def of_health(dra: DraSpec, health: Health, *, nvidia: bool) -> tuple[Taint, ...]:
    """The taints of a device that is there, with this health."""
    if health.healthy or dra.unhealthy is TaintPolicy.NONE:
        return ()
    xid = _XID.search(health.reason) if nvidia else None
    if xid is None:
        return (Taint(f"{dra.driver}/unhealthy", dra.unhealthy.value),)
    effect = _INFORMS if xid[1] in _OF_APPLICATIONS else dra.unhealthy.value
    return (Taint(f"{dra.driver}/xid", effect, xid[1]),)


def of_loss(dra: DraSpec, *, nvidia: bool) -> tuple[Taint, ...]:
    """The taints of a device that is away while a claim has it."""
    if dra.lost is TaintPolicy.NONE:
        return ()
    return (Taint(f"{dra.driver}/{'gpu-lost' if nvidia else 'lost'}", dra.lost.value),)
