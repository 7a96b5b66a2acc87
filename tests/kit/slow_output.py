"""An output that takes its time: what falls due while a turn goes on."""

from vdev.agent.applier import Output


class SlowOutput(Output):
    """Settling takes so many `seconds` of the clock, once `is_slow()`; `times` is how often it did."""

    name = "being slow"

    def __init__(self, clock, seconds):
        self.clock, self.seconds, self.times = clock, seconds, 0
        self.is_slow = lambda: False

    async def settle(self, plan):
        """Let the time pass."""
        if self.is_slow():
            self.times += 1
            self.clock.advance(self.seconds)
