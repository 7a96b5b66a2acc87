"""How a load runs over time, and the load that a pod asks for.

The load at an instant is a function of the pattern, the seed and the instant, so the same configuration shows the same
on every run.
"""

import hashlib
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from ..model.telemetry import NOTHING, LoadPattern, Range

ANNOTATIONS = ("vdev.dev/load", "run.ai/simulated-gpu-utilization")
"""By which a pod says how it loads its devices; the first that is there counts."""

_WISH = re.compile(r"\s*(\d{1,3}(?:\.\d{1,6})?)\s*%?\s*(?:-\s*(\d{1,3}(?:\.\d{1,6})?)\s*%?\s*)?")
_HUNDRED = 100.0


class WishError(ValueError):
    """An annotation that says no load."""


def wish(text: str) -> Range:
    """Return the load of an annotation: a number, or a range such as 60-90, in percent. Raises WishError."""
    found = _WISH.fullmatch(text)
    if found is None:
        raise WishError("expected percent such as 75, or a range such as 60-90")
    low = float(found[1])
    high = float(found[2]) if found[2] else low
    if max(low, high) > _HUNDRED:
        raise WishError(f"{max(low, high):g} is more than 100 percent")
    if low > high:
        raise WishError(f"the range begins at {low:g} and ends at {high:g}")
    return Range(low, high)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load, in percent of what is there.

    `period` is in seconds. A ramp begins at the instant `since`. The `seed` makes loads of the same pattern differ
    from device to device.
    """

    pattern: LoadPattern = LoadPattern.IDLE
    period: float = 10.0
    gpu: Range = NOTHING
    memory: Range = NOTHING
    encoder: Range = NOTHING
    decoder: Range = NOTHING
    since: float = 0.0
    seed: str = ""


class Levels(NamedTuple):
    """What of a device is loaded at an instant, in percent."""

    gpu: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


IDLE = Levels()


def levels(load: Load, at: float) -> Levels:
    """Return the load at an instant, each level between the ends of its range."""
    if load.pattern is LoadPattern.IDLE:
        return IDLE
    place = _place(load, at)
    return Levels(*(of.low + (of.high - of.low) * place for of in (load.gpu, load.memory, load.encoder, load.decoder)))


def drawn(seed: str, name: object) -> float:
    """Return a number from 0 up to 1 that is always the same for the same seed and name."""
    digest = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def _place(load: Load, at: float) -> float:
    """Where between its ends a load is, 0 to 1."""
    match load.pattern:
        case LoadPattern.STEADY:
            return drawn(load.seed, "steady")
        case LoadPattern.BUSY:
            return drawn(load.seed, math.floor(at / load.period))
        case LoadPattern.BURST:
            return math.floor(2 * _turn(load, at))  # 0 in the first half of a turn, then 1
        case LoadPattern.WAVE:
            return 0.5 - 0.5 * math.cos(math.tau * _turn(load, at))
        case LoadPattern.RAMP:
            return min(1.0, max(0.0, (at - load.since) / load.period))
    return 0.0


def _turn(load: Load, at: float) -> float:
    """How much of its period a pattern that repeats has done, 0 to 1. Devices are not in step."""
    return (at / load.period + drawn(load.seed, "phase")) % 1
