"""What the hooks of faults answer: what happens to one call, one registration, one request, and by which rule."""

from dataclasses import dataclass

from .fault_effects import Fail, FaultyAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFault:
    """What happens to one call: it waits `delay` seconds, then the rest."""

    rule: str
    delay: float = 0.0
    hang: bool = False
    fail: Fail | None = None
    faulty_answer: FaultyAnswer | None = None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimFault:
    """What happens to one such call: it waits `delay` seconds, then hangs, fails as a whole, or has a wrong answer.

    `refuse` is the error of each claim in it. With `wrong_device` another device than the allocated one is answered;
    with `skip` the first claim has no answer.
    """

    rule: str
    delay: float = 0.0
    hang: bool = False
    fail: Fail | None = None
    refuse: str = ""
    wrong_device: bool = False
    skip: bool = False
