"""By which clock vdev waits, and how long for what: one value, handed to everything that waits."""

from typing import NamedTuple

from ..core.intervals import PRODUCTION, Intervals
from .clock import SYSTEM, Clock


class Timing(NamedTuple):
    """The two as a pair: `self._intervals, self._clock = timing`."""

    intervals: Intervals = PRODUCTION
    clock: Clock = SYSTEM


PRODUCTION_TIMING = Timing()
