"""When a rule is active: a pure function of the rule, the seed, the node and the time.

    FaultRule + Dice + Activation ─► spans() ─┬─► phase(): active or not, and until when
                                              └─► begins_between(): whether a momentary fault begins in this time

The result depends only on the arguments. Random numbers are hashes of the seed, the node and the rule's
name. Times are seconds of any steady clock. A span includes its start and excludes its end.
"""

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..model.device import EMPTY, Key
from .effects import DelayTimes, FlapTimes
from .rules import ALWAYS, COUNTS_CALLS, FaultRule, OnNodes

NO_LABELS = EMPTY
_SCALE = float(2**53)  # the integers that a float holds exactly


def draw(*question: object) -> float:
    """Return a pseudo-random number, at least 0 and below 1, that depends only on the arguments."""
    digest = hashlib.blake2b("\0".join(map(str, question)).encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 11) / _SCALE


@dataclass(frozen=True, slots=True)
class Dice:
    """Repeatable random numbers: equal arguments give equal numbers."""

    seed: int
    node: str

    def roll(self, *question: object) -> float:
        """Return a number from 0 (inclusive) to 1 (exclusive)."""
        return draw(self.seed, self.node, *question)

    def shift(self, width: float, *question: object) -> float:
        """Return a number between `-width` and `width`."""
        return width * (2 * self.roll(*question) - 1) if width else 0.0


@dataclass(frozen=True, slots=True)
class Activation:
    at: float
    keys: frozenset[Key] | None = None  # only these slots; None for all that the rule selects
    once: bool = False  # one span that begins immediately, instead of the rule's repetitions


@dataclass(frozen=True, slots=True)
class Span:
    """One repetition of a rule."""

    number: int
    start: float
    end: float
    real: bool = True  # False for a repetition that was left out at random


def on_node(nodes: OnNodes, rule: str, dice: Dice, labels: Mapping[str, str] = NO_LABELS) -> bool:
    named = not nodes.names or any(fnmatchcase(dice.node, pattern) for pattern in nodes.names)
    labeled = all(labels.get(key) == value for key, value in nodes.labels.items())
    return named and labeled and (nodes.share >= ALWAYS or dice.roll(rule, "node") < nodes.share)


def spans(rule: FaultRule, dice: Dice, activation: Activation, after: float) -> Iterator[Span]:
    """Yield the spans that have not ended at `after`, in order and without overlap.

    The spans of momentary events, and of repetitions that are left out at random, are empty.
    """
    for outer in _repetitions(rule, dice, activation, after):
        flaps = _falls(rule, rule.flap, dice, outer, after) if rule.flap and outer.real else (outer,)
        for span in flaps:
            if span.end > after:
                yield span


def phase(rule: FaultRule, dice: Dice, activation: Activation, now: float) -> tuple[bool, float | None]:
    """Return whether the rule is active at `now`, and the time until which that cannot change (None: forever)."""
    for span in spans(rule, dice, activation, now):
        if span.start > now:
            return False, span.start
        if span.real and span.end > now:
            return True, None if span.end == math.inf else span.end
    return False, None


def begins_between(rule: FaultRule, dice: Dice, activation: Activation, since: float, now: float) -> bool:
    """Whether a momentary fault of the rule begins after `since` and at or before `now`."""
    begun = itertools.takewhile(lambda span: span.start <= now, spans(rule, dice, activation, since))
    return any(span.real and span.start > since for span in begun)


def hits(rule: FaultRule, dice: Dice, number: int, *what: object) -> bool:
    """Whether the rule hits the call, allocation or repetition with this number (from 1)."""
    if rule.nth and number not in rule.nth:
        return False
    if number % (rule.every_nth or 1):
        return False
    return rule.probability >= ALWAYS or dice.roll(rule.name, "hit", number, *what) < rule.probability


def seconds_of(delay: DelayTimes, dice: Dice, rule: str, number: int, *what: object) -> float:
    """Return the delay of the call with this number, in seconds.

    The distribution is log-logistic, like latencies of busy drivers: half of the delays are below the median, with a
    long tail that is cut off at `max`.
    """
    if delay.p50 >= delay.max:
        return delay.max
    lot = dice.roll(rule, "delay", number, *what)
    return min(delay.max, delay.p50 * math.sqrt(lot / (1.0 - lot)))


def earliest(moments: Iterable[float | None]) -> float | None:
    return min((each for each in moments if each is not None), default=None)


def _repetitions(rule: FaultRule, dice: Dice, activation: Activation, after: float) -> Iterator[Span]:
    """Yield the repetitions of the rule, from about `after` on."""
    at, period = (0.0, None) if activation.once else (rule.at, rule.every)
    times = rule.times if period else 1
    width = 0.0 if activation.once or rule.flap is not None else rule.jitter * (period or at)
    # Skip past repetitions. Jitter moves a start by up to one period, and the last span may not have ended.
    number = max(0, math.floor((after - activation.at - at) / period) - 2) if period and after > activation.at else 0
    # `nth` and `probability` apply to repetitions only if they do not apply to calls, allocations or files.
    is_certain = activation.once or rule.kind in COUNTS_CALLS or rule.on_allocate or rule.on_file is not None
    while times is None or number < times:
        start = activation.at + max(0.0, at + number * (period or 0.0) + dice.shift(width, rule.name, number))
        real = is_certain or hits(rule, dice, number + 1)
        lasts = math.inf if rule.lasts is None else rule.lasts
        yield Span(number, start, start + lasts if real and not rule.momentary else start, real)
        number += 1


def _falls(rule: FaultRule, flap: FlapTimes, dice: Dice, outer: Span, after: float) -> Iterator[Span]:
    """Yield the spans within `outer` in which a flapping device is Unhealthy."""
    period = flap.up + flap.down
    number = max(0, math.floor((after - outer.start) / period) - 2) if after > outer.start else 0
    # `outer` may have no such span. The empty span lets the caller stop here and continue at its time.
    yield Span(outer.number, outer.start, outer.start, real=False)
    while True:
        moved = dice.shift(rule.jitter * flap.up, rule.name, "flap", outer.number, number)
        start = outer.start + number * period + flap.up + moved
        if start >= outer.end:
            return
        yield Span(number, start, min(start + flap.down, outer.end))
        number += 1
