"""What the hooks of faults answer: what happens to one call, one registration, one request, and by which rule."""

from dataclasses import dataclass

from .fault_effects import Call


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """What happens to one call: it waits `delay` seconds, then the rest of the effect."""

    rule: str
    effect: Call
    delay: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterFault:
    """What happens to a registration: it must wait (`hold`), or goes out with another version, or twice."""

    rule: str
    hold: bool = False
    version: str = ""
    twice: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiFault:
    """What the API server answers to a request: an HTTP status, 0 for none at all."""

    rule: str
    status: int = 0
    after: int | None = None


@dataclass(frozen=True, slots=True)
class XidError:
    """An Xid that a device has now, and the rule that says so."""

    number: int
    rule: str
