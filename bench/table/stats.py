"""Samples and what is said of them: the median, the 99th percentile, and ratios that survive a noisy machine."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """What a series of measurements comes to, in the unit of the measurements."""

    median: float
    p99: float
    worst: float
    count: int


def summary(samples: Sequence[float]) -> Summary:
    """Median, 99th percentile and worst. Below 100 samples the 99th percentile *is* the worst, and so it is shown."""
    ordered = sorted(samples)
    rank = min(len(ordered), math.ceil(0.99 * len(ordered))) - 1
    return Summary(statistics.median(ordered), ordered[rank], ordered[-1], len(ordered))


def ratio(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """The median over rounds of the ratio of the rounds' medians.

    The rounds of both sides took turns, so that whatever slowed the machine for a while slowed both.
    """
    return statistics.median(
        statistics.median(mine) / statistics.median(other) for mine, other in zip(ours, theirs, strict=True)
    )


def difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """The median over rounds of the difference of the rounds' medians; see `ratio`."""
    return statistics.median(
        statistics.median(mine) - statistics.median(other) for mine, other in zip(ours, theirs, strict=True)
    )


def tail_ratio(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    """The ratio of the 99th percentiles of all rounds together."""
    mine, other = (summary([each for one in rounds for each in one]) for rounds in (ours, theirs))
    return mine.p99 / other.p99
