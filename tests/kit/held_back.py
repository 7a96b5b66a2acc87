"""Delays the lists of a plan, for tests of events between a plan and its lists."""

import asyncio

from vdev.agent.applier import Applier, Stage


class HeldBack(Applier):
    """Holds back a plan if `what(plan)` has changed, until `go` is set."""

    name = "holding plans back"
    stage = Stage.PREPARE

    def __init__(self, what):
        self.last = None
        self.reached, self.go = asyncio.Event(), asyncio.Event()
        self._what = what

    async def apply(self, plan):
        if self.last and self._what(plan) != self._what(self.last):
            self.reached.set()
            await self.go.wait()
        self.last = plan
