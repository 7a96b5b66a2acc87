"""The pauses between attempts at what fails."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing, jittered pauses between attempts, in seconds."""

    first: float
    most: float

    def pause(self, attempt: int) -> float:
        """The pause after failed attempt number `attempt` (0 for the first)."""
        return min(self.most, self.first * 2.0 ** min(attempt, 16)) * random.uniform(0.5, 1.0)
