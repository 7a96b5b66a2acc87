"""How a load runs over time: its levels at an instant, and what they come to between two.

Both are written down as formulas and never summed up, so that they cost the same after a second and after a year, and
say the same to all who ask. The noise of `busy` is the difference of two numbers drawn for the ends of a period: what
it comes to over many periods is then again a difference of two.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import NamedTuple

from ..model.telemetry import NOTHING, LoadPattern, Range

_MASK = 2**64 - 1
_SCALE = 2.0**64
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """One load, in percent of what is there. `period` is in seconds, and a ramp begins at the instant `since`.

    `lot` is a number below 2**64 that makes loads of the same pattern differ from device to device.
    """

    pattern: LoadPattern = LoadPattern.IDLE
    period: float = 10.0
    gpu: Range = NOTHING
    memory: Range = NOTHING
    encoder: Range = NOTHING
    decoder: Range = NOTHING
    since: float = 0.0
    lot: int = 0


NO_LOAD = Load()


def lot(*of: object) -> int:
    """A number below 2**64 that is always the same for the same things."""
    text = "\0".join(map(str, of))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def drawn(number: int, place: int) -> float:
    """One of the numbers of a lot, from 0 up to 1 (splitmix64)."""
    mixed = (number + (place + 1) * 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return (mixed ^ (mixed >> 31)) / _SCALE


class Levels(NamedTuple):
    """What of a device is loaded at an instant, in percent."""

    gpu: float = 0.0
    memory: float = 0.0
    encoder: float = 0.0
    decoder: float = 0.0


IDLE = Levels()


def levels(load: Load, at: float) -> Levels:
    """The load at an instant, each between the ends of its range."""
    if load.pattern is LoadPattern.IDLE:
        return IDLE
    shape = _shape(load, at)
    return Levels(*(of.low + (of.high - of.low) * shape for of in (load.gpu, load.memory, load.encoder, load.decoder)))


def total(load: Load, at: float) -> float:
    """What the load of the GPU comes to up to `at`, in percent seconds: the difference of two totals counts."""
    return load.gpu.low * at + (load.gpu.high - load.gpu.low) * _summed(load, at)


def _phase(load: Load) -> float:
    """By how much a pattern that repeats is ahead, in seconds."""
    return drawn(load.lot, -2) * load.period


def _shape(load: Load, at: float) -> float:
    """Where between its ends a load is, 0 to 1."""
    match load.pattern:
        case LoadPattern.STEADY:
            return drawn(load.lot, -1)
        case LoadPattern.BUSY:
            place = math.floor(at / load.period)
            return _HALF + _HALF * (drawn(load.lot, place + 1) - drawn(load.lot, place))
        case LoadPattern.BURST:
            return float((at + _phase(load)) % load.period >= load.period / 2)
        case LoadPattern.WAVE:
            return _HALF - _HALF * math.cos(math.tau * (at + _phase(load)) / load.period)
        case LoadPattern.RAMP:
            return min(1.0, max(0.0, (at - load.since) / load.period))
    return 0.0


def _summed(load: Load, at: float) -> float:
    """The integral of `_shape` up to `at`, but for a constant."""
    period = load.period
    match load.pattern:
        case LoadPattern.STEADY:
            return drawn(load.lot, -1) * at
        case LoadPattern.BUSY:
            place = math.floor(at / period)
            low, high = drawn(load.lot, place), drawn(load.lot, place + 1)
            return _HALF * at + _HALF * period * (low + (at / period - place) * (high - low))
        case LoadPattern.BURST:
            return _on(at + _phase(load), period)
        case LoadPattern.WAVE:
            turn = math.tau / period
            return _HALF * at - math.sin(turn * (at + _phase(load))) / (2 * turn)
        case LoadPattern.RAMP:
            return _risen(at - load.since, period)
    return 0.0


def _on(at: float, period: float) -> float:
    """For how long of that time the second half of a period was on."""
    rounds, rest = divmod(at, period)
    return rounds * period / 2 + max(0.0, rest - period / 2)


def _risen(passed: float, period: float) -> float:
    if passed <= 0:
        return 0.0
    return passed * passed / (2 * period) if passed < period else passed - period / 2
