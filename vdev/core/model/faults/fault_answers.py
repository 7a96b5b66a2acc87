"""What rules do at one moment: to a call, and to a device that reports an Xid."""

from dataclasses import dataclass

from .fault_effects import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """What happens to one call: it waits `delay` seconds, then the rest of the effect."""

    rule: str
    effect: Call
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class XidError:
    """An Xid that a device has now, and the rule that says so."""

    number: int
    rule: str
