"""Delays the moment between a plan and its lists, for tests of what happens in between."""

import asyncio

from vdev.agent.applier import Applier, Stage


class HeldBack(Applier):
    """Keeps plans from the kubelet of which `what` is not as it was before, until `go` is set."""

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
